//! The judge against a judge that looks at everything: tiny runs, whole seconds, every request one second of a CPU.

use proptest::prelude::*;
use weirgate_config::{Experiment, Phase};

use super::tests::{experiment, run};
use super::*;
use crate::run::{Fate, Record};

const SECOND: u64 = 1_000_000_000;

/// What became of a request that arrived at this second of class B, which is promised 2/s without a limit.
type Tiny = (u64, bool);

/// Six seconds in one phase that settles for two, or is not to be judged.
fn tiny(judged: bool) -> Experiment {
    let mut experiment = experiment();
    experiment.site.policy.classes[1].guarantee.throughput = Some(2.0);
    experiment.site.policy.classes[1].service_time = None;
    let phase = |name: &str, until| Phase { name: name.into(), until: Duration::from_secs(until), judged, x: None };
    experiment.phases = vec![phase("all", 6)];
    experiment.settle = Duration::from_secs(2);
    experiment
}

fn play(requests: &[Tiny], idle: &[u8], judged: bool) -> Verdict {
    let record = |(second, served): &Tiny| Record {
        traffic: 1,
        fate: if *served { Fate::Served } else { Fate::Shed },
        arrived: second * SECOND,
        released: 0,
        ended: second * SECOND + if *served { SECOND / 2 } else { 0 },
        cpu: 1.0,
        io: 0.0,
        disk: 0.0,
        link: 0.0,
        page: None,
    };
    let mut run = run(vec![requests.iter().map(record).collect()]);
    run.idle = Idle {
        groups: vec![vec![0]],
        ends: (1..=idle.len() as u64).map(|second| second * SECOND).collect(),
        seconds: idle.iter().map(|cpus| [f32::from(*cpus), 9.0, 9.0, f32::INFINITY]).collect(),
    };
    judge(&tiny(judged), &run)
}

/// Which requests a bucket covers that holds two tokens and gets two a second; of those that were served in time
/// (`pays`) it takes them in any case, down to two of debt.
fn covered(requests: &[Tiny], pays: bool) -> Vec<bool> {
    let (mut level, mut at) = (2_i64, 0);
    let mut covered = Vec::new();
    for (second, served) in requests {
        level = (level + 2 * (second - at) as i64).min(2);
        at = *second;
        let is_covered = level >= 1;
        match pays && *served {
            true => level = (level - 1).max(-2),
            false if is_covered => level -= 1,
            false => {}
        }
        covered.push(is_covered);
    }
    covered
}

/// Numbers of the requests that were owed and refused: by the second bucket, and in windows of two seconds no more than
/// were served fewer than the first bucket covers, of which four a window count.
fn lacking(requests: &[Tiny]) -> Vec<usize> {
    let (arrivals, served) = (covered(requests, false), covered(requests, true));
    let mut found = Vec::new();
    for window in 0..3 {
        let within = |index: &usize| requests[*index].0 / 2 == window;
        let all: Vec<usize> = (0..requests.len()).filter(within).collect();
        let owed = all.iter().filter(|index| arrivals[**index]).count().min(4);
        let got = all.iter().filter(|index| requests[**index].1).count();
        let refused = all.into_iter().filter(|index| !requests[*index].1 && served[*index]);
        found.extend(refused.take(owed.saturating_sub(got)));
    }
    found
}

/// The most requests that idle CPUs can serve: all ways of giving each nothing, its own second or the next. Without a
/// limit a request has the second of the bucket and its own.
fn most(requests: &[Tiny], lacking: &[usize], idle: &mut Vec<u8>) -> usize {
    let Some((first, rest)) = lacking.split_first() else { return 0 };
    let mut best = most(requests, rest, idle);
    for second in [requests[*first].0, requests[*first].0 + 1].map(|second| second as usize) {
        if idle.get(second).is_some_and(|left| *left > 0) {
            idle[second] -= 1;
            best = best.max(1 + most(requests, rest, idle));
            idle[second] += 1;
        }
    }
    best
}

proptest! {
    #[test]
    fn tiny_runs_are_judged_as_by_looking_at_everything(
        requests in prop::collection::vec((0..6_u64, any::<bool>()), 0..12),
        idle in prop::collection::vec(0..3_u8, 6),
        judged in any::<bool>(),
    ) {
        let mut requests = requests;
        requests.sort_unstable_by_key(|(second, _)| *second);
        let verdict = play(&requests, &idle, judged);
        let class = &verdict.phases[0].classes[1];
        let owed = covered(&requests, false).into_iter().filter(|is| *is).count();
        prop_assert_eq!(class.avoidable().owed, owed as u64);
        let found = most(&requests, &lacking(&requests), &mut idle.clone());
        prop_assert_eq!(class.avoidable().count(), found as u64);
        // Only what is to be judged breaks a run, and the second refusal of so few is more than one in a thousand.
        let own = verdict.avoidable.iter().find(|of| of.class == "B").expect("B is promised a rate");
        let counts = judged && verdict.phases[0].feasible;
        prop_assert_eq!(own.whole.count(), if counts { found as u64 } else { 0 });
        prop_assert_eq!(own.ok, !counts || found <= 1);
        let avoidable = verdict.misses().filter(|miss| miss.kind == Kind::Avoidable).count();
        prop_assert_eq!(avoidable, usize::from(!own.ok));
        // The floor of the judged four seconds, in whole requests.
        let judged = requests.iter().zip(covered(&requests, false)).filter(|((second, _), _)| *second >= 2);
        let (owed, arrived) = judged.fold((0.0, 0.0), |(owed, arrived), ((_, served), is_covered)| {
            (owed + f64::from(u8::from(is_covered)), arrived + f64::from(u8::from(*served)))
        });
        let floor = class.part.floor.expect("a floor");
        prop_assert_eq!((floor.owed_per_s, floor.ok), (owed / 4.0, arrived >= 0.99 * owed));
    }
}
