//! The trust folder of a policy: its faults, its dates, and what it opens to other machines.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use weirgate_config::{Loaded, load};
use weirgate_listening::Address;
use weirgate_pki::Authority;
use weirgate_tls::Role;

const DAY: Duration = Duration::from_secs(86_400);

/// Makes an authority and a trust folder `trust`, `days` ago, valid for 30 days.
fn trust(folder: &Path, days: u32) {
    let then = weirgate_clock::calendar() - DAY * days;
    let mut authority = Authority::create(&folder.join("pki"), "test", 3_650, then).unwrap();
    let issued = authority.issue(Role::Gateway, "gw", &[], 30).unwrap();
    fs::rename(issued, folder.join("trust")).unwrap();
}

fn policy(lines: &str) -> String {
    format!("listen: 127.0.0.1:80\ntrust: trust\n{lines}classes: [{{ name: all }}]\n")
}

fn loaded(folder: &Path, text: &str) -> Loaded {
    load(&folder.join("p.yaml").display().to_string(), text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn errors(folder: &Path, text: &str) -> String {
    load(&folder.join("p.yaml").display().to_string(), text).unwrap_err().to_string()
}

const WEB: &str = "upstreams: { web: { nodes: [n1:1, { address: '[2001:db8::1]:1', name: n2 }], collector: {} } }\n";

#[test]
fn it_opens_listeners_and_collectors_to_other_machines() {
    let folder = TempDir::new().unwrap();
    trust(folder.path(), 0);
    let reserves = "reserves: { listen: 0.0.0.0:9903, coordinator: c:9903, admin: 0.0.0.0:9904, nodes: [n1], classes: \
                    [{ name: a, share: 9%, cgroup: a }] }\n";
    let Loaded { site, warnings } = loaded(folder.path(), &policy(&format!("admin: 0.0.0.0:9900\n{WEB}{reserves}")));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(site.trust, Some(folder.path().join("trust")));
    assert_eq!(site.admin.unwrap().address, Address::Tcp("0.0.0.0:9900".parse().unwrap()));
    assert!(site.pools[0].collector.is_some() && site.reserves.is_some());
}

#[test]
fn an_agent_needs_a_name_that_a_certificate_can_have() {
    let folder = TempDir::new().unwrap();
    trust(folder.path(), 0);
    let said = errors(folder.path(), &policy(&WEB.replace(", name: n2", "")));
    assert!(
        said.contains("collector: a certificate cannot be for an agent called `[2001:db8::1]`; give the node a"),
        "{said}"
    );
}

#[test]
fn a_certificate_that_expires_is_warned_about() {
    let warned = |days: u32| {
        let folder = TempDir::new().unwrap();
        trust(folder.path(), days);
        loaded(folder.path(), &policy(WEB)).warning_lines("p").join("\n")
    };
    assert_eq!(warned(1), "");
    assert!(
        warned(26).contains("p:2:8: trust: warning: the certificate in") && warned(26).contains("expires in 3 days")
    );
    assert!(warned(31).contains("has expired"), "{}", warned(31));
}

#[test]
fn faults_of_its_files_stand_at_the_field() {
    let folder = TempDir::new().unwrap();
    trust(folder.path(), 0);
    let own = folder.path().join("trust");
    let said = |change: &dyn Fn()| {
        let kept: Vec<_> =
            ["ca.crt", "tls.crt", "tls.key", "ca.crl"].map(|name| (name, fs::read(own.join(name)))).into();
        change();
        let said = errors(folder.path(), &policy(WEB));
        kept.iter().for_each(|(name, bytes)| fs::write(own.join(name), bytes.as_ref().unwrap()).unwrap());
        assert!(said.contains("p.yaml:2:8: trust: "), "{said}");
        said
    };
    let other = TempDir::new().unwrap();
    trust(other.path(), 0);
    let foreign =
        |name: &str| fs::write(own.join(name), fs::read(other.path().join("trust").join(name)).unwrap()).unwrap();
    assert!(said(&|| foreign("ca.crt")).contains("is not signed by the authority in `ca.crt` beside it"));
    assert!(said(&|| foreign("tls.key")).contains("does not belong to the certificate"));
    assert!(said(&|| fs::remove_file(own.join("tls.key")).unwrap()).contains("tls.key` cannot be read"));
    assert!(said(&|| fs::write(own.join("ca.crl"), "").unwrap()).contains("ca.crl` has no revocation list"));
    let key = rcgen::KeyPair::generate().unwrap();
    let web = rcgen::CertificateParams::new(vec!["web.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let said = said(&|| {
        fs::write(own.join("tls.crt"), web.pem()).unwrap();
        fs::write(own.join("tls.key"), key.serialize_pem()).unwrap();
    });
    assert!(
        said.contains("has no name such as `spiffe://SITE/agent/NODE`; issue one with `weirgate pki issue`"),
        "{said}"
    );
}
