//! Avoidable refusals: owed requests that were refused or late while machines that could have served them idled.
//!
//! This check uses an oracle's knowledge: it knows the work of every request and the idle time of every
//! machine ([`Idle`]), and gives idle seconds to such requests after the fact. A request is *avoidable* if
//! idle seconds between its arrival and its limit would have served it. Each idle second is given once.
//! Requests are taken in the order in which their limits end, and each takes the earliest idle seconds that
//! it can use. A request that does not get all that it needs gives back the seconds it took. Where all
//! requests need the same, this serves the maximum number (Glover, *Maximum Matching in a Convex Bipartite
//! Graph*, 1967). Where they differ it may serve fewer than the maximum, and never more.
//!
//! A request progresses in proportion through everything that it needs (CPU, disk, link, a worker), and no
//! faster than on an idle machine: a request of 400 ms is never served within 300. Idle seconds of a tick
//! are spread evenly over it, and those of a group of machines are one sum. A request may use a little of
//! several machines, so this is a bound and not a schedule.

use weirgate_experiment::{Idle, KINDS};

/// Part of a request that may be lost in the rounding of thousands of additions.
const ROUNDING: f64 = 1e-6;

/// A request that was owed and not served in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lacking {
    /// Pool of its class.
    pub(crate) pool: usize,
    /// Its arrival and the last instant at which it is in time, in nanoseconds from the start.
    pub(crate) time: (u64, u64),
    /// Its work, in seconds of a nominal CPU, a disk, a link and a worker.
    pub(crate) takes: [f64; KINDS],
    /// Seconds that it takes on an idle machine.
    pub(crate) alone: f64,
}

/// Idle seconds that have not been given to any request.
struct Left<'a> {
    idle: &'a Idle,
    /// Seconds, in the order of [`Idle::seconds`].
    seconds: Vec<[f64; KINDS]>,
    /// Groups of each pool, first those that serve the fewest other pools, because their idle time is of
    /// use to the fewest.
    reach: Vec<Vec<usize>>,
}

/// Whether idle machines could have served each of `requests`.
pub(crate) fn avoidable(idle: &Idle, requests: &[Lacking]) -> Vec<bool> {
    let pools = idle.groups.iter().flatten().max().map_or(0, |max| max + 1);
    let reach = |pool: usize| {
        let mut groups: Vec<usize> = (0..idle.groups.len()).filter(|of| idle.groups[*of].contains(&pool)).collect();
        groups.sort_by_key(|group| idle.groups[*group].len());
        groups
    };
    let mut left = Left {
        idle,
        seconds: idle.seconds.iter().map(|seconds| seconds.map(f64::from)).collect(),
        reach: (0..pools).map(reach).collect(),
    };
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|index| (requests[*index].time.1, requests[*index].time.0));
    let mut served = vec![false; requests.len()];
    order.into_iter().for_each(|index| served[index] = left.serve(&requests[index]));
    served
}

impl Left<'_> {
    /// Gives a request all that it needs, or nothing.
    fn serve(&mut self, request: &Lacking) -> bool {
        let Some(groups) = self.reach.get(request.pool).filter(|groups| !groups.is_empty()).cloned() else {
            return false;
        };
        let ends = &self.idle.ends;
        let first = ends.partition_point(|end| *end <= request.time.0);
        let mut given: Vec<(usize, f64)> = Vec::new();
        let mut wants = 1.0;
        for (tick, end) in ends.iter().enumerate().skip(first) {
            let start = tick.checked_sub(1).map_or(0, |before| ends[before]);
            let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
            let rest = seconds(request.time.0.max(start), request.time.1);
            if wants <= ROUNDING || wants * request.alone > rest + 1e-9 {
                break;
            }
            let overlap = seconds(request.time.0.max(start), request.time.1.min(*end));
            // No faster than on an idle machine.
            let mut max = if request.alone > 0.0 { wants.min(overlap / request.alone) } else { wants };
            for group in &groups {
                let place = tick * self.idle.groups.len() + group;
                let part = give(&mut self.seconds[place], request, max, overlap / seconds(start, *end));
                if part > 0.0 {
                    given.push((place, part));
                    (max, wants) = (max - part, wants - part);
                }
            }
        }
        if wants <= ROUNDING {
            return true;
        }
        for (place, part) in given {
            self.seconds[place].iter_mut().zip(request.takes).for_each(|(has, takes)| *has += part * takes);
        }
        false
    }
}

/// Gives a request at most the fraction `max` of its work, from the share `share` of the available time.
/// Returns the fraction given.
fn give(has: &mut [f64; KINDS], request: &Lacking, max: f64, share: f64) -> f64 {
    let taken = has.iter().zip(request.takes).filter(|(_, takes)| *takes > 0.0);
    let part = taken.fold(max, |part, (has, takes)| part.min(has * share / takes));
    if part > 0.0 {
        has.iter_mut().zip(request.takes).for_each(|(has, takes)| *has = (*has - part * takes).max(0.0));
    }
    part
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weirgate_reserves::flow::Network;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Ticks of 100 ms with the given seconds of CPUs in each of the groups. Everything else is unlimited.
    fn idle(groups: &[&[usize]], cpu: &[&[f32]]) -> Idle {
        let tick = |cpu: &&[f32]| cpu.iter().map(|cpu| [*cpu, 9e9, 9e9, f32::INFINITY]).collect::<Vec<_>>();
        Idle {
            groups: groups.iter().map(|pools| pools.to_vec()).collect(),
            ends: (1..=cpu.len() as u64).map(|tick| tick * 100 * MS).collect(),
            seconds: cpu.iter().flat_map(tick).collect(),
        }
    }

    fn request(time: (u64, u64), cpu: f64) -> Lacking {
        Lacking { pool: 0, time: (time.0 * MS, time.1 * MS), takes: [cpu, 0.0, 0.0, cpu], alone: cpu }
    }

    #[test]
    fn an_idle_second_is_given_once_and_only_in_time() {
        let idle = idle(&[&[0]], &[&[0.1], &[0.0], &[0.05]]);
        let requests = [(0, 100), (0, 200), (100, 200), (150, 300), (250, 300)].map(|time| request(time, 0.04));
        // 100 ms are enough for two requests, and half of the third tick has only 25 ms.
        assert_eq!(avoidable(&idle, &requests), [true, true, false, true, false]);
    }

    #[test]
    fn a_request_takes_as_long_as_on_an_idle_machine() {
        let idle = idle(&[&[0]], &[[16.0].as_slice(); 4]);
        let requests =
            [request((0, 300), 0.4), request((0, 400), 0.4), request((50, 250), 0.2), request((50, 249), 0.2)];
        assert_eq!(avoidable(&idle, &requests), [false, true, true, false]);
        // Waiting in service counts as well, and needs a worker.
        let waits = Lacking { takes: [0.01, 0.0, 0.0, 0.3], alone: 0.3, ..request((0, 290), 0.0) };
        let in_time = Lacking { time: (0, 300 * MS), ..waits };
        assert_eq!(avoidable(&idle, &[waits, in_time]), [false, true]);
        let mut full = idle.clone();
        full.seconds[1][3] = 0.0;
        assert_eq!(avoidable(&full, &[in_time]), [false]);
    }

    #[test]
    fn machines_of_other_pools_are_of_no_use_and_shared_ones_are_kept_for_others() {
        let idle = idle(&[&[0, 1], &[0], &[2]], &[&[0.04, 0.04, 0.04]]);
        let of = |pool| Lacking { pool, ..request((0, 100), 0.04) };
        assert_eq!(avoidable(&idle, &[of(0), of(1), of(1), of(2), of(3)]), [true, true, false, true, false]);
        assert_eq!(avoidable(&Idle::default(), &[of(0)]), [false]);
    }

    /// Maximum number of requests that whole slots of ticks can serve, by augmenting paths (Berge).
    fn matching(slots: &[u32], windows: &[(usize, usize)]) -> usize {
        fn place(
            request: usize,
            windows: &[(usize, usize)],
            owner: &mut [Option<usize>],
            seen: &mut [bool],
            of: &[usize],
        ) -> bool {
            for slot in 0..owner.len() {
                let (from, to) = windows[request];
                if seen[slot] || !(from..to).contains(&of[slot]) {
                    continue;
                }
                seen[slot] = true;
                if owner[slot].is_none_or(|other| place(other, windows, owner, seen, of)) {
                    owner[slot] = Some(request);
                    return true;
                }
            }
            false
        }
        let of: Vec<usize> = slots.iter().zip(0..).flat_map(|(n, tick)| (0..*n).map(move |_| tick)).collect();
        let mut owner = vec![None; of.len()];
        (0..windows.len())
            .filter(|request| place(*request, windows, &mut owner, &mut vec![false; of.len()], &of))
            .count()
    }

    /// Whether all of these could be served if parts of them were spread at will, by a maximum flow.
    fn fits(idle: &Idle, requests: &[Lacking]) -> bool {
        let (ticks, count) = (idle.ends.len(), requests.len());
        let unit = |part: f64| (part * 1e6).ceil() as u64;
        let mut network = Network::new(count + ticks + 2);
        let (source, sink) = (count + ticks, count + ticks + 1);
        for (index, request) in requests.iter().enumerate() {
            network.edge(source, index, (request.takes[0] * 1e6) as u64);
            for (tick, end) in idle.ends.iter().enumerate() {
                let start = end - 100 * MS;
                let overlap = request.time.1.min(*end).saturating_sub(request.time.0.max(start)) as f64 / 1e9;
                let cpu = f64::from(idle.seconds[tick][0]);
                network.edge(index, count + tick, unit(overlap.min(cpu * overlap / 0.1)));
            }
        }
        for tick in 0..ticks {
            network.edge(count + tick, sink, unit(f64::from(idle.seconds[tick][0])));
        }
        network.maximum(source, sink) >= requests.iter().map(|r| (r.takes[0] * 1e6) as u64).sum::<u64>()
    }

    proptest! {
        /// If each request takes a whole slot, the result is exactly the size of the largest matching.
        #[test]
        fn as_many_as_the_largest_matching(
            slots in prop::collection::vec(0..3_u32, 1..7),
            windows in prop::collection::vec((0..7_usize, 1..5_usize), 0..9),
        ) {
            let windows: Vec<(usize, usize)> = windows.into_iter().map(|(from, long)| (from, from + long)).collect();
            let cpu: Vec<[f32; 1]> = slots.iter().map(|n| [*n as f32 * 0.1]).collect();
            let idle = idle(&[&[0]], &cpu.iter().map(|cpu| cpu.as_slice()).collect::<Vec<_>>());
            let of = |(from, to): &(usize, usize)| request((*from as u64 * 100, *to as u64 * 100), 0.1);
            let requests: Vec<Lacking> = windows.iter().map(of).collect();
            let served = avoidable(&idle, &requests).into_iter().filter(|served| *served).count();
            prop_assert_eq!(served, matching(&slots, &windows));
        }

        /// For requests of any size, all avoidable ones fit together. If none is avoidable, none of the
        /// requests would fit even alone.
        #[test]
        fn never_more_than_fit(
            cpu in prop::collection::vec(0.0..0.3_f32, 1..7),
            requests in prop::collection::vec((0..600_u64, 1..400_u64, 0.001..0.2_f64), 0..9),
        ) {
            let cpu: Vec<[f32; 1]> = cpu.into_iter().map(|cpu| [cpu]).collect();
            let idle = idle(&[&[0]], &cpu.iter().map(|cpu| cpu.as_slice()).collect::<Vec<_>>());
            let of = |(from, long, cpu): &(u64, u64, f64)| request((*from, from + long), *cpu);
            let requests: Vec<Lacking> = requests.iter().map(of).collect();
            let served = avoidable(&idle, &requests);
            let is = |wanted: bool| requests.iter().zip(&served).filter(move |(_, is)| **is == wanted).map(|(r, _)| *r);
            let fitting: Vec<Lacking> = is(true).collect();
            prop_assert!(fits(&idle, &fitting), "{fitting:?}");
            if fitting.is_empty() {
                let alone = |request: Lacking| [Lacking { takes: request.takes.map(|takes| takes * 1.001), ..request }];
                let none = is(false).all(|request| !fits(&idle, &alone(request)));
                prop_assert!(none);
            }
        }
    }
}
