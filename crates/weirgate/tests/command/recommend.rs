//! Tests of `weirgate recommend` and of the policies that it writes.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::{Scratch, run, run_with, text_of};

/// An hour of nginx's combined log with times, in which two sections of a site are asked for.
fn log() -> String {
    let mut text = String::new();
    for n in 0..72_000 {
        let (minute, second) = (n / 1200, n / 20 % 60);
        let path = ["/shop/cart", "/shop/", "/feed"][n % 3];
        text += &format!(
            "10.0.0.{} - - [26/Nov/2026:10:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"curl\" 0.025 0.020\n",
            n % 200
        );
    }
    text
}

#[test]
fn a_log_becomes_a_policy_that_passes_check() {
    let scratch = Scratch::new();
    let file = scratch.write("access.log", &format!("{}broken\n", log()));
    let ended = run(&["recommend", &file, "--node", "10.0.0.7:80"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in
        ["CLASS", "shop", "feed", "1 of them are not of this format", "line 72001: broken", "weirgate check FILE"]
    {
        assert!(ended.err.contains(part), "{part:?} is missing:\n{}", ended.err);
    }
    let checked = run_with(&["check", "-"], &ended.out);
    assert_eq!(checked.code, Some(0), "{checked:?}\n{}", ended.out);
    assert!(checked.err.contains("fits") && checked.err.ends_with("sound\n"), "{}", checked.err);
    let explained = run(&["explain", &scratch.write("p.yaml", &ended.out), "GET", "http://any.test/feed/x"]);
    assert!(explained.out.contains("class     feed"), "{}", explained.out);
}

#[test]
fn logs_come_from_pipes_and_compressed_and_broken() {
    let scratch = Scratch::new();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(log().as_bytes()).expect("memory");
    let compressed = encoder.finish().expect("memory");
    let whole = scratch.path("access.log.1.gz");
    std::fs::write(&whole, &compressed).expect("a file");
    let cut = scratch.path("access.log.2.gz");
    std::fs::write(&cut, &compressed[..compressed.len() / 2]).expect("a file");
    let piped = run_with(&["recommend", "-", &text_of(&whole), &text_of(&cut)], &log());
    assert_eq!(piped.code, Some(0), "{piped:?}");
    assert!(piped.err.contains("access.log.2.gz: breaks off after these lines"), "{}", piped.err);
    assert!(piped.out.replace("\n# ", " ").contains("(standard input and 2 more)"), "{}", piped.out);
    let formatted = run_with(&["recommend", "--format", "combined %D", "-"], &log().replace("0.025 0.020", "25000"));
    assert!(formatted.out.contains("service_time: 25ms"), "{}", formatted.out);
}

#[test]
fn mistakes_have_a_hint_and_no_file_is_overwritten() {
    let scratch = Scratch::new();
    let file = scratch.write("access.log", &log());
    let output = text_of(&scratch.path("policy.yaml"));
    let first = run(&["recommend", &file, "--output", &output]);
    assert_eq!((first.code, first.out.as_str()), (Some(0), ""), "{first:?}");
    let before = std::fs::read(&output).expect("the policy");
    let again = run(&["recommend", &file, "--output", &output]);
    assert!(again.code == Some(1) && again.err.contains("is not overwritten"), "{again:?}");
    assert_eq!(std::fs::read(&output).expect("the policy"), before);
    let empty = scratch.write("empty.log", "");
    let directory = text_of(scratch.path("x").parent().expect("the directory"));
    for (args, hint) in [
        (vec!["recommend", "/nowhere/access.log"], "/nowhere/access.log: No such file"),
        (vec!["recommend", &empty], "there is no line in it"),
        (vec!["recommend", &directory], "this is a directory"),
        (vec!["recommend", &output], "of no known format"),
        (vec!["recommend", &file, "--node", "http://10.0.0.1"], "has a scheme"),
        (vec!["recommend", &file, "--format", "haproxy"], "no request in it"),
    ] {
        let ended = run(&args);
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{args:?}: {ended:?}");
        assert!(ended.err.contains(hint), "{args:?}: {}", ended.err);
    }
    let wrong = run(&["recommend", &file, "--format", "nonsense"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("is not a format"), "{wrong:?}");
}
