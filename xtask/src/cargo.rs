//! Steps that are cargo commands, without those that run tests.

use std::process::{Command, Stdio};

use crate::steps::{read, show};

/// The version of cargo-deny that is installed where there is none: its checks change with versions.
const CARGO_DENY: &str = "0.20.2";

/// `cargo` with `words`.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(words);
    command
}

/// Every file is formatted.
pub(crate) fn format() -> Result<(), String> {
    show(&mut cargo(&["fmt", "--all", "--check"])).map_err(|why| format!("{why}; `cargo fmt --all` corrects it"))
}

/// No lint fires, in tests and benchmarks neither.
pub(crate) fn clippy() -> Result<(), String> {
    show(&mut cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Documentation builds without a warning (broken links, say).
pub(crate) fn docs() -> Result<(), String> {
    show(cargo(&["doc", "--locked", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Checks the rules for dependencies. Advisories are left out: they need a database from the network and
/// change without a change here.
pub(crate) fn deny() -> Result<(), String> {
    if read(cargo(&["deny", "--version"]).stdin(Stdio::null())).is_err() {
        println!("   cargo-deny is missing; building version {CARGO_DENY} takes about three minutes, once");
        show(&mut cargo(&["install", "--locked", "cargo-deny", "--version", CARGO_DENY]))?;
    }
    show(&mut cargo(&["deny", "--workspace", "--all-features", "--locked", "check", "bans", "licenses", "sources"]))
}

/// Writes the pages of `docs/reference` from the schemas. A test compares them.
pub(crate) fn reference() -> Result<(), String> {
    let words = ["test", "--locked", "--package", "weirgate-experiment", "--test", "reference"];
    show(cargo(&words).env("UPDATE_GOLDEN", "1"))
}

/// All criterion benchmarks.
pub(crate) fn benches() -> Result<(), String> {
    show(&mut cargo(&["bench", "--locked", "--workspace", "--benches"]))
}
