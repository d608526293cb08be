//! `weirgate completions` and `weirgate man`.

use crate::{Scratch, run, weirgate};

/// The commands that `weirgate --help` lists, without `help`.
fn commands() -> Vec<String> {
    let help = run(&["--help"]).out;
    let listed = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\nOptions:").next()).expect("a list");
    let names = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_shell_completes_every_command() {
    let commands = commands();
    assert!(commands.iter().any(|name| name == "explain"), "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = run(&["completions", shell]);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{shell}");
        for name in &commands {
            assert!(ended.out.contains(name.as_str()), "{shell} does not complete {name}");
        }
    }
    assert_eq!(run(&["completions", "csh"]).code, Some(2));
}

#[test]
fn every_command_has_a_manual_page() {
    let scratch = Scratch::new();
    let (folder, page) = (scratch.path("man"), |name: &str| scratch.path(&format!("man/{name}.1")));
    let output = weirgate(&["man", "--output"]).arg(&folder).output().expect("it starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let whole = std::fs::read_to_string(page("weirgate")).expect("a page");
    for name in commands() {
        let text = std::fs::read_to_string(page(&format!("weirgate-{name}"))).expect("a page");
        assert!(text.contains(".SH SYNOPSIS") && whole.contains(&name.replace('-', "\\-")), "{name}");
    }
    assert!(!page("weirgate-man").exists(), "packages run it, not people");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let ended = run(&["man", "--output", "/proc/none"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.starts_with("weirgate: the manual pages cannot be written to /proc/none: "), "{}", ended.err);
}
