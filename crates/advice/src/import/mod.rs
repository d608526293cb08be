//! Policies from the configurations of other proxies.
//!
//! `nginx` and `haproxy` read a configuration into a [`Site`], and `build` makes a policy from it. Settings that
//! cannot be carried over are kept with file and line, and listed in the policy as comments. Nothing is guessed: a
//! route with a condition that is not understood is left out as a whole.

mod build;
mod haproxy;
mod nginx;
mod nginx_words;

use crate::names::segments_of;
use crate::policy::Policy;

/// Maximum size of a configuration in bytes, all of its files together.
pub const MAX_CONFIG_BYTES: usize = 16 << 20;

/// Maximum number of routes and upstreams. Configurations with more are generated, and so can a policy be.
const MAX_ROUTES: usize = 1000;

/// Maximum number of things that are listed as not carried over. The others are counted.
const MAX_LOST: usize = 200;

/// A file of a configuration.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name, for messages.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// An imported policy.
#[derive(Clone, Debug)]
pub struct Imported {
    policy: Policy,
    /// Number of upstreams.
    pub upstreams: usize,
    /// Number of classes.
    pub classes: usize,
    /// Number of things that were not carried over.
    pub lost: usize,
    /// `nginx` or `HAProxy`.
    pub from: &'static str,
}

impl Imported {
    /// Returns the policy.
    pub fn yaml(&self) -> String {
        self.policy.yaml()
    }
}

/// Makes a policy of a configuration of nginx or HAProxy. `include` returns the files that a pattern of an `include`
/// names, as nginx writes it.
///
/// # Errors
/// It is neither, it cannot be read, or nothing of it forwards requests.
pub fn import(
    source: &Source,
    include: &mut dyn FnMut(&str) -> Result<Vec<Source>, String>,
) -> Result<Imported, String> {
    let (from, site) = match is_haproxy(&source.text) {
        true => ("HAProxy", haproxy::site(source)),
        false => ("nginx", nginx::site(source, include)?),
    };
    build::policy(site, from, &source.name)
}

/// Returns whether a configuration is one of HAProxy: it has sections, each a word at the start of a line.
fn is_haproxy(text: &str) -> bool {
    let section = |line: &str| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("global" | "defaults" | "frontend" | "backend" | "listen"))
            && !line.trim_end().ends_with(['{', ';'])
    };
    text.lines().any(section)
}

/// The path of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Path {
    /// Every path.
    Any,
    /// This path and those below it, without a `/` at the end.
    Prefix(String),
    /// This path alone.
    Exact(String),
}

impl Path {
    /// Returns the path of a prefix, if it is plain.
    fn prefix(text: &str) -> Option<Path> {
        let text = segments_of(text)?.trim_end_matches('/');
        Some(if text.is_empty() { Path::Any } else { Path::Prefix(text.to_owned()) })
    }

    /// Returns the path that is only this, if it is plain.
    fn exact(text: &str) -> Option<Path> {
        segments_of(text).map(|text| Path::Exact(text.to_owned()))
    }
}

/// A host of a route: `a.test`, or `*.a.test`.
pub(crate) type Host = String;

/// Requests that go to an upstream.
#[derive(Clone, Debug)]
struct Route {
    /// Hosts, of which one must match. Empty is any.
    hosts: Vec<Host>,
    /// Ports, of which one must match. Empty is any.
    ports: Vec<u16>,
    path: Path,
    /// Name of the upstream in the configuration.
    upstream: String,
    place: String,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
struct Server {
    /// As `weirgate_config::node_address` returns it.
    address: String,
    weight: Option<u32>,
    max_outstanding: Option<u32>,
    /// Whether it is reached with TLS.
    tls: bool,
}

/// An upstream.
#[derive(Clone, Debug, Default)]
struct Pool {
    name: String,
    servers: Vec<Server>,
    /// Path of a health check.
    health: Option<String>,
    place: String,
}

/// The parts of a configuration that a policy can have too.
#[derive(Clone, Debug, Default)]
struct Site {
    /// Addresses as the policy has them.
    listen: Vec<String>,
    /// Listeners with TLS, as comments.
    encrypted: Vec<String>,
    pools: Vec<Pool>,
    routes: Vec<Route>,
    lost: Vec<String>,
    /// Number of things that were not carried over, also those that are not listed.
    all_lost: usize,
}

impl Site {
    /// Notes something that is not carried over.
    fn lose(&mut self, place: &str, what: &str) {
        self.all_lost += 1;
        if self.lost.len() < MAX_LOST {
            let shown: String = what.chars().take(200).collect();
            self.lost.push(format!("{place}: {shown}"));
        }
    }

    /// Adds a listener. The address is one of a policy already.
    fn listens(&mut self, address: String) {
        if !self.listen.contains(&address) && self.listen.len() < MAX_ROUTES {
            self.listen.push(address);
        }
    }
}

/// Returns the address of a server in the form of a policy.
///
/// # Errors
/// A description of its fault.
pub(crate) fn node(text: &str) -> Result<String, String> {
    weirgate_config::node_address(text)
}

/// Returns the host as a policy has it, if it is one or a wildcard for all names below one.
pub(crate) fn host(text: &str) -> Option<Host> {
    let lower = text.to_ascii_lowercase();
    match lower.strip_prefix("*.") {
        Some(below) => crate::names::host_of(below).filter(|name| name == below).map(|name| format!("*.{name}")),
        None => crate::names::host_of(&lower),
    }
}

#[cfg(test)]
mod tests;
