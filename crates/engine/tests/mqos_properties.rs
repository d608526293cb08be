//! mQoS: properties that hold for any sequence. Resources are conserved, no class starves, and shares follow
//! the weights.

#[path = "support/mod.rs"]
mod support;

#[path = "support/resources.rs"]
mod resources;

use std::time::Duration;

use resources::{Driver, KINDS, Site, arrival, drfq, node_seconds};
use support::Random;
use weirgate_engine::*;

fn disciplines() -> [Discipline; 4] {
    let only = Availability { only: Some(1), ..Availability::default() };
    let one = Discipline { load_control: LoadControl::ResourceAvailability(only), ..drfq() };
    [Discipline::mqos(), drfq(), Discipline::sqos(0), one]
}

/// Returns a random cost: mostly small, sometimes most of a node, sometimes nothing of a resource.
fn any_demand(random: &mut Random) -> Demand {
    let share = |random: &mut Random| match random.below(8) {
        0 => 0.0,
        1 => random.unit(),
        _ => random.unit() * 0.1,
    };
    Demand::of_shares(&[share(random), share(random), share(random)])
}

/// Answers, failures with and without retries, clients that leave at any time, nodes that come and go, new
/// policies: every cost taken is given back exactly, and never more is taken than there is.
#[test]
fn what_is_taken_is_given_back_whatever_becomes_of_a_request() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let nodes = vec![1.0, 2.0, 0.5];
        let site = Site { nodes: nodes.clone(), ..Site::default() };
        let discipline = disciplines()[seed as usize % 4].clone();
        let managed = |resource: usize| match discipline.load_control {
            LoadControl::ResourceAvailability(Availability { only: Some(only), .. }) => only == resource,
            _ => true,
        };
        let mut driver = Driver::new(site.engine(discipline.clone()));
        for _ in 0..3_000 {
            driver.now = driver.now + Duration::from_micros(random.below(2_000));
            match random.below(12) {
                0..=5 => {
                    driver.arrive(random.below(3) as u32, any_demand(&mut random));
                }
                6 if !driver.waiting.is_empty() => driver.leave(random.below(driver.waiting.len() as u64) as usize),
                7 => {
                    let node = NodeId(random.below(3) as u32);
                    let event = if random.below(2) == 0 { NodeEvent::Down(node) } else { NodeEvent::Up(node) };
                    driver.engine.node(driver.now, event);
                }
                8 => driver.engine.reconfigure(driver.now, site.policy(discipline.clone())).expect("a valid policy"),
                _ if !driver.in_flight.is_empty() => {
                    let outcome = match random.below(6) {
                        0 => Outcome::Reset,
                        1 => Outcome::Failed { retryable: true },
                        2 => Outcome::Failed { retryable: false },
                        3 => Outcome::LastByte { status: 503 },
                        4 => Outcome::Upgraded,
                        _ => Outcome::LastByte { status: 200 },
                    };
                    driver.end(random.below(driver.in_flight.len() as u64) as usize, outcome);
                }
                _ => {}
            }
            driver.drain();
            check(&driver, &nodes, managed);
        }
        for node in 0..3 {
            driver.engine.node(driver.now, NodeEvent::Up(NodeId(node)));
        }
        while !driver.in_flight.is_empty() {
            driver.end(0, Outcome::LastByte { status: 200 });
            driver.drain();
        }
        check(&driver, &nodes, managed);
        let snapshot = driver.engine.snapshot(driver.now);
        assert!(snapshot.resources.iter().all(|resource| resource.available == 1.0), "seed {seed}: {snapshot:?}");
        assert_eq!(snapshot.waiting, 0, "seed {seed}: what fits a node is served in the end");
    }
}

/// Like [`Driver::check`], for the managed resources only.
fn check(driver: &Driver, weights: &[f64], managed: impl Fn(usize) -> bool) {
    let snapshot = driver.engine.snapshot(driver.now);
    for (node, weight) in weights.iter().enumerate() {
        for resource in 0..3 {
            let full = (weight * 1e9).round();
            let taken = if managed(resource) { driver.taken(node as u32, resource) as f64 } else { 0.0 };
            assert!(taken <= full, "node {node} is overdrawn: {taken} of {full}");
            assert_eq!(snapshot.nodes[node].available[resource], (full - taken) / full, "node {node}");
        }
    }
}

/// A site on which five requests of each kind of these classes wait.
fn crowd(discipline: Discipline, weights: &[f64], classes: &[u32]) -> Driver {
    let mut driver = Driver::new(Site { weights: weights.to_vec(), ..Site::default() }.engine(discipline));
    classes.iter().for_each(|class| KINDS.iter().for_each(|kind| driver.fill(*class, 5, kind)));
    driver.drain();
    driver
}

/// Runs a saturated site in which every released request is replaced by an equal one, until `enough` returns
/// true for a release. Requests in flight end in random order.
fn play(driver: &mut Driver, random: &mut Random, mut enough: impl FnMut(u32, Demand) -> bool) {
    loop {
        for (class, demand) in driver.turn(|n| random.below(n)) {
            assert!(driver.arrive(class, demand));
            if enough(class, demand) {
                return;
            }
        }
    }
}

/// Returns the class and cost of the requests that a saturated site releases in `until` node-seconds.
fn saturated(discipline: Discipline, weights: &[f64], until: f64, seed: u64) -> Vec<(u32, Demand)> {
    let classes: Vec<u32> = (0..weights.len() as u32).collect();
    let (mut all, mut done) = (Vec::new(), 0.0);
    play(&mut crowd(discipline, weights, &classes), &mut Random(seed), |class, demand| {
        all.push((class, demand));
        done += node_seconds(demand);
        done >= until
    });
    all
}

/// Returns each class's part of the released costs, per resource.
fn parts(released: &[(u32, Demand)], classes: usize) -> Vec<[f64; 3]> {
    let mut used = vec![[0.0; 3]; classes];
    for (class, demand) in released {
        (0..3).for_each(|resource| used[*class as usize][resource] += demand.share(resource));
    }
    let total: Vec<f64> = (0..3).map(|resource| used.iter().map(|of| of[resource]).sum()).collect();
    used.iter().map(|of| std::array::from_fn(|resource| of[resource] / total[resource])).collect()
}

/// The published tolerance is 5 % of 6:3:1 on every resource. Our own rule keeps to 2 %.
#[test]
fn every_resource_is_shared_by_weight() {
    for (discipline, max) in [(Discipline::mqos(), 0.05), (drfq(), 0.02)] {
        for seed in 0..3 {
            let released = saturated(discipline.clone(), &[6.0, 3.0, 1.0], 1000.0, seed);
            for (class, parts) in parts(&released, 3).iter().enumerate() {
                let due = [0.6, 0.3, 0.1][class];
                for part in parts {
                    let off = (part / due - 1.0).abs();
                    assert!(off <= max, "{:?}: class {class} has {part:.4}, not {due}", discipline.precedence);
                }
            }
        }
    }
}

/// Measures the most work between two releases of the smallest class.
#[test]
fn turns_are_shorter_under_drfq() {
    let longest = |discipline: Discipline| {
        let (mut longest, mut since) = (0.0_f64, 0.0);
        for (class, demand) in saturated(discipline, &[6.0, 3.0, 1.0], 200.0, 5) {
            since += node_seconds(demand);
            if class == 2 {
                longest = longest.max(since);
                since = 0.0;
            }
        }
        longest
    };
    let (rounds, times) = (longest(Discipline::mqos()), longest(drfq()));
    println!("longest gap of the smallest class: mdrr {rounds:.2}, drfq {times:.2} node-seconds");
    assert!(times <= 0.75 * rounds, "mdrr {rounds}, drfq {times}");
}

/// Under `drfq`, a request that needs nearly all of a node competes with an endless stream of small ones of
/// its own class and of others. At most four horizons of work are released between its arrival at the head of
/// its sub-queue and its release.
#[test]
fn a_large_request_is_not_overtaken_for_ever_under_drfq() {
    let mut longest = 0.0_f64;
    for seed in 0..20 {
        let mut driver = crowd(drfq(), &[6.0, 3.0, 1.0], &[0, 1, 2]);
        let mut random = Random(seed);
        let class = random.below(3) as u32;
        let shares = [0.95, 0.5, 0.9].map(|max| max * (0.5 + 0.5 * random.unit()));
        // It waits behind the other requests of its sub-queue.
        assert!(driver.arrive(class, Demand::of_shares(&shares)));
        let large = driver.requests.len() as u64 - 1;
        driver.released.clear();
        let (mut head, mut before) = (false, 0.0);
        loop {
            driver.end(random.below(driver.in_flight.len() as u64) as usize, Outcome::LastByte { status: 200 });
            driver.drain();
            let released = std::mem::take(&mut driver.released);
            if released.contains(&large) {
                break;
            }
            for token in released {
                let (class, demand) = driver.requests[token as usize];
                before += if head { node_seconds(demand) } else { 0.0 };
                assert!(driver.arrive(class, demand));
            }
            let line = |token: u64| driver.requests[token as usize].1.tendency();
            let same = |token: u64| driver.requests[token as usize].0 == class && line(token) == line(large);
            head |= driver.waiting.iter().map(|(token, _)| *token).find(|token| same(*token)) == Some(large);
            assert!(before < 100.0, "seed {seed}: it is never released");
        }
        // This covers the work released before resources are reserved for it (two horizons), its class's
        // turn, and the work in flight.
        longest = longest.max(before);
        assert!(before <= 4.0, "seed {seed}: {before}");
    }
    println!("at most {longest:.2} node-seconds before a large request");
}

/// Under `mdrr` a request waits for at most the number of rounds in which its class earns its cost, plus one.
/// In a round another class uses at most its quantum and its remaining credit.
#[test]
fn a_request_waits_as_many_rounds_as_it_costs_under_mdrr() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let weights = [6.0, 3.0, 1.0];
        let mut driver = crowd(Discipline::mqos(), &weights, &[0, 1]);
        let shares = [0.05 + 0.9 * random.unit(), 0.05, 0.05];
        assert!(driver.arrive(2, Demand::of_shares(&shares)));
        let alone = driver.requests.len() as u64 - 1;
        let rounds = |driver: &Driver| driver.engine.snapshot(driver.now).rounds[0].begun;
        let begun = rounds(&driver);
        driver.released.clear();
        let mut steps = 0;
        loop {
            driver.end(random.below(driver.in_flight.len() as u64) as usize, Outcome::LastByte { status: 200 });
            driver.drain();
            let released = std::mem::take(&mut driver.released);
            if released.contains(&alone) {
                break;
            }
            for token in released {
                let (class, demand) = driver.requests[token as usize];
                assert!(driver.arrive(class, demand));
            }
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: it is never released");
        }
        let quantum = weights[2] / weights.iter().sum::<f64>();
        let max = (shares[0] / quantum).ceil() as u64 + 1;
        let waited = rounds(&driver) - begun;
        assert!(waited <= max, "seed {seed}: {waited} rounds for {} of {quantum}", shares[0]);
    }
}

/// The share of an idle class goes to the other classes, in proportion to their weights.
#[test]
fn what_an_idle_class_leaves_goes_to_the_others_by_weight() {
    for discipline in [Discipline::mqos(), drfq()] {
        let mut driver = crowd(discipline, &[6.0, 3.0, 1.0], &[0, 1]);
        let mut random = Random(9);
        let mut all = Vec::new();
        for _ in 0..6_000 {
            for (class, demand) in driver.turn(|n| random.below(n)) {
                all.push((class, demand));
                assert!(driver.arrive(class, demand));
            }
        }
        for part in parts(&all, 2)[0] {
            assert!((part / (2.0 / 3.0) - 1.0).abs() < 0.03, "{part}");
        }
    }
}

/// Classes with different requests: where they compete, their dominant shares follow the weights. Using a
/// resource that no other class waits for does not count against a class.
#[test]
fn dominant_shares_follow_the_weights() {
    let site = Site { weights: vec![2.0, 1.0], resources: 2, ..Site::default() };
    let run = |demands: [[f64; 2]; 2]| {
        let mut driver = Driver::new(site.engine(drfq()));
        let mut random = Random(3);
        for class in [0, 1] {
            (0..60).for_each(|_| assert!(driver.arrive(class as u32, Demand::of_shares(&demands[class]))));
        }
        driver.drain();
        let mut had = [0.0; 2];
        for _ in 0..20_000 {
            for (class, demand) in driver.turn(|n| random.below(n)) {
                had[class as usize] += node_seconds(demand);
                assert!(driver.arrive(class, demand));
            }
        }
        had[0] / had[1]
    };
    let ratio = run([[0.03, 0.01], [0.01, 0.03]]);
    assert!((ratio / 2.0 - 1.0).abs() < 0.02, "dominant shares are as 2 to 1: {ratio}");
    let apart = run([[0.03, 0.0], [0.0, 0.03]]);
    assert!((apart - 1.0).abs() < 0.1, "each has its own resource to itself: {apart}");
}

/// A class that used a resource alone is far ahead because of it. It waits longer for a resource that others
/// need, but not for ever.
#[test]
fn a_class_far_ahead_is_served_in_the_end() {
    let site = Site { weights: vec![6.0, 1.0], ..Site::default() };
    let (cpu, bandwidth) = (Demand::of_shares(&[0.09, 0.03]), Demand::of_shares(&[0.0, 0.0, 0.09]));
    let mut driver = Driver::new(site.engine(drfq()));
    let mut random = Random(1);
    (0..30).for_each(|_| assert!(driver.arrive(0, cpu) && driver.arrive(1, bandwidth)));
    driver.drain();
    let mut work = 0.0;
    play(&mut driver, &mut random, |_, demand| {
        work += node_seconds(demand);
        work > 100.0
    });
    assert!(driver.arrive(1, cpu));
    let mut waited = 0.0;
    play(&mut driver, &mut random, |class, demand| {
        waited += node_seconds(demand);
        assert!(waited < 200.0, "it is never released");
        (class, demand) == (1, cpu)
    });
    // Two horizons over a seventh of the weights, plus the work in flight.
    assert!(waited <= 18.0, "{waited}");
}

/// A class does not catch up on resources that it did not use while it was idle, whichever resource the
/// others used.
#[test]
fn a_class_does_not_catch_up_on_unused_service() {
    let site = Site { weights: vec![1.0, 1.0], ..Site::default() };
    let [cpu, disk, _] = KINDS.map(|shares| Demand::of_shares(&shares));
    let mut driver = Driver::new(site.engine(drfq()));
    let mut random = Random(2);
    (0..30).for_each(|_| assert!(driver.arrive(0, cpu)));
    driver.drain();
    let mut work = 0.0;
    play(&mut driver, &mut random, |_, demand| {
        work += node_seconds(demand);
        work > 1000.0
    });
    (0..30).for_each(|_| assert!(driver.arrive(1, disk)));
    let (mut had, mut work) = ([0.0; 2], 0.0);
    play(&mut driver, &mut random, |class, demand| {
        had[class as usize] += node_seconds(demand);
        work += node_seconds(demand);
        work > 40.0
    });
    assert!((had[0] / had[1] - 1.0).abs() < 0.1, "{had:?}");
}

/// Two upstreams on the same machine: small requests of one cannot keep a large request of the other waiting
/// for ever.
#[test]
fn upstreams_that_share_machines_share_their_rounds() {
    for discipline in [Discipline::mqos(), drfq()] {
        let policy = Site { weights: vec![1.0, 1.0], ..Site::default() }.two_upstreams(discipline, 1);
        let mut driver = Driver::new(Engine::new(Time::ZERO, policy, 1).expect("a valid policy"));
        let mut random = Random(3);
        driver.fill(0, 60, &[0.05, 0.02, 0.02]);
        driver.drain();
        driver.fill(1, 1, &[0.6, 0.1, 0.1]);
        let mut waited = 0.0;
        play(&mut driver, &mut random, |class, demand| {
            waited += node_seconds(demand);
            assert!(waited < 50.0, "it is never released");
            class == 1
        });
    }
}

/// A policy that begins to share resources finds requests of unknown cost. They count with the cost of their
/// class.
#[test]
fn requests_from_before_a_page_table_take_what_their_class_says() {
    let site = Site::default();
    let mut before =
        site.policy(Discipline { load_control: LoadControl::Fixed { window: Some(1) }, ..Discipline::none() });
    before.resources.clear();
    let mut engine = Engine::new(Time::ZERO, before, 1).expect("a valid policy");
    for token in 0..500 {
        engine.arrive(Time::ZERO, arrival(0, Demand::default(), token));
    }
    engine.reconfigure(Time::ZERO, site.policy(Discipline::mqos())).expect("a valid policy");
    while engine.poll(Time::ZERO).is_some() {}
    let snapshot = engine.snapshot(Time::ZERO);
    // Each costs a hundredth of the node: one was in flight, and 99 more fit.
    assert_eq!((snapshot.outstanding, snapshot.waiting), (100, 400));
    assert!(snapshot.resources.iter().all(|resource| resource.available < 1e-9), "{:?}", snapshot.resources);
}
