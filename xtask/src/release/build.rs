//! The program of a release: static, and the same bytes wherever it is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo;
use crate::steps::{read, show};

/// Folders of a build by the names that a program shows for them, in messages of panics for example.
const SOURCE: &str = "/build/weirgate";
const CARGO: &str = "/build/cargo";

/// Builds the program in `dist`, and returns its path. `epoch` is the time of the commit, and `flag` one more flag of
/// the compiler, or empty.
pub(super) fn program(dist: &Path, epoch: &str, flag: &str) -> Result<PathBuf, String> {
    let target = target();
    let installed = read(Command::new("rustup").args(["target", "list", "--installed"]))?;
    if !installed.lines().any(|line| line == target) {
        show(Command::new("rustup").args(["target", "add", &target]))?;
    }
    if read(Command::new("musl-gcc").arg("--version")).is_err() {
        return Err("the C parts of a static program need musl-gcc: apt-get install musl-tools".to_owned());
    }
    let folders = [(crate::root().display().to_string(), SOURCE), (cargo_home()?.display().to_string(), CARGO)];
    let shown =
        |name: &str| folders.iter().map(|(from, to)| format!("{name}={from}={to}")).collect::<Vec<_>>().join(" ");
    let variable = target.replace('-', "_");
    let mut command = cargo(&["build", "--locked", "--profile", "production", "--package", "weirgate"]);
    command.args(["--target", &target, "--target-dir"]).arg(dist);
    command.env("SOURCE_DATE_EPOCH", epoch);
    let flags = format!("{} {flag}", shown("--remap-path-prefix"));
    command.env(format!("CARGO_TARGET_{}_RUSTFLAGS", variable.to_uppercase()), flags.trim());
    command.env(format!("CFLAGS_{variable}"), shown("-ffile-prefix-map"));
    println!("   the first build takes about ten minutes on two cores");
    show(&mut command)?;
    Ok(dist.join(target).join("production/weirgate"))
}

/// The target of a release.
pub(super) fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Folder where cargo keeps the sources of libraries.
pub(super) fn cargo_home() -> Result<PathBuf, String> {
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    home.map(PathBuf::from).map_err(|e| format!("HOME: {e}"))
}
