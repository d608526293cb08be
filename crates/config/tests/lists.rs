//! Address lists in files, as policies name them.

use std::fs;

use tempfile::TempDir;
use weirgate_config::{Match, load_file};

const POLICY: &str = "\
listen: 127.0.0.1:8080
upstreams: { web: { nodes: [127.0.0.1:9001] } }
classes:
  - { name: crawlers, match: { source: [192.0.2.1, { file: lists/crawlers.txt }] } }
  - { name: archives, match: { path_prefix: /a, source: { file: lists/crawlers.txt } } }
  - { name: rest }
";

#[test]
fn a_list_is_read_once_from_the_folder_of_the_policy() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("policy.yaml");
    let list = folder.path().join("lists/crawlers.txt");
    fs::write(&file, POLICY).unwrap();
    let error = |text: &str| {
        fs::write(&list, text).unwrap();
        let shown = load_file(&file).unwrap_err().to_string();
        shown.replace(&format!("{}/", folder.path().display()), "")
    };
    let missing = load_file(&file).unwrap_err().to_string();
    assert!(missing.contains("policy.yaml:4:60: classes[0].match.source[1].file: the address list `"), "{missing}");
    assert!(missing.contains("cannot be read: No such file"), "{missing}");
    fs::create_dir(folder.path().join("lists")).unwrap();
    assert_eq!(
        error("10.0.0.0/8\n\n 10.1.0.0/8 # office\ncrawler.test\n"),
        "lists/crawlers.txt:3:2: `10.1.0.0/8` has bits set after its prefix; write `10.0.0.0/8` for the network or \
         `10.1.0.0` for the address\n\
         lists/crawlers.txt:4:1: `crawler.test` is not a network; write one such as `10.0.0.0/8`, `2001:db8::/32` or \
         `192.0.2.7`\n"
    );
    let unreachable = error("10.0.0.0/8\n");
    assert!(unreachable.contains("takes all that it matches"), "{unreachable}");

    fs::write(&file, POLICY.replace("[192.0.2.1, { file: lists/crawlers.txt }]", "192.0.2.1")).unwrap();
    let site = load_file(&file).unwrap().site;
    let Match::All(parts) = &site.rules[1].matches else { panic!("{:?}", site.rules[1]) };
    let Match::Listed(list) = &parts[1] else { panic!("{parts:?}") };
    assert_eq!((list.name.as_str(), list.networks), ("lists/crawlers.txt", 1));
    assert_eq!(list.line("10.9.9.9".parse().unwrap()), Some(1));
}
