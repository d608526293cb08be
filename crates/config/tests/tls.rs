//! TLS of listeners: files of certificates, and warnings about them.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::path::Path;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;
use weirgate_config::{Loaded, load};

/// Writes a certificate that is valid between two years, and its key.
fn certificate(folder: &Path, name: &str, names: &[&str], (from, to): (i32, i32)) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
    fs::write(folder.join(format!("{name}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

fn policy(certificates: &str, classes: &str) -> String {
    format!(
        "listen: {{ address: 127.0.0.1:443, tls: {{ certificates: [{certificates}] }} }}\n\
         upstreams: {{ web: {{ nodes: a:1 }} }}\nclasses: [{classes}{{ name: all }}]\n"
    )
}

fn loaded(folder: &Path, text: &str) -> Loaded {
    let name = folder.join("p.yaml").display().to_string();
    load(&name, text).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn paths_count_from_the_folder_of_the_policy() {
    let folder = TempDir::new().unwrap();
    certificate(folder.path(), "a", &["a.test"], (2020, 2099));
    let loaded = loaded(folder.path(), &policy("{ certificate: a.pem, key: a.key }", ""));
    assert_eq!(loaded.warning_lines("p"), Vec::<String>::new());
    let tls = loaded.site.listeners[0].tls.as_ref().unwrap();
    assert_eq!(tls.certificates[0].key, folder.path().join("a.key"));
}

#[test]
fn certificates_that_clients_refuse_are_warned_about() {
    let folder = TempDir::new().unwrap();
    certificate(folder.path(), "old", &["a.test"], (2001, 2002));
    certificate(folder.path(), "new", &["*.b.test"], (2098, 2099));
    certificate(folder.path(), "nameless", &[], (2020, 2099));
    let each = ["old", "new", "nameless"].map(|name| format!("{{ certificate: {name}.pem, key: {name}.key }}"));
    let classes = "{ name: a, match: { host: a.test } }, { name: b, match: { host: [x.b.test, b.test] } }, \
                   { name: c, match: { sni: c.test, host: \"*.c.test\" } }, ";
    let loaded = loaded(folder.path(), &policy(&each.join(", "), classes));
    let warnings = loaded.warning_lines("p").join("\n");
    let expected = [
        "certificates[0].certificate: warning: the certificate in",
        "has expired",
        "certificates[1].certificate: warning: the certificate in",
        "is not valid yet",
        "covers no DNS name",
        "classes[1].match: warning: no certificate covers `b.test`",
        "classes[2].match: warning: no certificate covers `c.test`",
    ];
    for part in expected {
        assert!(warnings.contains(part), "{part} is not in\n{warnings}");
    }
    assert_eq!(loaded.warnings.len(), 5, "{warnings}");
}

#[test]
fn faults_of_files_stand_at_their_fields() {
    let folder = TempDir::new().unwrap();
    certificate(folder.path(), "a", &["a.test"], (2020, 2099));
    certificate(folder.path(), "b", &["b.test"], (2020, 2099));
    let name = folder.path().join("p.yaml").display().to_string();
    let errors = load(&name, &policy("{ certificate: a.pem, key: b.key }", "")).unwrap_err();
    let [problem] = errors.problems.as_slice() else { panic!("{errors}") };
    assert_eq!(problem.path, "listen.tls.certificates[0].key");
    assert!(problem.what.contains("does not belong"), "{errors}");
}
