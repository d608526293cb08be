//! Division of the nodes of a pool among its sets of services, as a pure decision.
//!
//! Source: Andreolini et al., Sec. 2: StaticPart divides the servers once. DynamicPart evaluates the load of
//! the system periodically and changes the partitions if they do not allow to satisfy the agreement of the
//! most important classes. The paper does not say how it finds the new partitions. Here one division is
//! better than another
//! 1. if the sets of *top* users lack fewer CPUs to be at most `busy`,
//! 2. then if the sets of *normal* users lack fewer CPUs to serve their demand: the missing part is refused,
//! 3. then if Σ demand² / CPUs is smaller: spare CPUs go to all sets in proportion to their demand, so that
//!    the idle CPUs of one set are not wasted.
//!
//! Every set has at least one node as long as there are enough. If not, sets of top users come first. Each
//! of the three is a sum over sets of a convex function of the set's CPUs. So giving one node after the
//! other to the set that gains most is optimal if nodes are equal (a test enumerates all divisions). Unequal
//! nodes are given in the order of their size, the largest first: a good division, not always the best one.
//!
//! The first two figures are integer millionths of a CPU, so that equal values compare as equal.

use core::cmp::Ordering;

/// Safety factor on demands. A node moves only if it would also move with the demand of gaining sets this
/// much smaller and of losing sets this much larger. A count of 900 arrivals (90 per second, ten seconds)
/// varies by a tenth at three standard deviations, so smaller changes cannot be told from noise. As a
/// result, no node moves back while every demand stays within a tenth of the one that moved it.
pub(crate) const HYSTERESIS: f64 = 0.1;

/// Demand of a set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wants {
    /// Whether it has precedence over normal sets.
    pub(crate) top: bool,
    /// CPUs that its requests keep busy.
    pub(crate) demand: f64,
    /// Largest share of its CPUs that may be busy.
    pub(crate) busy: f64,
}

impl Wants {
    /// CPUs that it needs, in millionths.
    fn need(&self) -> u64 {
        millionths(self.demand / self.busy)
    }

    /// Cost of the set with this many CPUs, in millionths.
    fn cost(&self, cpus: u64) -> Cost {
        let lack = self.need().saturating_sub(cpus);
        let (top, normal) = if self.top { (lack, 0) } else { (0, lack) };
        // No CPU at all counts as a millionth of one. A set with more demand then gains more from its first
        // CPU.
        let strain = self.demand * self.demand * 1e6 / cpus.max(1) as f64;
        Cost { top, normal, strain }
    }
}

/// CPUs in millionths.
pub(crate) fn millionths(cpus: f64) -> u64 {
    (cpus * 1e6).clamp(0.0, 1e15).round() as u64
}

/// Cost of a division.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    top: u64,
    normal: u64,
    strain: f64,
}

impl Cost {
    fn order(&self, other: &Cost) -> Ordering {
        let lacks = (self.top, self.normal).cmp(&(other.top, other.normal));
        lacks.then(self.strain.total_cmp(&other.strain))
    }

    fn plus(self, other: Cost) -> Cost {
        let Cost { top, normal, strain } = other;
        Cost { top: self.top + top, normal: self.normal + normal, strain: self.strain + strain }
    }

    /// Gain of a set with the cost `with` instead.
    fn minus(self, with: Cost) -> Cost {
        Cost { top: self.top - with.top, normal: self.normal - with.normal, strain: self.strain - with.strain }
    }
}

/// Cost of all sets under a division.
fn cost(cpus: &[u64], wants: &[Wants], division: &[usize]) -> Cost {
    let sizes = sizes(cpus, wants.len(), division.iter().copied().map(Some));
    wants.iter().zip(&sizes).map(|(wants, cpus)| wants.cost(*cpus)).fold(Cost::default(), Cost::plus)
}

/// CPUs per set, in millionths.
fn sizes(cpus: &[u64], sets: usize, division: impl Iterator<Item = Option<usize>>) -> Vec<u64> {
    let mut sizes = vec![0; sets];
    for (set, cpus) in division.zip(cpus) {
        if let Some(set) = set {
            sizes[set] += cpus;
        }
    }
    sizes
}

/// The set that gains most from `more` CPUs, the first one of equals.
fn neediest(wants: &[Wants], sizes: &[u64], more: u64, may: impl Fn(usize) -> bool) -> usize {
    let gain = |set: usize| wants[set].cost(sizes[set]).minus(wants[set].cost(sizes[set] + more));
    let all = (0..wants.len()).filter(|set| may(*set)).map(|set| (set, gain(set)));
    all.reduce(|best, next| if next.1.order(&best.1) == Ordering::Greater { next } else { best }).map_or(0, |(s, _)| s)
}

/// Divides nodes with these CPUs (in millionths, > 0) among at least one set. Returns the set of each node.
/// Nodes stay in their set as far as the division leaves a choice.
pub(crate) fn divide(cpus: &[u64], wants: &[Wants], current: &[Option<usize>]) -> Vec<usize> {
    let mut largest: Vec<usize> = (0..cpus.len()).collect();
    largest.sort_by_key(|node| (core::cmp::Reverse(cpus[*node]), *node));
    // With fewer nodes than sets, the last ones in this order get none.
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|a, b| {
        let rank = |set: usize| (!wants[set].top, -wants[set].demand);
        rank(*a).partial_cmp(&rank(*b)).unwrap_or(Ordering::Equal)
    });
    let mut served = vec![false; wants.len()];
    for set in order.into_iter().take(cpus.len()) {
        served[set] = true;
    }
    let mut sizes = vec![0; wants.len()];
    let mut division = vec![0; cpus.len()];
    let mut at = 0;
    while at < largest.len() {
        // Nodes of one size, and the number of them for each set.
        let size = cpus[largest[at]];
        let until = at + largest[at..].iter().take_while(|node| cpus[**node] == size).count();
        let mut counts = vec![0u32; wants.len()];
        for given in at..until {
            let empty = (0..wants.len()).filter(|set| served[*set] && sizes[*set] == 0).count();
            let last = largest.len() - given <= empty;
            let set = neediest(wants, &sizes, size, |set| served[set] && (!last || sizes[set] == 0));
            sizes[set] += size;
            counts[set] += 1;
        }
        let mut moving = Vec::new();
        for &node in &largest[at..until] {
            match current[node].filter(|set| counts[*set] > 0) {
                Some(set) => {
                    counts[set] -= 1;
                    division[node] = set;
                }
                None => moving.push(node),
            }
        }
        let mut sets = (0..wants.len()).flat_map(|set| (0..counts[set]).map(move |_| set));
        for node in moving {
            division[node] = sets.next().unwrap_or(0);
        }
        at = until;
    }
    division
}

/// The new division: the one from [`divide`] if it is better beyond doubt (see [`HYSTERESIS`]) or a set has
/// no node, otherwise the current one. A node without a set goes to the set that gains most.
pub(crate) fn redivide(cpus: &[u64], wants: &[Wants], current: &[Option<usize>]) -> Vec<usize> {
    let target = divide(cpus, wants, current);
    let mut have = sizes(cpus, wants.len(), current.iter().copied());
    let mut kept = Vec::with_capacity(cpus.len());
    for (set, cpus) in current.iter().zip(cpus) {
        kept.push(set.unwrap_or_else(|| {
            let set = neediest(wants, &have, *cpus, |_| true);
            have[set] += cpus;
            set
        }));
    }
    if have.contains(&0) {
        return target;
    }
    let would = sizes(cpus, wants.len(), target.iter().copied().map(Some));
    let doubted: Vec<Wants> = wants
        .iter()
        .enumerate()
        .map(|(set, wants)| {
            let by = match would[set].cmp(&have[set]) {
                Ordering::Greater => 1.0 - HYSTERESIS,
                Ordering::Equal => 1.0,
                Ordering::Less => 1.0 + HYSTERESIS,
            };
            Wants { demand: wants.demand * by, ..*wants }
        })
        .collect();
    let better = cost(cpus, &doubted, &target).order(&cost(cpus, &doubted, &kept)) == Ordering::Less;
    if better { target } else { kept }
}

#[cfg(test)]
#[path = "division_tests.rs"]
mod tests;
