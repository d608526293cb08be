//! The network between the processes of a site: the loopback, or a namespace for each process with links that can be
//! cut.
//!
//! In namespaces every process has a link to clients and nodes, on the bridge `data`, and one to the other processes,
//! on the bridge `control`. A process is cut off if its link to the others is down. The site is split if some of these
//! links are on the bridge `apart` instead.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// The test's own address on the bridge `data`.
const OWN: &str = "10.231.1.1";

/// A bridge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bridge {
    Data,
    Control,
    Apart,
}

/// Where the processes of a site run.
pub(crate) enum Net {
    Loopback,
    /// Names of the processes. The first one has number 11 in its addresses.
    Namespaces(Vec<String>),
}

impl Net {
    /// Makes a namespace for each process, or says that the test is skipped.
    pub(crate) fn namespaces(names: &[String]) -> Option<Net> {
        let net = Net::Namespaces(names.to_vec());
        // The drop of `net` removes everything that was made.
        match net.make() {
            Ok(()) => Some(net),
            Err(why) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: no namespaces with `ip`: {why}");
                None
            }
        }
    }

    fn names(&self) -> &[String] {
        match self {
            Net::Loopback => &[],
            Net::Namespaces(names) => names,
        }
    }

    fn make(&self) -> Result<(), String> {
        for bridge in [Bridge::Data, Bridge::Control, Bridge::Apart] {
            let name = device(bridge, "");
            ip(&["link", "add", &name, "type", "bridge"])?;
            ip(&["link", "set", &name, "up"])?;
        }
        ip(&["address", "add", &format!("{OWN}/24"), "dev", &device(Bridge::Data, "")])?;
        for (index, name) in self.names().iter().enumerate() {
            let space = space(name);
            ip(&["netns", "add", &space])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
            for (bridge, inside) in [(Bridge::Data, "data"), (Bridge::Control, "control")] {
                let outside = device(bridge, name);
                ip(&["link", "add", &outside, "type", "veth", "peer", "name", inside, "netns", &space])?;
                ip(&["link", "set", &outside, "master", &device(bridge, ""), "up"])?;
                ip(&["-n", &space, "address", "add", &format!("{}/24", address(bridge, index)), "dev", inside])?;
                ip(&["-n", &space, "link", "set", inside, "up"])?;
            }
        }
        Ok(())
    }

    /// A command that runs `program` where `name` is.
    pub(crate) fn command(&self, name: &str, program: &str) -> Command {
        match self {
            Net::Loopback => Command::new(program),
            Net::Namespaces(_) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &space(name), program]);
                command
            }
        }
    }

    /// The address of a process for clients, or the own one.
    pub(crate) fn data(&self, name: Option<&str>) -> String {
        match name {
            _ if matches!(self, Net::Loopback) => "127.0.0.1".to_owned(),
            None => OWN.to_owned(),
            Some(name) => address(Bridge::Data, self.index(name)),
        }
    }

    /// The address of a process for the others.
    pub(crate) fn control(&self, name: &str) -> String {
        if matches!(self, Net::Loopback) { "127.0.0.1".to_owned() } else { address(Bridge::Control, self.index(name)) }
    }

    fn index(&self, name: &str) -> usize {
        self.names().iter().position(|known| known == name).expect("it has a namespace")
    }

    /// Cuts a process off from the others, or ends that.
    pub(crate) fn cut(&self, name: &str, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        ip(&["link", "set", &device(Bridge::Control, name), state]).expect("a link of the test");
    }

    /// Puts these processes apart from the others. None: the site is whole.
    pub(crate) fn split(&self, apart: &[&str]) {
        for name in self.names() {
            let bridge = if apart.contains(&name.as_str()) { Bridge::Apart } else { Bridge::Control };
            let device = device(Bridge::Control, name);
            ip(&["link", "set", &device, "master", &self::device(bridge, "")]).expect("a link of the test");
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in self.names() {
            // The links go with the namespace. Without one there is nothing to do.
            let _ = ip(&["netns", "delete", &space(name)]);
        }
        if matches!(self, Net::Namespaces(_)) {
            for bridge in [Bridge::Data, Bridge::Control, Bridge::Apart] {
                let _ = ip(&["link", "delete", &device(bridge, "")]);
            }
        }
    }
}

fn space(name: &str) -> String {
    format!("weirgate-{}-{name}", std::process::id())
}

/// The name of a bridge, or of the end of a process's link on it, of at most 15 characters.
fn device(bridge: Bridge, name: &str) -> String {
    let letter = match bridge {
        Bridge::Data => 'd',
        Bridge::Control => 'c',
        Bridge::Apart => 'a',
    };
    format!("w{letter}{}{name}", std::process::id() % 1_000_000)
}

fn address(bridge: Bridge, index: usize) -> String {
    let network = if bridge == Bridge::Data { 1 } else { 2 };
    format!("10.231.{network}.{}", 11 + index)
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let made = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let made = made.map_err(|error| format!("`ip` cannot be run: {error}"))?;
    let why = || format!("`ip {}`: {}", arguments.join(" "), String::from_utf8_lossy(&made.stderr).trim());
    if made.status.success() { Ok(()) } else { Err(why()) }
}
