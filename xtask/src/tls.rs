//! The experiment `tls`: CPU time and memory that TLS costs in Weirgate, HAProxy and nginx.
//!
//! A script does the measurement, because Python's `ssl` says whether a session was resumed and needs nothing that is
//! not installed. Words after the command go on to it, as in `cargo xtask bench tls --rounds 3`.
//! `experiments/tls/README.md` describes the measurement.

use std::path::Path;
use std::process::Command;

use crate::release;
use crate::steps::{new_run_folder, show};

/// Builds Weirgate, measures, and writes `bench/runs/DATE-tls/`.
pub(crate) fn run() -> Result<(), String> {
    let output = new_run_folder("tls")?;
    let gateway = release::program()?;
    // `xtask bench tls WORDS`: the program, the group and the name come first.
    show(script(&gateway, &output).args(std::env::args().skip(3)))
}

/// Lets `weirgate` serve every case once. Writes what it took below `output`.
pub(crate) fn play(weirgate: &Path, output: &Path) -> Result<(), String> {
    show(script(weirgate, output).args(["--rounds", "1"]))
}

fn script(gateway: &Path, output: &Path) -> Command {
    let here = crate::root().join("experiments/tls");
    let mut command = Command::new("python3");
    command.arg("-B").arg(here.join("tls.py")).env("OPENSSL_CONF", here.join("openssl.cnf"));
    command.arg("--gateway").arg(gateway).arg("--output").arg(output);
    command
}
