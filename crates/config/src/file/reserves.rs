//! Cluster Reserves (Aron, Druschel and Zwaenepoel): the shares of a cluster that classes are promised.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_spanned_yaml::decode::{At, Context, Decode, Defaulted, FromText, OneOrMany, Optional, Required, Switch};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Answer, Name, Share, Span, Text};
use weirgate_spanned_yaml::{record, text_schema};

use super::address::{Listen, NodeAddress};
use super::gateway::AdminPlace;

record! {
    /// Cluster Reserves: every class its share of the nodes' CPUs, whichever node its requests reach. The same file is
    /// for `weirgate manager` and for the agent on each node.
    pub(crate) struct Reserves {
        /// Where agents connect to the manager: `IP:PORT`. On loopback by default: elsewhere every node needs a token.
        listen: Defaulted<Listen> = "127.0.0.1:9903",
        /// Where agents find the manager: `host:port`. By default `listen`, which must not be a wildcard then.
        manager: Optional<NodeAddress>,
        /// The manager's page and metrics: `off`, `IP:PORT` or `unix:/path`. On loopback by default, so that only this
        /// machine reaches it.
        admin: Defaulted<Switch<AdminPlace>> = "127.0.0.1:9904",
        /// File with the bearer token of the page, at least 128 bits as hex or base64. The environment variable
        /// `WEIRGATE_ADMIN_TOKEN` serves as well. Needed elsewhere than on loopback or a Unix socket.
        admin_token_file: Optional<Text>,
        /// Names that `Host` may have on the page besides the address itself and `localhost`.
        admin_hosts: Optional<OneOrMany<Text>>,
        /// How often shares are found anew, 250 ms to 1 h, or `off`: only when a node asks. 5 s by default, as
        /// published.
        every: Defaulted<Switch<Span>> = "5s",
        /// Are shares found anew when what a class uses on a node changes: `yes` or `no`. It makes seconds of a class's
        /// return to its share a fraction of one.
        on_demand: Defaulted<Answer> = "yes",
        /// File with the token that proves agents and manager to each other, at least 128 bits as hex or base64.
        token_file: Optional<Text>,
        /// The nodes: a name each, as agents give it with `--node`, or a map with a token of its own.
        nodes: Required<Vec<At<ReserveNodeForm>>>,
        /// The classes and what each is promised. What is not promised goes to who can use it.
        classes: Required<Vec<At<ReserveClassForm>>>,
    }
}

record! {
    /// A node of the cluster.
    pub(crate) struct ReserveNode {
        /// Its name.
        name: Required<Name>,
        /// File with a token of its own: no other node can speak for it. By default that of all.
        token_file: Optional<Text>,
    }
}

/// A node in either form.
#[derive(Clone, Debug)]
pub(crate) enum ReserveNodeForm {
    /// Its name alone.
    Name(Name),
    /// The map.
    Full(Box<ReserveNode>),
}

record! {
    /// A class of work on the nodes.
    pub(crate) struct ReserveClassForm {
        /// Its unique name.
        name: Required<Name>,
        /// What it is promised of the cluster. All together at most 100 %.
        share: Required<Share>,
        /// The cgroup that it is on each node, from the root of the hierarchy; `*` stands for anything within a name.
        cgroup: Required<CgroupPath>,
        /// Does the agent make the cgroup if it is not there: `yes` or `no`. By default it is another's, a service
        /// manager's say, who makes it.
        create: Defaulted<Answer> = "no",
        /// The nodes that have it. All by default.
        nodes: Optional<OneOrMany<Name>>,
    }
}

/// A cgroup's path from the root of the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CgroupPath(pub(crate) String);

/// Longest path of a cgroup: the kernel's bound on any path (PATH_MAX) with room for the hierarchy's own.
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
            let mend = format!("paths are from the root of the hierarchy: write {}", quoted(rest));
            return Err(Complaint::new(format!("{shown} starts with `/`"), mend));
        }
        let sound = |name: &str| !matches!(name, "" | "." | "..") && !name.chars().any(char::is_control);
        if !text.split('/').all(sound) {
            let mend = "write names separated by single `/`, without `.` and `..`";
            return Err(Complaint::new(format!("{shown} is not the path of a cgroup"), mend));
        }
        Ok(CgroupPath(text.to_owned()))
    }
}

text_schema! {
    CgroupPath: { "type": "string", "minLength": 1, "examples": ["system.slice/web.service", "docker/*web*"] };
}

impl Decode for ReserveNodeForm {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match node.value {
            Value::Map(_) => ReserveNode::decode(node, cx).map(|n| ReserveNodeForm::Full(Box::new(n))),
            _ => Name::decode(node, cx).map(ReserveNodeForm::Name),
        }
    }
}

impl JsonSchema for ReserveNodeForm {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ReserveNodeForm".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<Name>(), generator.subschema_for::<ReserveNode>()] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_cgroups() {
        for text in ["web", "system.slice/gold.service", "docker/*silver*", "a b/c"] {
            assert_eq!(CgroupPath::from_text(text).unwrap().0, text);
        }
        let mend = |text: &str| CgroupPath::from_text(text).unwrap_err().mend;
        assert!(mend("/sys/fs/cgroup/web/").contains("write `web`"), "{}", mend("/sys/fs/cgroup/web/"));
        for text in ["", "/", "a//b", "a/", "../a", "a/./b", "a\nb", &"x".repeat(5_000)] {
            mend(text);
        }
    }
}
