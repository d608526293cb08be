//! Four gateways with windows of their own, or shared ones, compared with one gateway. And what learned costs and the
//! health of nodes are worth to another gateway.

use std::time::Duration;

use weirgate_sim::gateways::{Fault, Outcome, Plan, play};

/// Runs of each plan.
const SEEDS: u64 = 2;

/// Prints a table in Markdown.
pub(crate) fn table() {
    println!(
        "| load | gateways | guaranteed requests missed, % | good answers/s | in flight, mean | in flight, highest mean of \
         a second | sum of windows | response time of the guaranteed class, ms | messages/s |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    let limit = Some(Duration::from_millis(300));
    let faults = |kind, gateway, from, to| vec![(kind, gateway, [from, to].map(Duration::from_secs))];
    let plans = [
        ("moves every 10 s, no response time", Plan::default()),
        ("the same, p95 300 ms", Plan { limit, ..Plan::default() }),
        ("without moves, no response time", Plan { moves: Duration::from_secs(10_000), ..Plan::default() }),
        (
            "four nodes and times the load",
            Plan { nodes: 4, capacity: 800.0, floor: 400.0, load: [380.0, 600.0], ..Plan::default() },
        ),
        ("all clients at one gateway", Plan { parts: vec![1.0, 0.0, 0.0, 0.0], ..Plan::default() }),
        ("a tenth of the messages lost", Plan { loss: 0.1, ..Plan::default() }),
        ("a gateway killed for 30 s", Plan { faults: faults(Fault::Killed, 0, 80, 110), ..Plan::default() }),
        ("one cut off for 50 s", Plan { faults: faults(Fault::Cut, 0, 80, 130), ..Plan::default() }),
        ("no coordinator for 50 s", Plan { faults: faults(Fault::NoCoordinator, 0, 80, 130), ..Plan::default() }),
    ];
    for (load, plan) in plans {
        let alone = Plan { gateways: 1, faults: Vec::new(), ..plan.clone() };
        let own = Plan { shares_windows: false, ..plan.clone() };
        for (gateways, plan) in [("one", alone), ("four, own windows", own), ("four, shared windows", plan)] {
            let all: Vec<Outcome> = (1..=SEEDS).map(|seed| play(&plan, seed)).collect();
            let mean = |of: fn(&Outcome) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
            println!(
                "| {load} | {gateways} | {:.2} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} |",
                100.0 * mean(|o| o.missed / o.sent.max(1.0)),
                mean(|o| o.good_per_s),
                mean(|o| o.in_flight[0]),
                mean(|o| o.in_flight[1]),
                mean(|o| o.windows),
                1e3 * mean(|o| o.seconds),
                mean(|o| o.messages_per_s),
            );
        }
    }
}

/// Runs of each plan for costs and health.
const RUNS: u64 = 6;

fn mean(plan: &Plan, of: impl Fn(&Outcome) -> f64) -> f64 {
    (1..=RUNS).map(|seed| of(&play(plan, seed))).sum::<f64>() / RUNS as f64
}

/// Prints two tables in Markdown: with learned costs passed on among gateways, and with a node that fails.
pub(crate) fn learned() {
    let limit = Some(Duration::from_millis(300));
    let span = |from| [from, from + 10].map(Duration::from_secs);
    // Each ends when most of the load moves to the gateway, which knows nothing then.
    let killed = vec![(Fault::Killed, 0, span(70)), (Fault::Killed, 3, span(80)), (Fault::Killed, 1, span(140))];
    println!("| load | costs are passed on | guaranteed requests missed, % |\n|---|---|---|");
    for (load, limit, faults) in [
        ("moves every 10 s", None, Vec::new()),
        ("the same, p95 300 ms", limit, Vec::new()),
        ("gateways that start as their load comes", None, killed.clone()),
        ("the same, p95 300 ms", limit, killed),
    ] {
        for shares_costs in [false, true] {
            let plan = Plan { limit, shares_costs, faults: faults.clone(), ..Plan::default() };
            println!("| {load} | {shares_costs} | {:.2} |", 100.0 * mean(&plan, |o| o.missed / o.sent.max(1.0)));
        }
    }
    println!("\n| gateways | a node of four fails for 30 s: errors |\n|---|---|");
    for gateways in [1, 4] {
        let faults = vec![(Fault::Failing, 0, [80, 110].map(Duration::from_secs))];
        let four = Plan { nodes: 4, capacity: 800.0, floor: 400.0, load: [380.0, 150.0], ..Plan::default() };
        let plan = Plan { gateways, faults, ..four };
        println!("| {gateways} | {:.1} |", mean(&plan, |o| o.failed));
    }
}
