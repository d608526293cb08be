//! An authority in a folder: its files, the uses of its certificates, and its refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use weirgate_pki::{Authority, DEFAULT_DAYS, MAX_DAYS, Status};
use weirgate_tls::{Identity, Role, Trust};

const DAY: Duration = Duration::from_secs(86_400);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn authority(folder: &TempDir) -> Authority {
    Authority::create(&folder.path().join("pki"), "prod.example", MAX_DAYS, now()).expect("a new authority")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn a_party_gets_a_whole_trust_folder_and_keys_are_for_nobody_else() {
    let folder = TempDir::new().expect("a folder");
    let mut authority = authority(&folder);
    let hosts = ["gw.internal".to_owned(), "192.0.2.7".to_owned(), "2001:db8::7".to_owned()];
    let issued = authority.issue(Role::Gateway, "gw1", &hosts, DEFAULT_DAYS).expect("a certificate");
    assert_eq!(issued, folder.path().join("pki/issued/gateway-gw1"));
    let trust = Trust::load(&issued).expect("a trust folder");
    assert_eq!(trust.own().uri(), "spiffe://prod.example/gateway/gw1");
    assert_eq!(trust.certificate().not_after, now() + DAY * DEFAULT_DAYS);
    let identity = Identity::read(&issued.join("tls.crt")).expect("a certificate");
    assert_eq!(identity.names[..3], hosts);
    assert_eq!(identity.subject, "CN=gateway gw1,O=prod.example");
    for (file, expected) in [
        ("pki", 0o700),
        ("pki/ca.key", 0o600),
        ("pki/ca.crt", 0o644),
        ("pki/ca.crl", 0o644),
        ("pki/index.json", 0o600),
        ("pki/issued/gateway-gw1", 0o700),
        ("pki/issued/gateway-gw1/tls.key", 0o600),
        ("pki/issued/gateway-gw1/tls.crt", 0o644),
    ] {
        assert_eq!(mode(&folder.path().join(file)), expected, "{file}");
    }
}

#[test]
fn nothing_is_replaced_by_accident() {
    let folder = TempDir::new().expect("a folder");
    let pki = folder.path().join("pki");
    let mut first = authority(&folder);
    let error = Authority::open(&pki, now()).expect_err("it is in use");
    assert!(error.contains("another `weirgate pki` works on"), "{error}");
    first.issue(Role::Agent, "n1", &[], 30).expect("a certificate");
    let error = first.issue(Role::Agent, "n1", &[], 30).expect_err("there is one");
    assert!(error.contains("`weirgate pki renew agent n1` replaces it"), "{error}");
    drop(first);
    let key = fs::read(pki.join("ca.key")).expect("a key");
    let error = Authority::create(&pki, "other", MAX_DAYS, now()).expect_err("there is one");
    assert!(error.contains("never replaced"), "{error}");
    assert_eq!(fs::read(pki.join("ca.key")).expect("a key"), key);
    // Another run goes on where the first one ended.
    let again = Authority::open(&pki, now()).expect("an authority");
    assert_eq!((again.site(), again.current().count()), ("prod.example", 1));
    assert_eq!(again.not_after(), now() + DAY * MAX_DAYS);
}

#[test]
fn a_renewal_keeps_hosts_and_lifetime_and_changes_the_key() {
    let folder = TempDir::new().expect("a folder");
    let pki = folder.path().join("pki");
    let issued = authority(&folder).issue(Role::Agent, "n1", &["n1.internal".to_owned()], 30).expect("a certificate");
    let before = fs::read(issued.join("tls.key")).expect("a key");
    let states = [0, 19, 21, 29, 30, 400].map(|days| {
        let authority = Authority::open(&pki, now() + DAY * days).expect("an authority");
        let state = authority.current().map(|entry| authority.status(entry)).next();
        state.expect("it has one")
    });
    use Status::{Due, Expired, Valid};
    assert_eq!(states, [Valid, Valid, Due, Due, Expired, Expired]);

    let later = now() + DAY * 25;
    let mut authority = Authority::open(&pki, later).expect("an authority");
    assert_eq!(authority.renew(Role::Agent, "n1"), Ok(issued.clone()));
    let trust = Trust::load(&issued).expect("a trust folder");
    assert_eq!(trust.certificate().not_after, later + DAY * 30);
    assert_eq!(Identity::read(&issued.join("tls.crt")).expect("a certificate").names[0], "n1.internal");
    assert_ne!(fs::read(issued.join("tls.key")).expect("a key"), before);
    assert!(authority.renew(Role::Agent, "n2").expect_err("none").contains("agent n2 has no certificate"));
}

#[test]
fn a_revocation_ends_all_certificates_of_a_party_and_reaches_every_folder() {
    let folder = TempDir::new().expect("a folder");
    let mut authority = authority(&folder);
    let lost = authority.issue(Role::Agent, "n1", &[], 30).expect("a certificate");
    authority.renew(Role::Agent, "n1").expect("a certificate");
    let kept = authority.issue(Role::Agent, "n2", &[], 30).expect("a certificate");
    let before = fs::read(kept.join("ca.crl")).expect("a list");
    assert_eq!(authority.revoke(Role::Agent, "n1"), Ok(2));
    assert!(!lost.exists());
    let after = fs::read(kept.join("ca.crl")).expect("a list");
    assert!(after != before && after == fs::read(folder.path().join("pki/ca.crl")).expect("a list"));
    assert!(authority.revoke(Role::Agent, "n1").is_err());
    assert_eq!((authority.revoked(), authority.current().count()), (2, 1));
    // The machine gets a new certificate under the same name.
    let new = authority.issue(Role::Agent, "n1", &[], 30).expect("a certificate");
    assert!(Trust::load(&new).is_ok());
    drop(authority);
    // Expired certificates need no revocation.
    let mut late = Authority::open(&folder.path().join("pki"), now() + DAY * 40).expect("an authority");
    late.issue(Role::Operator, "alice", &[], 30).expect("a certificate");
    assert_eq!(late.revoked(), 0);
}

#[test]
fn what_cannot_be_is_said() {
    let folder = TempDir::new().expect("a folder");
    let pki = folder.path().join("pki");
    for site in ["", "Prod", "a/b", "..", "a b"] {
        let error = Authority::create(&pki, site, 30, now()).expect_err(site);
        assert!(error.contains("is not a valid name"), "{error}");
    }
    assert!(Authority::open(&pki, now()).expect_err("none").contains("make one with `weirgate pki init`"));
    let mut authority = Authority::create(&pki, "site", 30, now()).expect("an authority");
    for name in ["", "../n1", "a/b", "-n", "a b", &"x".repeat(65)] {
        let error = authority.issue(Role::Agent, name, &[], 1).expect_err(name);
        assert!(error.contains("is not a valid name"), "{error}");
    }
    for host in ["", "a b", "https://a", "a:80", "*.a.test"] {
        let error = authority.issue(Role::Agent, "n1", &[host.to_owned()], 1).expect_err(host);
        assert!(error.contains("neither a host name nor an IP address"), "{error}");
    }
    let error = authority.issue(Role::Agent, "n1", &[], 31).expect_err("too long");
    assert!(error.contains("valid for 30 days only"), "{error}");
    drop(authority);
    // The key of another authority.
    let other = TempDir::new().expect("a folder");
    drop(Authority::create(&other.path().join("pki"), "site", 30, now()).expect("an authority"));
    fs::copy(other.path().join("pki/ca.key"), pki.join("ca.key")).expect("a copy");
    let error = Authority::open(&pki, now()).expect_err("another key");
    assert!(error.contains("ca.key does not belong to ca.crt"), "{error}");
    fs::write(pki.join("ca.key"), "no key").expect("a file");
    assert!(Authority::open(&pki, now()).expect_err("no key").contains("ca.key: "));
}
