//! Discovered nodes, their comparison with the last ones, and their place in a policy.

use std::collections::BTreeMap;
use std::fmt;

use weirgate_config::{NodeSite, Site};
use weirgate_engine as engine;

/// Maximum number of addresses in a line of a log. Further ones are counted.
const MAX_SHOWN: usize = 10;

/// A discovered node.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// `host:port`. It is also the node's name and its machine.
    pub address: String,
    /// Relative share of requests, > 0.
    pub weight: f64,
}

impl Found {
    /// Sorts `nodes` by address, so that lists in another order are equal.
    ///
    /// # Errors
    /// An address is there twice.
    pub(crate) fn sorted(mut nodes: Vec<Found>) -> Result<Vec<Found>, String> {
        nodes.sort_by(|a, b| a.address.cmp(&b.address));
        match nodes.windows(2).find(|pair| pair[0].address == pair[1].address) {
            Some(pair) => Err(format!("`{}` is there twice", pair[0].address)),
            None => Ok(nodes),
        }
    }
}

/// Difference between two lists of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Addresses that only the new list has.
    pub appeared: Vec<String>,
    /// Addresses that only the old list has.
    pub left: Vec<String>,
    /// Addresses with another weight.
    pub weighed: Vec<String>,
}

impl Change {
    /// Compares two lists.
    pub fn between(old: &[Found], new: &[Found]) -> Change {
        let mut known: BTreeMap<&str, f64> = old.iter().map(|node| (node.address.as_str(), node.weight)).collect();
        let mut change = Change::default();
        for node in new {
            match known.remove(node.address.as_str()) {
                None => change.appeared.push(node.address.clone()),
                Some(weight) if weight != node.weight => change.weighed.push(node.address.clone()),
                Some(_) => {}
            }
        }
        change.left = known.into_keys().map(str::to_owned).collect();
        change
    }

    /// Whether both lists are the same.
    pub fn is_empty(&self) -> bool {
        *self == Change::default()
    }
}

impl fmt::Display for Change {
    /// `new: a:80; gone: b:80; new weight: c:80`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("new", &self.appeared), ("gone", &self.left), ("new weight", &self.weighed)];
        let shown = parts.iter().filter(|(_, nodes)| !nodes.is_empty()).map(|(word, nodes)| {
            let more = nodes.len().saturating_sub(MAX_SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{word}: {}{more}", nodes[..nodes.len().min(MAX_SHOWN)].join(", "))
        });
        f.write_str(&shown.collect::<Vec<_>>().join("; "))
    }
}

/// Replaces the nodes of a pool of `site` by `found`. The nodes of a pool stay together, in the order of the pools.
pub fn set_nodes(site: &mut Site, pool: usize, found: &[Found]) {
    let (first, end) = bounds(site, pool);
    let node = |found: &Found| engine::Node { weight: found.weight, ..engine::Node::new(&found.address, pool) };
    site.policy.nodes.splice(first..end, found.iter().map(node));
    site.nodes.splice(first..end, found.iter().map(|found| NodeSite { address: found.address.clone() }));
}

/// Replaces the nodes of a pool of `site` by those of the pool with the same name in `before`, if it is there.
pub fn keep_nodes(site: &mut Site, pool: usize, before: &Site) {
    let name = &site.policy.pools[pool].name;
    let Some(old) = before.policy.pools.iter().position(|pool| pool.name == *name) else { return };
    let (first, end) = bounds(site, pool);
    let (old_first, old_end) = bounds(before, old);
    let kept = before.policy.nodes[old_first..old_end].iter().cloned();
    site.policy.nodes.splice(first..end, kept.map(|node| engine::Node { pool, ..node }));
    site.nodes.splice(first..end, before.nodes[old_first..old_end].iter().cloned());
}

/// Returns the first node of a pool, and the one after its last.
fn bounds(site: &Site, pool: usize) -> (usize, usize) {
    let nodes = &site.policy.nodes;
    (nodes.partition_point(|node| node.pool < pool), nodes.partition_point(|node| node.pool <= pool))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(numbers: &[(u8, u8)]) -> Vec<Found> {
        let node = |(at, weight): &(u8, u8)| Found { address: format!("n{at:03}:80"), weight: f64::from(*weight) };
        let unique: BTreeMap<u8, u8> = numbers.iter().copied().collect();
        unique.iter().map(|(at, weight)| node(&(*at, *weight))).collect()
    }

    #[test]
    fn a_change_names_a_few_nodes_and_counts_the_others() {
        let change = Change::between(&found(&[(1, 1), (2, 1)]), &found(&[(2, 3), (4, 1)]));
        assert_eq!(change.to_string(), "new: n004:80; gone: n001:80; new weight: n002:80");
        let many: Vec<(u8, u8)> = (0..12).map(|n| (n, 1)).collect();
        assert!(Change::between(&[], &found(&many)).to_string().ends_with("n009:80 and 2 more"));
    }

    #[test]
    fn an_address_is_there_once() {
        let node = |address: &str| Found { address: address.into(), weight: 1.0 };
        let sorted = Found::sorted(vec![node("b:1"), node("a:1")]).expect("two addresses");
        assert_eq!(sorted[0].address, "a:1");
        assert_eq!(Found::sorted(vec![node("b:1"), node("b:1")]), Err("`b:1` is there twice".into()));
    }

    proptest! {
        /// The nodes of one pool are replaced, and those of the others stay together and in order.
        #[test]
        fn the_nodes_of_other_pools_stay(
            lists in prop::collection::vec((0usize..3, prop::collection::vec((0u8..9, 1u8..4), 0..6)), 1..12),
        ) {
            let text = "listen: 127.0.0.1:0\nclasses: [{ name: all, upstream: a }]\nupstreams: { a: { nodes: x:1 }, \
                        b: { nodes: x:1 }, c: { nodes: x:1 } }\n";
            let mut site = weirgate_config::load("p.yaml", text).expect("a good policy").site;
            let mut expected = vec![vec!["x:1".to_owned()]; 3];
            for (pool, numbers) in lists {
                let nodes = found(&numbers);
                set_nodes(&mut site, pool, &nodes);
                expected[pool] = nodes.iter().map(|node| node.address.clone()).collect();
                let addresses: Vec<String> = site.nodes.iter().map(|node| node.address.clone()).collect();
                prop_assert_eq!(&addresses, &expected.concat());
                prop_assert!(site.policy.nodes.is_sorted_by_key(|node| node.pool));
                prop_assert_eq!(site.policy.nodes.len(), site.nodes.len());
                prop_assert!(site.policy.validate().is_ok());
            }
        }

        /// A change leads from one list to the other.
        #[test]
        fn a_change_is_the_difference(
            old in prop::collection::vec((0u8..9, 1u8..4), 0..8),
            new in prop::collection::vec((0u8..9, 1u8..4), 0..8),
        ) {
            let (old, new) = (found(&old), found(&new));
            let change = Change::between(&old, &new);
            prop_assert_eq!(change.is_empty(), old == new);
            let mut addresses: Vec<&String> = old.iter().map(|node| &node.address).collect();
            addresses.retain(|address| !change.left.contains(address));
            addresses.extend(&change.appeared);
            addresses.sort();
            prop_assert_eq!(addresses, new.iter().map(|node| &node.address).collect::<Vec<_>>());
        }
    }
}
