//! Avoidable refusals: owed requests that were refused or late while machines that could have served them idled.
//!
//! The oracle in hand: it knows what every request takes and what every machine left undone ([`Idle`]), and gives idle
//! seconds to such requests after the fact. A request is *avoidable* if idle seconds between its arrival and its limit
//! would have served it. Each idle second is given once. At every instant it goes to the request whose limit
//! ends first (earliest deadline first), which serves as many as possible where all take the same (Glover, *Maximum Matching in a
//! Convex Bipartite Graph*, 1967); where they differ it may serve fewer than the most that are possible, never
//! more, as a request that is not finished in time has used its seconds up.
//!
//! A request progresses through everything that it takes (CPU, disk, link, a worker) in proportion, and no faster than on
//! an idle machine: a request of 400 ms is never served within 300. Idle seconds of a tick are spread evenly over it, and
//! those of a group of machines are one sum: a request may take a little of several, which is a bound and no schedule.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::idle::{Idle, KINDS};

/// Parts of a request that are lost in the rounding of thousands of additions.
const ROUNDING: f64 = 1e-6;

/// A request that was owed and not served in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lacking {
    /// The pool that its class goes to.
    pub(crate) pool: usize,
    /// From its arrival to the last instant at which it is in time, in nanoseconds from the start.
    pub(crate) time: (u64, u64),
    /// What it takes, in seconds of a nominal CPU, a disk, a link and a worker.
    pub(crate) takes: [f64; KINDS],
    /// How long it takes on an idle machine, in seconds.
    pub(crate) alone: f64,
}

impl Lacking {
    /// Seconds of `span` in which it can be served.
    fn overlap(&self, span: &Range<u64>) -> f64 {
        self.time.1.min(span.end).saturating_sub(self.time.0.max(span.start)) as f64 / 1e9
    }
}

/// Which of `requests`, in order of arrival, idle machines could have served.
pub(crate) fn avoidable(idle: &Idle, requests: &[Lacking]) -> Vec<bool> {
    let mut served = vec![false; requests.len()];
    let pools = idle.groups.iter().flatten().max().map_or(0, |most| most + 1);
    let reach: Vec<Vec<usize>> = (0..pools).map(|pool| reach(idle, pool)).collect();
    // By the end of their time: the part of each that has been served.
    let mut open: BTreeMap<(u64, usize), f64> = BTreeMap::new();
    let (mut next, mut start) = (0, 0);
    for (tick, end) in idle.ends.iter().enumerate() {
        let span = start..*end;
        start = *end;
        while let Some(request) = requests.get(next).filter(|request| request.time.0 < span.end) {
            if reach.get(request.pool).is_some_and(|groups| !groups.is_empty()) {
                open.insert((request.time.1, next), 0.0);
            }
            next += 1;
        }
        if open.is_empty() {
            continue;
        }
        let length = (span.end - span.start) as f64 / 1e9;
        let mut left: Vec<[f64; KINDS]> = idle.tick(tick).iter().map(|group| group.map(f64::from)).collect();
        open.retain(|(_, index), part| {
            let request = &requests[*index];
            let overlap = request.overlap(&span);
            *part += give(request, &reach[request.pool], &mut left, (overlap, length), 1.0 - *part);
            if *part >= 1.0 - ROUNDING {
                served[*index] = true;
                return false;
            }
            let rest = request.time.1.saturating_sub(span.end) as f64 / 1e9;
            (1.0 - *part) * request.alone <= rest
        });
    }
    served
}

/// The groups that serve a pool, first those that serve fewest others: what they have is of use to fewest.
fn reach(idle: &Idle, pool: usize) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..idle.groups.len()).filter(|group| idle.groups[*group].contains(&pool)).collect();
    groups.sort_by_key(|group| idle.groups[*group].len());
    groups
}

/// Gives a request of what its groups have `left` in a tick, at most the part `wants` of it, and says which part it got.
fn give(
    request: &Lacking,
    groups: &[usize],
    left: &mut [[f64; KINDS]],
    (overlap, length): (f64, f64),
    wants: f64,
) -> f64 {
    if overlap <= 0.0 {
        return 0.0;
    }
    // No faster than on an idle machine.
    let mut wants = if request.alone > 0.0 { wants.min(overlap / request.alone) } else { wants };
    let mut got = 0.0;
    for group in groups {
        let has = &mut left[*group];
        let mut part = wants;
        for (has, takes) in has.iter().zip(request.takes).filter(|(_, takes)| *takes > 0.0) {
            part = part.min(has * (overlap / length) / takes);
        }
        if part > 0.0 {
            has.iter_mut().zip(request.takes).for_each(|(has, takes)| *has = (*has - part * takes).max(0.0));
            (got, wants) = (got + part, wants - part);
        }
        if wants <= 0.0 {
            break;
        }
    }
    got
}
