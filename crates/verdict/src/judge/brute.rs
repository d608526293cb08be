//! Compares the judge with an exhaustive judge on tiny runs: whole seconds, and every request takes one
//! second of a CPU. In some runs a reload changes the guarantee.

use proptest::prelude::*;
use weirgate_config::Position;
use weirgate_experiment::{Experiment, Fate, Phase, Record, Reload};

use super::tests::{experiment, run};
use super::*;

const SECOND: u64 = 1_000_000_000;

/// Length of a run, in seconds.
const END: u64 = 6;

/// Arrival second of a request of class B, which has a guaranteed rate without a limit, and whether it was served.
type Tiny = (u64, bool);

/// Guaranteed rates of class B per second, 0 for none. The second rate applies from second `from` on.
#[derive(Clone, Copy, Debug)]
struct Promised {
    rates: [u8; 2],
    from: u64,
}

impl Promised {
    /// Guaranteed rate at this second.
    fn at(self, second: u64) -> i64 {
        i64::from(self.rates[usize::from(second >= self.from)])
    }

    /// Seconds of each phase.
    fn phases(self) -> Vec<Range<u64>> {
        let all = [0..self.from.min(END), self.from.min(END)..END];
        all.into_iter().filter(|phase| !phase.is_empty()).collect()
    }

    /// Windows of two seconds. A window in which the rate changes counts as two.
    fn windows(self) -> Vec<Range<u64>> {
        let cuts = |second: &u64| second.is_multiple_of(2) || *second == self.from && self.rates[0] != self.rates[1];
        let borders: Vec<u64> = (0..=END).filter(cuts).collect();
        borders.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }
}

/// Six seconds with one phase for each guarantee. A phase settles for two seconds, or is not judged.
fn tiny(promised: Promised, judged: bool) -> Experiment {
    let mut experiment = experiment();
    let promise = |class: &mut Class, rate: u8| {
        class.guarantee.throughput = (rate > 0).then_some(f64::from(rate));
        class.service_time = None;
    };
    promise(&mut experiment.site.policy.classes[1], promised.rates[0]);
    let phase = |of: &Range<u64>| Phase {
        name: format!("from {}", of.start),
        until: Duration::from_secs(of.end),
        judged,
        x: None,
    };
    experiment.phases = promised.phases().iter().map(phase).collect();
    experiment.settle = Duration::from_secs(2);
    if promised.from < END {
        let mut policy = experiment.site.policy.clone();
        promise(&mut policy.classes[1], promised.rates[1]);
        experiment.reloads =
            vec![Reload { at: Duration::from_secs(promised.from), policy, position: Position::new(1, 1) }];
    }
    experiment
}

fn play(requests: &[Tiny], idle: &[u8], promised: Promised, judged: bool) -> Verdict {
    let record = |(second, served): &Tiny| Record {
        traffic: 1,
        fate: if *served { Fate::Served } else { Fate::Shed },
        arrived: second * SECOND,
        ended: second * SECOND + if *served { SECOND / 2 } else { 0 },
        cpu: 1.0,
        ..Record::default()
    };
    let mut run = run(vec![requests.iter().map(record).collect()]);
    run.idle = Idle {
        groups: vec![vec![0]],
        ends: (1..=idle.len() as u64).map(|second| second * SECOND).collect(),
        seconds: idle.iter().map(|cpus| [f32::from(*cpus), 9.0, 9.0, f32::INFINITY]).collect(),
    };
    judge(&tiny(promised, judged), &run)
}

/// Whether each request is covered by a bucket that holds the tokens of a second and is filled every
/// second. With `pays`, a request that was served in time always takes its token, down to an equal amount of debt.
fn covered(requests: &[Tiny], promised: Promised, pays: bool) -> Vec<bool> {
    let (mut level, mut at) = (promised.at(0), 0);
    let mut covered = Vec::new();
    for (second, served) in requests {
        while at < *second {
            level = (level + promised.at(at)).min(promised.at(at));
            at += 1;
            level = level.clamp(-promised.at(at), promised.at(at));
        }
        let is_covered = level >= 1;
        match pays && *served {
            true => level = (level - 1).max(-promised.at(at)),
            false if is_covered => level -= 1,
            false => {}
        }
        covered.push(is_covered);
    }
    covered
}

/// Numbers of the requests that the second bucket covers and that were refused. A window counts at most the
/// requests that the first bucket covers (limited by the rate) minus the requests served.
fn lacking(requests: &[Tiny], promised: Promised) -> Vec<usize> {
    let (arrivals, served) = (covered(requests, promised, false), covered(requests, promised, true));
    let mut found = Vec::new();
    for window in promised.windows() {
        let rate = promised.at(window.start) as usize;
        let all: Vec<usize> = (0..requests.len()).filter(|index| window.contains(&requests[*index].0)).collect();
        let max = rate * (window.end - window.start) as usize;
        let owed = all.iter().filter(|index| arrivals[**index]).count().min(max);
        let got = all.iter().filter(|index| requests[**index].1).count();
        let refused = all.into_iter().filter(|index| !requests[*index].1 && served[*index]);
        found.extend(refused.take(owed.saturating_sub(got)));
    }
    found
}

/// Maximum number of requests that idle CPUs can serve. Tries all ways of giving each request nothing, its
/// own second or the next one. Without a limit a request has the second of the bucket and its own.
fn max(requests: &[Tiny], lacking: &[usize], idle: &mut Vec<u8>) -> usize {
    let Some((first, rest)) = lacking.split_first() else { return 0 };
    let mut best = max(requests, rest, idle);
    for second in [requests[*first].0, requests[*first].0 + 1].map(|second| second as usize) {
        if idle.get(second).is_some_and(|left| *left > 0) {
            idle[second] -= 1;
            best = best.max(1 + max(requests, rest, idle));
            idle[second] += 1;
        }
    }
    best
}

/// No change, another rate, or none.
fn promised() -> impl Strategy<Value = Promised> {
    (prop::array::uniform2(0..4_u8), 1..=END).prop_map(|(rates, from)| Promised { rates, from })
}

proptest! {
    #[test]
    fn tiny_runs_are_judged_as_by_looking_at_everything(
        requests in prop::collection::vec((0..END, any::<bool>()), 0..12),
        idle in prop::collection::vec(0..3_u8, END as usize),
        promised in promised(),
        judged in any::<bool>(),
    ) {
        let mut requests = requests;
        requests.sort_unstable_by_key(|(second, _)| *second);
        let verdict = play(&requests, &idle, promised, judged);
        let is_covered = covered(&requests, promised, false);
        let classes: Vec<&ClassVerdict> = verdict.phases.iter().map(|phase| &phase.classes[1]).collect();
        let found: u64 = classes.iter().map(|class| class.avoidable().count()).sum();
        prop_assert_eq!(found, max(&requests, &lacking(&requests, promised), &mut idle.clone()) as u64);
        for (phase, class) in promised.phases().into_iter().zip(&classes) {
            let arrived = |from: u64| {
                let all = requests.iter().zip(&is_covered).map(|((second, served), is)| (*second, *served, *is));
                all.filter(|(second, _, _)| (from..phase.end).contains(second)).collect::<Vec<_>>()
            };
            let owed = arrived(phase.start).iter().filter(|(_, _, is_covered)| *is_covered).count();
            prop_assert_eq!(class.avoidable().owed, owed as u64);
            // The floor of the judged seconds, in whole requests.
            let seconds = phase.end.saturating_sub(phase.start + 2);
            let judged = arrived(phase.start + 2);
            let owed = judged.iter().filter(|(_, _, is_covered)| *is_covered).count() as f64;
            let served = judged.iter().filter(|(_, served, _)| *served).count() as f64;
            let floor = class.part.floor.map(|floor| (floor.guaranteed_per_s, floor.owed_per_s, floor.ok));
            let rate = promised.at(phase.start);
            let per_s = if seconds > 0 { owed / seconds as f64 } else { 0.0 };
            prop_assert_eq!(floor, (rate > 0).then_some((rate as f64, per_s, served >= 0.99 * owed)));
        }
        // Only judged phases can break a run. Of so few requests, two refusals are more than one in a thousand.
        let Some(own) = verdict.avoidable.iter().find(|of| of.class == "B") else {
            prop_assert!(promised.phases().iter().all(|phase| promised.at(phase.start) == 0));
            return Ok(());
        };
        let counts = verdict.phases.iter().zip(&classes).filter(|(phase, _)| phase.is_judged() && phase.feasible);
        let counted: u64 = counts.map(|(_, class)| class.avoidable().count()).sum();
        prop_assert_eq!(own.whole.count(), counted);
        prop_assert!(judged || counted == 0);
        prop_assert_eq!(own.ok, counted <= 1);
        let avoidable = verdict.misses().filter(|miss| miss.kind == Kind::Avoidable).count();
        prop_assert_eq!(avoidable, usize::from(!own.ok));
    }
}
