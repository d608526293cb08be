//! Changes of nodes and of the policy.

use std::collections::BTreeMap;

use weirgate_engine::{NodeSnapshot, NodeState};
use weirgate_wire::admin::EventKind;

/// Names of a pool and of a node in it.
type Name = (String, String);

/// All nodes, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Version of the configuration at the last look.
    version: u64,
    /// In the order in which the engine has them.
    states: Vec<(Name, NodeState)>,
}

/// Usable and all nodes of a pool.
#[derive(Clone, Copy, Debug, Default)]
struct Usable {
    up: usize,
    all: usize,
}

impl Nodes {
    /// Returns the number of pools without a usable node, and whether there are nodes but none of them is usable.
    pub(super) fn unusable(&self) -> (usize, bool) {
        let pools = usable(&self.states);
        let unusable = pools.values().filter(|usable| usable.up == 0).count();
        (unusable, unusable > 0 && unusable == pools.len())
    }

    /// Compares `nodes` with the look before, and passes the changes to `tell`.
    pub(super) fn compare(
        &mut self,
        version: u64,
        checksum: &str,
        nodes: &[NodeSnapshot],
        tell: &mut impl FnMut(EventKind, String),
    ) {
        let is_known = |(node, ((pool, name), state)): (&NodeSnapshot, &(Name, NodeState))| {
            node.state == *state && node.name == *name && node.pool == *pool
        };
        if version == self.version && nodes.len() == self.states.len() && nodes.iter().zip(&self.states).all(is_known) {
            return;
        }
        let states = nodes.iter().map(|node| ((node.pool.clone(), node.name.clone()), node.state)).collect();
        // The first look shows how it is, and not what has changed.
        let first = std::mem::replace(&mut self.version, version);
        let before = std::mem::replace(&mut self.states, states);
        if first == 0 {
            return;
        }
        if first != version {
            tell(
                EventKind::PolicyChanged,
                format!("version {version} of the configuration is in force, checksum {checksum}"),
            );
        }
        let (was, is) = (usable(&before), usable(&self.states));
        let (before, now) = (sorted(&before), sorted(&self.states));
        for (name, state) in &now {
            let (pool, node) = name;
            let Usable { up, all } = is.get(pool.as_str()).copied().unwrap_or_default();
            let left = format!("{up} of {all} nodes of upstream {pool} are usable");
            match before.get(name) {
                None => tell(EventKind::NodeAppeared, format!("node {node} of upstream {pool} is new. {left}")),
                Some(before) if kind(before) == kind(state) => {}
                Some(_) => {
                    let why = match state {
                        NodeState::Up => "gets requests again",
                        NodeState::Down => "is down: its health checks fail",
                        NodeState::Draining => "is being drained and gets no new requests",
                        NodeState::Ejected { .. } => "is ejected for a while: its requests failed",
                    };
                    tell(kind(state), format!("node {node} of upstream {pool} {why}. {left}"));
                }
            }
        }
        for (pool, node) in before.keys().filter(|name| !now.contains_key(*name)) {
            tell(EventKind::NodeLeft, format!("node {node} of upstream {pool} has left. It gets no new requests"));
        }
        for (pool, Usable { up, all }) in &is {
            match (was.get(pool).map(|was| was.up > 0), *up > 0) {
                (Some(true), false) => tell(
                    EventKind::UpstreamUnusable,
                    match all {
                        1 => format!("upstream {pool}: its only node is not usable. Its requests are refused"),
                        _ => format!("upstream {pool}: none of its {all} nodes is usable. Its requests are refused"),
                    },
                ),
                (Some(false), true) => {
                    tell(
                        EventKind::UpstreamUsable,
                        format!("upstream {pool}: {up} of its {all} nodes are usable again"),
                    );
                }
                _ => {}
            }
        }
    }
}

fn kind(state: &NodeState) -> EventKind {
    match state {
        NodeState::Up => EventKind::NodeUp,
        NodeState::Down => EventKind::NodeDown,
        NodeState::Draining => EventKind::NodeDraining,
        NodeState::Ejected { .. } => EventKind::NodeEjected,
    }
}

/// Returns the states by name.
fn sorted(states: &[(Name, NodeState)]) -> BTreeMap<&Name, NodeState> {
    states.iter().map(|(name, state)| (name, *state)).collect()
}

/// Returns the number of usable and of all nodes of each pool.
fn usable(states: &[(Name, NodeState)]) -> BTreeMap<&str, Usable> {
    let mut pools: BTreeMap<&str, Usable> = BTreeMap::new();
    for ((pool, _), state) in states {
        let pool = pools.entry(pool).or_default();
        pool.all += 1;
        pool.up += usize::from(*state == NodeState::Up);
    }
    pools
}
