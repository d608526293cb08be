//! The keys of the visitors' cookie, which are in a file of their own.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;
use weirgate_config::{Key, Match, Standing, load_file};

const POLICY: &str = "\
listen: 127.0.0.1:8080
upstreams: { web: { nodes: [127.0.0.1:9001] } }
visitors: { keys_file: visitors.keys, returning_after: 30s }
classes:
  - { name: people, match: { visitor: returning }, source: visitor }
  - { name: rest }
";

const KEYS: [&str; 3] = [
    "f1c9b0a4e6d2873550a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f607",
    "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f607f1c9b0a4e6d287355",
    "ThirdKeyInBase64+/ThirdKeyInBase64==",
];

#[test]
fn keys_are_one_or_two_and_random() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("policy.yaml");
    fs::write(&file, POLICY).unwrap();
    let keys = |text: &str| {
        fs::write(folder.path().join("visitors.keys"), text).unwrap();
        load_file(&file).map_err(|errors| errors.to_string().replace(&format!("{}/", folder.path().display()), ""))
    };
    let [first, second, third] = KEYS;
    let site = keys(&format!("# the present key\n {first}\r\n\n{second}\n")).unwrap().site;
    let visitors = site.visitors.unwrap();
    assert_eq!((visitors.keys.len(), visitors.cookie.as_str()), (2, "weirgate_visitor"));
    assert_eq!(visitors.returning_after, Duration::from_secs(30));
    assert!(visitors.keys[0].verifies(b"text", &weirgate_tls::SigningKey::new(first.as_bytes()).sign(b"text")));
    assert!(!format!("{visitors:?}").contains(first));
    assert!(matches!(site.rules[0].matches, Match::Visitor(Standing::Returning)));
    assert_eq!(site.classes[0].source, Key::Visitor);

    let many = keys(&KEYS.join("\n")).unwrap_err();
    assert_eq!(
        many,
        "policy.yaml:3:24: visitors.keys_file: there are 3 keys; write one, or two while you change them: the first one \
         signs\n"
    );
    assert!(!many.contains(third));
    assert!(keys("# none\n").unwrap_err().contains("there are 0 keys"));
    let weak = keys(&format!("\n{}\n{}\n", &first[..31], "0123".repeat(8))).unwrap_err();
    assert_eq!(
        weak,
        "policy.yaml:3:24: visitors.keys_file: the key in line 2 is shorter than 32 letters; make one with `openssl rand \
         -hex 32`\n\
         policy.yaml:3:24: visitors.keys_file: the key in line 3 is not random: it has fewer than 8 different letters; \
         make one with `openssl rand -hex 32`\n"
    );
    let example = fs::read_to_string("../../policies/visitors.keys").unwrap();
    fs::write(folder.path().join("visitors.keys"), example).unwrap();
    assert_eq!(
        load_file(&file).unwrap().warning_lines("policy.yaml"),
        [
            "policy.yaml:3:24: visitors.keys_file: warning: the key in line 2 is that of Weirgate's examples, with which everybody can \
          sign; make one with `openssl rand -hex 32`"
        ]
    );
    fs::remove_file(folder.path().join("visitors.keys")).unwrap();
    let missing = load_file(&file).unwrap_err().to_string();
    assert!(missing.contains("cannot be read: No such file"), "{missing}");
}
