//! Long runs and attacks: builds the gateway and `crates/endurance`, and runs one of its commands.
//!
//! Words after the command go on to the program, as in `cargo xtask bench door --seconds 60 --seed 7`. Results go to
//! `bench/runs/DATE-endurance/`.

use std::process::Command;

use crate::steps::{built, run_folder, show};

/// 50 mixes of hostile clients beside a class within its guarantee.
pub(crate) fn door() -> Result<(), String> {
    run("door", &[])
}

/// Floods of requests that are refused, beside a class within its guarantee: for the rate of a source, and for a full
/// queue.
pub(crate) fn flood() -> Result<(), String> {
    for mix in ["16 refused flood", "16 full queue"] {
        run("door", &["--seconds", "30", "--mix", mix])?;
    }
    Ok(())
}

/// Half load with reloads and crashes.
pub(crate) fn soak() -> Result<(), String> {
    run("soak", &[])
}

fn run(name: &str, words: &[&str]) -> Result<(), String> {
    let programs = built(&["weirgate", "weirgate-endurance"])?;
    let output = run_folder("endurance")?;
    let mut command = Command::new(programs.join("weirgate-endurance"));
    command.arg(name).args(words).arg("--gateway").arg(programs.join("weirgate"));
    command.arg("--experiments").arg(crate::root().join("experiments/endurance")).arg("--output").arg(output);
    // `xtask bench NAME WORDS`: the program, the group and the name come first.
    show(command.args(std::env::args().skip(3)))
}
