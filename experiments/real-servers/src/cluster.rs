//! Four Apache servers with PHP, as Debian ships them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::fetch::fetch;
use crate::machine::{Cores, free_addresses};
use crate::process::{Directory, Process};
use crate::template::fill;

/// How many servers.
pub(crate) const SERVERS: usize = 4;

/// Requests that one of them takes at once, Debian's default.
pub(crate) const WORKERS: usize = 150;

/// Debian's server with the prefork model, which PHP needs.
const APACHE: &str = "/usr/sbin/apache2";

/// Requests with which each of the five processes that a server starts with gets to load PHP and the page.
const FIRST_REQUESTS: usize = 20;

/// Where Debian keeps the modules that are installed.
const MODULES: &str = "/etc/apache2/mods-available";

/// The servers.
pub(crate) struct Cluster {
    addresses: [SocketAddr; SERVERS],
    _servers: Vec<Process>,
}

impl Cluster {
    /// Starts the servers in the part `name` of the directory and lets them load what they need.
    pub(crate) fn start(directory: &Directory, name: &str, cores: Cores) -> Result<Cluster, String> {
        let pages = directory.write("pages/loop.php", include_str!("../loop.php"))?;
        let pages = pages.parent().unwrap_or(directory.path()).display().to_string();
        let addresses = free_addresses()?;
        let mut servers = Vec::with_capacity(SERVERS);
        for (i, address) in addresses.iter().enumerate() {
            let place = directory.path().join(format!("{name}/server-{i}"));
            let values = [
                ("DIRECTORY", place.display().to_string()),
                ("PORT", address.port().to_string()),
                ("PAGES", pages.clone()),
            ];
            let text = fill(include_str!("../apache.conf"), &values);
            let file = directory.write(&format!("{name}/server-{i}/apache.conf"), &text)?;
            let command = [APACHE, "-D", "FOREGROUND", "-f"].map(Path::new);
            let command = [&command[..], &[&file]].concat();
            servers.push(Process::start(&command, cores.servers, &place.join("output"), *address)?);
        }
        for address in addresses.iter().cycle().take(FIRST_REQUESTS * SERVERS) {
            fetch(*address, &page(1000))?;
        }
        Ok(Cluster { addresses, _servers: servers })
    }

    /// Where the servers listen.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// The target of a request that runs the page's loop `rounds` times.
pub(crate) fn page(rounds: u64) -> String {
    format!("/loop.php?n={rounds}")
}

/// Debian packages that the experiment needs and does not find.
#[must_use]
pub fn missing_packages() -> Vec<&'static str> {
    let php = || {
        let modules = std::fs::read_dir(MODULES).into_iter().flatten().flatten();
        modules
            .map(|m| m.file_name().to_string_lossy().into_owned())
            .any(|m| m.starts_with("php") && m.ends_with(".load"))
    };
    let found =
        [("apache2", Path::new(APACHE).exists()), ("libapache2-mod-php", php()), ("haproxy", haproxy().exists())];
    found.into_iter().filter(|(_, found)| !found).map(|(package, _)| package).collect()
}

/// Debian's HAProxy.
pub(crate) fn haproxy() -> PathBuf {
    "/usr/sbin/haproxy".into()
}
