//! What a request takes, over time.

use weirgate_config::{DemandFrom, Distribution};
use weirgate_emulator::random::Random;
use weirgate_emulator::station::Demand;

use crate::random::{Lot, Purpose, generator, whole};

/// An entry of an experiment, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    over: u64,
    cpu: Distribution,
    io: Distribution,
}

impl Entry {
    /// How far the change has gone at `at`, which is not before its begin.
    fn done(&self, at: u64) -> f64 {
        let passed = at.saturating_sub(self.at);
        if passed >= self.over { 1.0 } else { passed as f64 / self.over as f64 }
    }
}

/// The demands of one stream, in order of arrival.
#[derive(Debug)]
pub(crate) struct Demands {
    entries: Vec<Entry>,
    /// The last entry that is wholly in force; earlier ones are forgotten.
    base: usize,
    cpu: Option<Random>,
    io: Option<Random>,
}

impl Demands {
    /// Those of stream `index` of the run named by `seed`.
    pub(crate) fn new(entries: &[DemandFrom], seed: u64, index: usize) -> Demands {
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let entry = |e: &DemandFrom| Entry { at: nanos(e.at), over: nanos(e.over), cpu: e.cpu, io: e.io };
        let entries: Vec<Entry> = entries.iter().map(entry).collect();
        // What is fixed all the time needs no draws.
        let unless_fixed = |purpose, of: fn(&Entry) -> Distribution| {
            let is_fixed = entries.iter().all(|entry| matches!(of(entry), Distribution::Fixed(_)));
            (!is_fixed).then(|| generator(seed, purpose, index))
        };
        let (cpu, io) = (unless_fixed(Purpose::Cpu, |e| e.cpu), unless_fixed(Purpose::Io, |e| e.io));
        Demands { entries, base: 0, cpu, io }
    }

    /// What the next request takes, which arrives at `at` (nanoseconds, never falling).
    pub(crate) fn next(&mut self, at: u64) -> Demand {
        let draw = |random: &mut Option<Random>| random.as_mut().map_or(Lot::NONE, Lot::draw);
        let (cpu, io) = (draw(&mut self.cpu), draw(&mut self.io));
        self.at(at, cpu, io)
    }

    /// What these lots give at `at` (nanoseconds, never falling but by what a generator of load is late).
    pub(crate) fn at(&mut self, at: u64, cpu: Lot, io: Lot) -> Demand {
        let begun = |entry: &&Entry| entry.at <= at;
        let later = self.entries.iter().enumerate().skip(self.base + 1).take_while(|(_, entry)| begun(entry));
        if let Some((over, _)) = later.filter(|(_, entry)| entry.done(at) >= 1.0).last() {
            self.base = over;
        }
        let mut under_way = self.entries.iter().skip(self.base);
        let (mut cpu_nanos, mut io_nanos) = match under_way.next() {
            Some(base) => (cpu.nanos(&base.cpu), io.nanos(&base.io)),
            None => (0.0, 0.0),
        };
        for entry in under_way.take_while(begun) {
            let share = entry.done(at);
            cpu_nanos += (cpu.nanos(&entry.cpu) - cpu_nanos) * share;
            io_nanos += (io.nanos(&entry.io) - io_nanos) * share;
        }
        Demand { cpu: whole(cpu_nanos), io: whole(io_nanos) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weirgate_config::Distribution;

    const S: u64 = 1_000_000_000;

    fn entry(at: u64, over: u64, cpu_ms: u64) -> DemandFrom {
        let cpu = Distribution::Fixed(Duration::from_millis(cpu_ms));
        let io = Distribution::Exponential { mean: Duration::from_millis(5) };
        DemandFrom { at: Duration::from_secs(at), over: Duration::from_secs(over), cpu, io }
    }

    #[test]
    fn steps_and_ramps_lie_between_before_and_after() {
        let entries = [entry(0, 0, 8), entry(10, 20, 40), entry(60, 0, 10)];
        let mut demands = Demands::new(&entries, 1, 0);
        let cpu = [0, 9, 10, 15, 20, 30, 59, 60, 99].map(|at| demands.next(at * S).cpu / 1_000_000);
        assert_eq!(cpu, [8, 8, 8, 16, 24, 40, 40, 10, 10]);
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
