//! How the nodes of a pool are divided over its sets of services: a pure decision.
//!
//! Source: Andreolini et al., Sec. 2: StaticPart divides the servers once; DynamicPart evaluates the load of the system
//! periodically and changes the parts if they do not allow to satisfy the agreement of the most important classes. How
//! it finds the new parts is not said. Here a division is the better one
//! 1. the fewer CPUs the sets of *top* users lack to be at most `busy`;
//! 2. then, the fewer CPUs those of *normal* users lack to serve what is asked: that is what is refused;
//! 3. then, the smaller Σ demand² / CPUs is: what nobody lacks goes to all sets in proportion to what is asked of
//!    them, so that the idle CPUs of one are not of use to nobody.
//!
//! Every set has at least one node as long as there are enough; if not, sets of top users have theirs first. Each of
//! the three is a sum over sets of a convex function of the set's CPUs, so that giving one node after the other to the
//! set that gains most is optimal if nodes are equal (a test enumerates all divisions). Nodes that differ are given in
//! the order of their size, the largest first: good, not always the best.
//!
//! The first two figures are whole millionths of a CPU, so that what is equal counts as equal.

use core::cmp::Ordering;

/// A node moves only if it also would with the demand of sets that gain this much smaller and of sets that lose this
/// much larger. A count of 900 arrivals (90 a second, ten seconds) varies by a tenth at three standard deviations: less
/// is not told from noise. So no node moves back while every demand stays within a tenth of what moved it.
pub(crate) const HYSTERESIS: f64 = 0.1;

/// What a set asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wants {
    /// It goes before others.
    pub(crate) top: bool,
    /// CPUs that its requests keep busy.
    pub(crate) demand: f64,
    /// Largest share of its CPUs that may be.
    pub(crate) busy: f64,
}

impl Wants {
    /// CPUs that it needs, in millionths.
    fn need(&self) -> u64 {
        millionths(self.demand / self.busy)
    }

    /// What the set suffers with so many CPUs.
    fn cost(&self, cpus: u64) -> Cost {
        let lack = self.need().saturating_sub(cpus);
        let (top, normal) = if self.top { (lack, 0) } else { (0, lack) };
        // No CPU at all is as bad as a millionth of one: what is asked for more gains more from its first.
        let strain = self.demand * self.demand * 1e6 / cpus.max(1) as f64;
        Cost { top, normal, strain }
    }
}

/// CPUs in millionths.
pub(crate) fn millionths(cpus: f64) -> u64 {
    (cpus * 1e6).clamp(0.0, 1e15).round() as u64
}

/// How bad a division is.
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

    /// What a set gains that suffers `with` instead.
    fn minus(self, with: Cost) -> Cost {
        Cost { top: self.top - with.top, normal: self.normal - with.normal, strain: self.strain - with.strain }
    }
}

/// What the sets suffer under a division.
fn cost(cpus: &[u64], wants: &[Wants], division: &[usize]) -> Cost {
    let sizes = sizes(cpus, wants.len(), division.iter().copied().map(Some));
    wants.iter().zip(&sizes).map(|(wants, cpus)| wants.cost(*cpus)).fold(Cost::default(), Cost::plus)
}

/// CPUs per set.
fn sizes(cpus: &[u64], sets: usize, division: impl Iterator<Item = Option<usize>>) -> Vec<u64> {
    let mut sizes = vec![0; sets];
    for (set, cpus) in division.zip(cpus) {
        if let Some(set) = set {
            sizes[set] += cpus;
        }
    }
    sizes
}

/// The set that gains most from `more` CPUs, the first of equals.
fn neediest(wants: &[Wants], sizes: &[u64], more: u64, may: impl Fn(usize) -> bool) -> usize {
    let gain = |set: usize| wants[set].cost(sizes[set]).minus(wants[set].cost(sizes[set] + more));
    let all = (0..wants.len()).filter(|set| may(*set)).map(|set| (set, gain(set)));
    all.reduce(|best, next| if next.1.order(&best.1) == Ordering::Greater { next } else { best }).map_or(0, |(s, _)| s)
}

/// Divides nodes with these CPUs (in millionths, > 0) over at least one set; per node its set. Nodes stay in the set
/// that they are in as far as the division leaves them a choice.
pub(crate) fn divide(cpus: &[u64], wants: &[Wants], current: &[Option<usize>]) -> Vec<usize> {
    let mut largest: Vec<usize> = (0..cpus.len()).collect();
    largest.sort_by_key(|node| (core::cmp::Reverse(cpus[*node]), *node));
    // If there are not enough for all, who goes without.
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
        // Nodes of one size, and how many of them each set gets.
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

/// The division to change to: [`divide`]'s if it is better beyond doubt (see [`HYSTERESIS`]) or the nodes are divided
/// badly, else the current one. A node without a set is put where most is gained.
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
#[path = "partition_tests.rs"]
mod tests;
