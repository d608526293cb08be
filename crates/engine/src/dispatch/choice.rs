//! The choice among the available nodes.
//!
//! Methods: least in flight relative to weight (equals take turns, so that an idle pool is used evenly),
//! weighted round robin (a node's next turn comes 1/weight after its last: the order of stride scheduling),
//! power of two choices (Mitzenmacher 1996), the round robin of Cluster Reserves (see `round_robin`) and
//! LARD (see `lard`). The first two take the top of a heap. The others check all nodes of the pool that have
//! room.

use super::Nodes;
use super::lard::Sent;
use super::least_loaded::after;
use crate::demand::Demand;
use crate::index::{Id, MachineGroupId, OverlapId, PartitionId};
use crate::limit::{Limit, Window};
use crate::policy::{Content, Dispatch};
use crate::random::Random;
use crate::request::{ClassId, NodeId};
use crate::scheduler::Standing;

/// Number of draws after which power of two ignores weights. With weights 100:1 a fair draw needs about 50
/// on average. The bound limits the cost of a decision.
const MAX_DRAWS: u32 = 64;

/// A request that needs a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) partition: PartitionId,
    pub(crate) class: ClassId,
    pub(crate) sub_queue: usize,
    pub(crate) content: Content,
    pub(crate) locality_key: Option<u64>,
    /// Its cost on the managed resources.
    pub(crate) demand: Demand,
    /// The node on which it has just failed, or [`NodeId::NONE`]. It is not chosen.
    pub(crate) avoid: NodeId,
    pub(crate) standing: Standing,
    /// As in [`Nodes::has_room`].
    pub(crate) kept: Option<MachineGroupId>,
}

impl Nodes {
    /// Chooses a node of the partition and counts the request on it. `None` if there is none but the one to avoid.
    pub(crate) fn dispatch(&mut self, wanted: &Wanted, limit: &Limit, random: &mut Random) -> Option<NodeId> {
        let chosen = self.choose(wanted, limit, random)?;
        self.count(chosen, wanted.content, true);
        Some(chosen)
    }

    /// Chooses a node that has room.
    pub(super) fn choose(&mut self, wanted: &Wanted, limit: &Limit, random: &mut Random) -> Option<NodeId> {
        let windows = limit.windows_of(wanted.sub_queue);
        let by_resources = limit.resources().map(|resources| resources.roomiest(self, wanted));
        let chosen = match self.methods[wanted.partition] {
            _ if by_resources.is_some() => by_resources.flatten(),
            Dispatch::PowerOfTwo => self.less_loaded_of_two(wanted, windows, random),
            Dispatch::LeastLoaded { avoid_last } => self.next_min(wanted, windows, avoid_last),
            Dispatch::Lard(figures) => self.cheapest(wanted, windows, figures),
            _ => self.first_ready(wanted, windows),
        }
        .filter(|chosen| *chosen != wanted.avoid)?;
        if self.methods[wanted.partition] == Dispatch::WeightedRoundRobin {
            let node = &mut self.nodes[chosen];
            self.round[wanted.partition] = self.round[wanted.partition].max(node.turn);
            node.turn += 1.0 / node.weight;
        }
        self.turns += 1;
        Some(chosen)
    }

    /// The nodes that can take the request, in no particular order.
    fn candidates<'a>(&'a self, wanted: &Wanted, windows: &'a [Window]) -> impl Iterator<Item = NodeId> + Clone + 'a {
        let overlaps = self.open(wanted.partition, windows, wanted.standing, wanted.kept);
        overlaps.flat_map(|overlap| self.ready.items(overlap.row())).map(|(_, node)| *node)
    }

    /// The first node in the order of the heap.
    fn first_ready(&self, wanted: &Wanted, windows: &[Window]) -> Option<NodeId> {
        let best = self.best(wanted.partition, windows, wanted.standing, wanted.kept)?;
        if best != wanted.avoid {
            return Some(best);
        }
        // Only after a failure: compare all nodes.
        let all = self
            .open(wanted.partition, windows, wanted.standing, wanted.kept)
            .flat_map(|overlap| self.ready.items(overlap.row()));
        all.filter(|(_, n)| *n != wanted.avoid).min().map_or(Some(best), |(_, n)| Some(*n))
    }

    fn less_loaded_of_two(&self, wanted: &Wanted, windows: &[Window], random: &mut Random) -> Option<NodeId> {
        self.best(wanted.partition, windows, wanted.standing, wanted.kept)?;
        let open = self.open(wanted.partition, windows, wanted.standing, wanted.kept);
        let a = self.draw(open.clone(), wanted.avoid, random);
        let b = self.draw(open, wanted.avoid, random);
        Some(if self.load(b) < self.load(a) { b } else { a })
    }

    /// App. A.1: the least loaded node, and the next in turn among equals.
    fn next_min(&mut self, wanted: &Wanted, windows: &[Window], avoid_last: bool) -> Option<NodeId> {
        let rotation = &self.rotations[wanted.partition];
        let shunned = if avoid_last { rotation.last_of(wanted.class) } else { NodeId::NONE };
        let last = rotation.last;
        let rank = |node: &NodeId| {
            let again = (*node == wanted.avoid, *node == shunned);
            (again, self.load(*node), after(*node, last))
        };
        let chosen = min(self.candidates(wanted, windows).map(|node| (rank(&node), node)))?;
        self.rotations[wanted.partition].chose(wanted.class, chosen, avoid_last);
        Some(chosen)
    }

    /// App. A.2: the node with the lowest cost.
    fn cheapest(&mut self, wanted: &Wanted, windows: &[Window], figures: super::Lard) -> Option<NodeId> {
        let locality = self.localities[wanted.partition].as_ref()?;
        let mapped =
            wanted.locality_key.and_then(|locality_key| locality.node_of(locality_key)).unwrap_or(NodeId::NONE);
        // An unusable node serves nothing from memory.
        let home = if mapped != NodeId::NONE && self.nodes[mapped].usable() { mapped } else { NodeId::NONE };
        let last = locality.last;
        let rank = |node: &NodeId| {
            let load = self.requests(*node) * locality.scale;
            let cost = figures.cost(load, *node == home);
            // If all are overloaded, the least loaded one is chosen.
            let load = if cost == f64::INFINITY { load } else { 0.0 };
            (*node == wanted.avoid, cost, load, after(*node, last))
        };
        let chosen = min(self.candidates(wanted, windows).map(|node| (rank(&node), node)))?;
        let sent = match home {
            NodeId::NONE => Sent::New,
            home if home == chosen => Sent::Home,
            _ => Sent::Moved,
        };
        if let Some(locality) = &mut self.localities[wanted.partition] {
            locality.sent(wanted.locality_key, chosen, sent);
        }
        Some(chosen)
    }

    /// The best node of the partition. Between overlaps the emptier group wins: the load of a node is compared with
    /// its share of its group's window, because requests that wait for a database load a node less than
    /// their number suggests.
    fn best(
        &self,
        partition: PartitionId,
        windows: &[Window],
        standing: Standing,
        kept: Option<MachineGroupId>,
    ) -> Option<NodeId> {
        let tops = self.open(partition, windows, standing, kept).filter_map(|overlap| {
            let (rank, node) = self.ready.peek(overlap.row())?;
            let group = self.overlaps[overlap].group;
            let load = rank.key() * self.groups[group].weight / f64::from(windows[group.row()].size);
            Some((load, rank.turn(), node))
        });
        let order =
            |a: &(f64, u64, NodeId), b: &(f64, u64, NodeId)| a.partial_cmp(b).unwrap_or(core::cmp::Ordering::Equal);
        tops.min_by(order).map(|(_, _, node)| node)
    }

    /// A ready node of these overlaps, drawn in proportion to weight.
    fn draw(&self, overlaps: impl Iterator<Item = OverlapId> + Clone, avoid: NodeId, random: &mut Random) -> NodeId {
        let lists = overlaps.map(|overlap| self.ready.items(overlap.row()));
        let nth = |mut at: usize| {
            lists.clone().find_map(|list| {
                let found = list.get(at).map(|(_, node)| *node);
                at = at.saturating_sub(list.len());
                found
            })
        };
        let count: usize = lists.clone().map(<[_]>::len).sum();
        let heaviest = self
            .even
            .unwrap_or_else(|| lists.clone().flatten().map(|(_, node)| self.nodes[*node].weight).fold(0.0, f64::max));
        let mut last = nth(0).unwrap_or(NodeId::NONE);
        for _ in 0..MAX_DRAWS {
            let Some(n) = nth(random.below(count.max(1) as u64) as usize) else { break };
            if n == avoid && count > 1 {
                continue;
            }
            last = n;
            if random.unit() * heaviest < self.nodes[n].weight {
                break;
            }
        }
        last
    }
}

/// The item with the smallest rank, the first one of equals. Ranks must not contain NaN.
pub(crate) fn min<R: PartialOrd, T>(ranked: impl Iterator<Item = (R, T)>) -> Option<T> {
    ranked.reduce(|best, next| if next.0 < best.0 { next } else { best }).map(|(_, item)| item)
}
