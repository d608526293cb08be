//! Cluster Reserves (Aron, Druschel and Zwaenepoel): guaranteed shares of a cluster for classes.

use weirgate_spanned_yaml::decode::{At, Defaulted, FromText, OneOrMany, Optional, Required, Switch};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::unit::{Answer, Name, Share, Span, Text};
use weirgate_spanned_yaml::{record, text_schema};

use super::address::{Listen, ListenAddress, NodeAddress};

record! {
    /// Cluster Reserves: every class gets its share of the nodes' CPUs, whichever nodes its requests reach.
    /// `weirgate coordinator` and the agents on the nodes read the same file.
    pub(crate) struct Reserves {
        /// Address where agents connect to the coordinator: `IP:PORT`. On loopback by default, because outside it
        /// every node needs a certificate: see `trust`.
        listen: Defaulted<Listen> = "127.0.0.1:9903",
        /// Address of the coordinator for the agents: `host:port`. By default `listen`, which then must not be a
        /// wildcard.
        coordinator: Optional<NodeAddress>,
        /// Status page and metrics of the coordinator: `off`, `IP:PORT` or `unix:/path`. On loopback by default,
        /// so that only this machine reaches it.
        admin: Defaulted<Switch<ListenAddress>> = "127.0.0.1:9904",
        /// File with a bearer token of the page, at least 128 bits as hex or base64. You can set the
        /// environment variable `WEIRGATE_ADMIN_TOKEN` instead. With `trust` it is for clients without a certificate.
        admin_token_file: Optional<Text>,
        /// Values of `Host` that the page accepts in addition to the address itself and `localhost`.
        admin_hosts: Optional<OneOrMany<Text>>,
        /// Time between two computations of the shares, 250 ms to 1 h. With `off`, shares are computed only
        /// when a node asks. 5 s by default, as published.
        every: Defaulted<Switch<Span>> = "5s",
        /// Whether shares are computed again when a class's use on a node changes: `true` or `false`. A class
        /// then returns to its share in a fraction of a second instead of seconds.
        on_demand: Defaulted<Answer> = true,
        /// The names of the nodes, as given to their agents with `--node` and in their certificates.
        nodes: Required<Vec<At<Name>>>,
        /// The classes and their guaranteed shares. The remainder goes to classes that can use it.
        classes: Required<Vec<At<ReserveClassForm>>>,
    }
}

record! {
    /// A class of work on the nodes.
    pub(crate) struct ReserveClassForm {
        /// Its unique name.
        name: Required<Name>,
        /// Guaranteed share of the cluster. The shares of all classes add up to at most 100 %.
        share: Required<Share>,
        /// Its cgroup on each node, as a path from the root of the hierarchy. `*` stands for any characters
        /// within a name.
        cgroup: Required<CgroupPath>,
        /// Whether the agent creates the cgroup if it does not exist: `true` or `false`. By default something
        /// else creates it, such as a service manager.
        create: Defaulted<Answer> = false,
        /// Nodes on which the class exists. All nodes by default.
        nodes: Optional<OneOrMany<Name>>,
    }
}

/// Path of a cgroup, from the root of the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CgroupPath(pub(crate) String);

/// Longest path of a cgroup: the kernel's limit for any path (PATH_MAX), less room for the mount point of the
/// hierarchy.
const MAX_PATH: usize = 3_800;

impl FromText for CgroupPath {
    const EXPECTED: &'static str = "the path of a cgroup, such as `system.slice/web.service`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let shown = quoted(text);
        if text.len() > MAX_PATH {
            let what = format!("the path has {} bytes", text.len());
            return Err(Complaint::new(what, format!("write at most {MAX_PATH}")));
        }
        if let Some(rest) = text.strip_prefix('/') {
            let rest = rest.strip_prefix("sys/fs/cgroup/").unwrap_or(rest).trim_matches('/');
            let hint = format!("paths are from the root of the hierarchy: write {}", quoted(rest));
            return Err(Complaint::new(format!("{shown} starts with `/`"), hint));
        }
        let sound = |name: &str| !matches!(name, "" | "." | "..") && !name.chars().any(char::is_control);
        if !text.split('/').all(sound) {
            let hint = "write names separated by single `/`, without `.` and `..`";
            return Err(Complaint::new(format!("{shown} is not the path of a cgroup"), hint));
        }
        Ok(CgroupPath(text.to_owned()))
    }
}

text_schema! {
    CgroupPath: { "type": "string", "minLength": 1, "examples": ["system.slice/web.service", "docker/*web*"] };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_cgroups() {
        for text in ["web", "system.slice/gold.service", "docker/*silver*", "a b/c"] {
            assert_eq!(CgroupPath::from_text(text).unwrap().0, text);
        }
        let hint = |text: &str| CgroupPath::from_text(text).unwrap_err().hint;
        assert!(hint("/sys/fs/cgroup/web/").contains("write `web`"), "{}", hint("/sys/fs/cgroup/web/"));
        for text in ["", "/", "a//b", "a/", "../a", "a/./b", "a\nb", &"x".repeat(5_000)] {
            hint(text);
        }
    }
}
