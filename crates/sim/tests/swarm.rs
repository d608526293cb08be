//! The swarm: scenarios have the properties that they claim, and playing them violates nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use weirgate_experiment::{Arrivals, Experiment, FaultKind, Knot, RESOURCES, Source, TrafficClass, under_discipline};
use weirgate_sim::run;
use weirgate_sim::swarm::{
    Family, Lapse, MAX_OWED, Reading, Rotation, Swarm, assess, owed_share, scenario, scenario_of,
};
use weirgate_verdict::oracle::Cluster;
use weirgate_verdict::{Miss, judge};

#[test]
fn a_seed_names_a_scenario() {
    for seed in [0, 7, 1_000_003] {
        let [once, again] = [scenario(seed), scenario(seed)];
        assert_eq!(once.yaml, again.yaml);
        assert_eq!(format!("{:?}", once.experiment), format!("{:?}", again.experiment));
        assert_ne!(once.yaml, scenario(seed + Rotation::All.families().len() as u64).yaml);
    }
}

#[test]
fn scenarios_load_and_their_guarantees_fit() {
    let mut families = BTreeSet::new();
    let mut beyond = 0;
    for seed in 0..500 {
        let scenario = scenario(seed);
        families.insert(scenario.family);
        let experiment = &scenario.experiment;
        for (phase, it) in experiment.phases.iter().enumerate().filter(|(_, phase)| phase.judged) {
            let owed = owed_share(experiment, phase, reading(scenario.family));
            // The file's figures have three digits.
            assert!(owed <= MAX_OWED * 1.005, "seed {seed}: {owed} of the capacity is owed in {}", it.name);
            assert!(owed > 0.1, "seed {seed}: only {owed} of the capacity is owed in {}", it.name);
        }
        let offered: f64 = experiment.traffic.iter().map(|traffic| max(&traffic.source)).sum();
        let min = match scenario.family {
            // Requests of seconds to minutes, or only a worker or two.
            Family::LongServices => 0.5,
            Family::SmallClusters => 5.0,
            _ => 50.0,
        };
        assert!((min..=20_000.0).contains(&offered), "seed {seed}: {offered} requests/s");
        let guaranteed = |class: &TrafficClass| class.class(&experiment.site.policy).guarantee.throughput;
        let exceeds = experiment.traffic.iter().any(|t| guaranteed(&t.class).is_none_or(|rate| max(&t.source) > rate));
        beyond += usize::from(exceeds);
    }
    assert_eq!(families.len(), Rotation::All.families().len());
    assert!(beyond > 250, "only {beyond} scenarios go beyond a guarantee");
}

/// Returns the effect of declared service times on the owed work of a scenario.
fn reading(family: Family) -> Reading {
    if family.fits_at_true_cost() { Reading::TrueCost } else { Reading::Declared }
}

/// Returns the maximum requests per second of a source. Users count as if each thought for a second.
fn max(source: &Source) -> f64 {
    match source {
        Source::Open { rate: figure, .. } | Source::Users { users: figure, .. } => {
            figure.0.iter().map(|knot| knot.value).fold(0.0, f64::max)
        }
        Source::Trace(instants) => instants.len() as f64,
        // The swarm has no pages and no files.
        Source::Objects { .. } | Source::Part { .. } => 0.0,
    }
}

/// One scenario of every family, and some under the other discipline: guarantees may be missed, but nothing
/// is violated.
#[test]
fn a_swarm_breaks_nothing() {
    for (discipline, count) in [("weirgate", Rotation::All.families().len()), ("quorum", 4)] {
        let overrides = vec![under_discipline(discipline)];
        let swarm = Swarm { rotation: Rotation::All, first: 36, count: count as u64, overrides, threads: None };
        let mut told = 0;
        let tally = swarm
            .play(|outcome| {
                told += 1;
                assert_eq!(outcome.panic, None, "{discipline}, seed {}", outcome.seed);
                assert_eq!(outcome.violations.first(), None, "{discipline}, seed {}", outcome.seed);
            })
            .expect("the overrides are sound");
        assert_eq!((told, tally.families.len()), (count, count));
        assert!(tally.requests > 100_000 && tally.unsafe_seeds.is_empty());
    }
}

/// Scenarios with a page table under every discipline that uses it: nothing is violated. Where weights are
/// promised, turns come, parts follow the weights, and no resource is idle that a request waits for.
#[test]
fn resources_are_shared_by_rule() {
    for discipline in ["mqos", "mqos-drfq", "sqos", "weirgate"] {
        let overrides = vec![under_discipline(discipline)];
        let swarm = Swarm { rotation: Rotation::Only(Family::Resources), first: 0, count: 6, overrides, threads: None };
        let tally = swarm
            .play(|outcome| {
                assert_eq!(outcome.panic, None, "{discipline}, seed {}", outcome.seed);
                assert_eq!(outcome.violations.first(), None, "{discipline}, seed {}", outcome.seed);
                let promised = discipline != "weirgate";
                assert!(
                    !promised || outcome.misses.is_empty(),
                    "{discipline}, seed {}: {:?}",
                    outcome.seed,
                    outcome.misses
                );
            })
            .expect("the overrides are sound");
        assert!(tally.requests > 50_000, "{discipline} played {} requests", tally.requests);
    }
}

/// The rules can fail: a run is judged by other weights than those that it was played with.
#[test]
fn rules_about_resources_fail_where_they_are_broken() {
    let shares = |seed: u64| {
        let drfq = |weight: f64| {
            let overrides = [under_discipline("mqos-drfq")];
            let mut scenario = scenario_of(Family::Resources, seed, &overrides).expect("it is sound");
            let run = run(&scenario.experiment, seed, |_| ());
            scenario.experiment.site.policy.classes[0].weight *= weight;
            let verdict = judge(&scenario.experiment, &run);
            assess(&scenario, &run, &verdict).misses.iter().filter(|missed| missed.kind == Lapse::Shares).count()
        };
        (drfq(1.0), drfq(4.0), drfq(0.25))
    };
    let found: Vec<(usize, usize, usize)> = (5..9).map(shares).collect();
    assert!(found.iter().all(|(right, more, less)| *right == 0 && more + less > 0), "{found:?}");
}

/// The guaranteed load fits every resource of every set of pools, by the same flow computation as the
/// judge's.
#[test]
fn guarantees_of_the_family_resources_fit_every_resource() {
    for seed in 0..100 {
        let scenario = scenario_of(Family::Resources, seed, &[]).expect("it is sound");
        let experiment = &scenario.experiment;
        let policy = &experiment.site.policy;
        let mut work = vec![[0.0; RESOURCES]; policy.classes.len()];
        for (class, work) in work.iter_mut().enumerate() {
            let guaranteed = policy.classes[class].guarantee.throughput.unwrap_or(0.0);
            let routes = experiment.traffic.iter().filter(|traffic| traffic.class == TrafficClass::Class(class));
            // For any mix: the smallest use of each resource over the streams.
            let takes = routes.map(|traffic| {
                let demand = &traffic.demand[0];
                [demand.cpu.mean(), demand.disk.mean(), demand.link.mean()]
            });
            let min = takes.reduce(|a, b| std::array::from_fn(|resource| a[resource].min(b[resource])));
            *work = min.unwrap_or_default().map(|seconds| seconds * guaranteed);
        }
        let cluster = Cluster::live(experiment, Duration::ZERO, Duration::from_secs(1));
        assert!(cluster.carries(&work), "seed {seed}");
        assert!(policy.classes.iter().filter(|class| class.weight > 0.0).count() >= 3, "seed {seed}");
    }
}

/// Families in which the owed load is the classes' load, cut to their guarantee, and machines make no
/// difference.
const PLAIN: [Family; 8] = [
    Family::Surge,
    Family::Bursts,
    Family::IoAndCpu,
    Family::TightPercentiles,
    Family::HiddenServers,
    Family::UnequalCosts,
    Family::SharedPools,
    Family::ManyClasses,
];

/// The owed traffic alone needs no control: limits and floors are within reach.
#[test]
fn what_is_owed_can_be_held() {
    for family in PLAIN {
        let turn = Rotation::Classic.families().iter().position(|it| *it == family).expect("it takes turns") as u64;
        for seed in [turn, turn + 18] {
            assert_eq!(owed_alone_misses(family, seed), Vec::<String>::new());
        }
    }
}

/// The same for the everyday families, for any declaration, if failing machines are taken out.
#[test]
fn what_is_owed_in_everyday_life_can_be_held() {
    let mut missed = Vec::new();
    for family in Rotation::Everyday.families().into_iter().chain([Family::SharedDatabase]) {
        missed.extend((0..EVERYDAY_SEEDS).flat_map(|seed| owed_alone_misses(family, seed)));
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Number of seeds of each everyday family for which the owed traffic is played alone.
const EVERYDAY_SEEDS: u64 = 4;

/// Plays the owed traffic of a scenario alone, without any control, on the machines that work, and returns
/// the misses.
fn owed_alone_misses(family: Family, seed: u64) -> Vec<String> {
    let scenario = scenario_of(family, seed, &[under_discipline("none")]).expect("it is sound");
    let mut experiment = scenario.experiment;
    for fault in &mut experiment.faults {
        // A scheduler that knows everything sends nothing there.
        if matches!(fault.kind, FaultKind::Crash | FaultKind::FailFast(_)) {
            fault.kind = FaultKind::Removed;
        }
    }
    for traffic in 0..experiment.traffic.len() {
        keep_owed(&mut experiment, traffic, reading(family));
    }
    let verdict = judge(&experiment, &run(&experiment, seed, |_| ()));
    assert!(verdict.phases.iter().all(|phase| phase.feasible || !phase.judged), "{family}, seed {seed}");
    let told = |miss: Miss<'_>| {
        let part = &miss.class.part;
        let (class, phase, name) = (&miss.class.class, &miss.phase.name, scenario.family);
        format!("{name}, seed {seed}: {class} in {phase}: {:?}, {:?}", part.floor, part.ceiling)
    };
    verdict.misses().map(told).collect()
}

/// Cuts stream `index` to its owed part.
fn keep_owed(experiment: &mut Experiment, index: usize, reading: Reading) {
    let traffic = &experiment.traffic[index];
    let policy = &experiment.site.policy;
    let (class, keys) = (traffic.class.class(policy), traffic.class.keys());
    // The most popular key sends its guarantee, the n-th key the n-th part of it.
    let popular: f64 = (1..=keys).map(|rank| 1.0 / f64::from(rank)).sum();
    let guaranteed = class.guarantee.throughput.unwrap_or(0.0) * popular;
    let (normal, declared) = (traffic.demand[0].cpu.mean(), class.service_time);
    let costs: Vec<_> = traffic.demand.iter().map(|demand| (demand.at, demand.cpu.mean())).collect();
    // A class that is more expensive now is owed as many requests as the normal cost, or the declared one,
    // allows.
    let part = |at: Duration| {
        let cost = costs.iter().rfind(|(from, _)| *from <= at).map_or(normal, |(_, cost)| *cost);
        match (reading, declared) {
            (Reading::TrueCost, Some(declared)) => (declared.as_secs_f64().max(normal) / cost).min(1.0),
            _ => 1.0,
        }
    };
    let mut instants: Vec<Duration> = costs.iter().map(|(at, _)| *at).collect();
    let Source::Open { arrivals, rate } = &traffic.source else { panic!("the swarm's {index} has users") };
    instants.extend(rate.0.iter().map(|knot| knot.at));
    instants.sort_unstable();
    instants.dedup();
    let burst = if let Arrivals::Mmpp { burst, .. } = arrivals { *burst } else { 1.0 };
    let owed = |at: Duration| rate.at(at).min(0.95 * guaranteed * part(at) / burst);
    let knots: Vec<Knot> = instants.iter().map(|at| Knot { at: *at, over: Duration::ZERO, value: owed(*at) }).collect();
    let Source::Open { rate, .. } = &mut experiment.traffic[index].source else { return };
    rate.0 = knots;
}

#[test]
fn the_same_swarm_finds_the_same_on_any_number_of_threads() {
    let play = |threads| {
        let overrides = vec![under_discipline("quorum")];
        Swarm { rotation: Rotation::All, first: 1, count: 3, overrides, threads: Some(threads) }.play(|_| ()).unwrap()
    };
    let [alone, together] = [1, 3].map(play);
    assert_eq!(alone.to_string(), together.to_string());
    assert_eq!(alone.requests, together.requests);
}

#[test]
fn a_wrong_override_is_an_error_and_not_a_panic() {
    let overrides = vec![under_discipline("quorun")];
    let errors =
        Swarm { rotation: Rotation::All, first: 0, count: 2, overrides, threads: Some(1) }.play(|_| ()).unwrap_err();
    assert!(errors.to_string().contains("quorum"), "{errors}");
}
