//! Demands of requests over time.

use weirgate_emulator::random::Random;
use weirgate_emulator::station::Demand;

use crate::random::{Lot, Purpose, generator, whole};
use crate::{DemandFrom, Distribution};

/// A demand entry of an experiment, with times in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    over: u64,
    /// Distribution of each of [`PARTS`].
    parts: [Distribution; PARTS.len()],
}

/// Parts of a demand, each with its own generator: CPU, I/O, disk, link, stream.
const PARTS: [Purpose; crate::PARTS] = [Purpose::Cpu, Purpose::Io, Purpose::Disk, Purpose::Link, Purpose::Stream];

/// One draw for each of [`PARTS`].
pub(crate) type Lots = [Lot; PARTS.len()];

impl Entry {
    /// Completed fraction of the change at `at`, which is not before its start.
    fn done(&self, at: u64) -> f64 {
        let passed = at.saturating_sub(self.at);
        if passed >= self.over { 1.0 } else { passed as f64 / self.over as f64 }
    }
}

/// Demands of one stream, in order of arrival.
#[derive(Debug)]
pub(crate) struct Demands {
    entries: Vec<Entry>,
    /// Index of the last entry that is fully in force. Earlier ones are ignored.
    base: usize,
    /// Generator of each part. `None` for a part that is always fixed and needs no draws.
    randoms: [Option<Random>; PARTS.len()],
}

impl Demands {
    /// The demands of stream `index` in the run named by `seed`.
    pub(crate) fn new(entries: &[DemandFrom], seed: u64, index: usize) -> Demands {
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let entry = |e: &DemandFrom| Entry {
            at: nanos(e.at),
            over: nanos(e.over),
            parts: [e.cpu, e.io, e.disk, e.link, e.stream],
        };
        let entries: Vec<Entry> = entries.iter().map(entry).collect();
        let randoms = std::array::from_fn(|part| {
            let is_fixed = entries.iter().all(|entry| matches!(entry.parts[part], Distribution::Fixed(_)));
            (!is_fixed).then(|| generator(seed, PARTS[part], index))
        });
        Demands { entries, base: 0, randoms }
    }

    /// Returns the demand of the next request, which arrives at `at` (nanoseconds, never decreasing).
    pub(crate) fn next(&mut self, at: u64) -> Demand {
        let lots = self.randoms.each_mut().map(|random| random.as_mut().map_or(Lot::NONE, Lot::draw));
        self.at(at, &lots)
    }

    /// Lots of a request with draws that come from `random` instead. Disk, link and stream, which few
    /// streams use, are drawn only where they vary.
    pub(crate) fn lots(&self, random: &mut Random, cpu: Lot, io: Lot) -> Lots {
        let [_, _, disk, link, stream] = &self.randoms;
        let [disk, link, stream] =
            [disk, link, stream].map(|own| own.as_ref().map_or(Lot::NONE, |_| Lot::draw(random)));
        [cpu, io, disk, link, stream]
    }

    /// Returns the demand that these lots give at `at`, in nanoseconds. `at` never decreases by more than
    /// the lateness of a load generator.
    pub(crate) fn at(&mut self, at: u64, lots: &Lots) -> Demand {
        let begun = |entry: &&Entry| entry.at <= at;
        let later = self.entries.iter().enumerate().skip(self.base + 1).take_while(|(_, entry)| begun(entry));
        if let Some((over, _)) = later.filter(|(_, entry)| entry.done(at) >= 1.0).last() {
            self.base = over;
        }
        let mut under_way = self.entries.iter().skip(self.base);
        let of = |entry: &Entry, part: usize| lots[part].nanos(&entry.parts[part]);
        let mut nanos = [0.0; PARTS.len()];
        if let Some(base) = under_way.next() {
            nanos = std::array::from_fn(|part| of(base, part));
        }
        for entry in under_way.take_while(begun) {
            let share = entry.done(at);
            for (part, nanos) in nanos.iter_mut().enumerate() {
                *nanos += (of(entry, part) - *nanos) * share;
            }
        }
        let [cpu, io, disk, link, stream] = nanos.map(whole);
        Demand { cpu, io, disk, link, stream }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Distribution;
    use std::time::Duration;

    const S: u64 = 1_000_000_000;

    fn entry(at: u64, over: u64, cpu_ms: u64) -> DemandFrom {
        let cpu = Distribution::Fixed(Duration::from_millis(cpu_ms));
        let io = Distribution::Exponential { mean: Duration::from_millis(5) };
        let [disk, link] = [Duration::from_micros(at), Duration::ZERO].map(Distribution::Fixed);
        let stream = link;
        DemandFrom { at: Duration::from_secs(at), over: Duration::from_secs(over), cpu, io, disk, link, stream }
    }

    #[test]
    fn steps_and_ramps_lie_between_before_and_after() {
        let entries = [entry(0, 0, 8), entry(10, 20, 40), entry(60, 0, 10)];
        let mut demands = Demands::new(&entries, 1, 0);
        let cpu = [0, 9, 10, 15, 20, 30, 59, 60, 99].map(|at| demands.next(at * S).cpu / 1_000_000);
        assert_eq!(cpu, [8, 8, 8, 16, 24, 40, 40, 10, 10]);
        let mut demands = Demands::new(&entries, 1, 0);
        let disk = [0, 9, 20, 30, 60].map(|at| demands.next(at * S).disk / 1_000);
        assert_eq!(disk, [0, 0, 5, 10, 60]);
    }

    #[test]
    fn a_change_of_the_distribution_does_not_shift_later_draws() {
        let (plain, changed) = ([entry(0, 0, 8)], [entry(0, 0, 8), entry(1, 0, 9)]);
        let io = |entries: &[DemandFrom]| {
            let mut demands = Demands::new(entries, 5, 0);
            (0..10).map(|n| demands.next(n * S).io).collect::<Vec<_>>()
        };
        assert_eq!(io(&plain), io(&changed));
    }
}
