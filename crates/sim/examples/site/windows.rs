//! Four gateways with windows of their own, or shared ones, compared with one gateway. And what learned costs and the
//! health of nodes are worth to another gateway.

use std::time::Duration;

use weirgate_sim::gateways::{Fault, Outcome, Plan, play};
use weirgate_sim::parallel::results;

/// Prints a table in Markdown, of so many runs of each plan, with seeds from `first` on.
pub(crate) fn table(seeds: usize, first: u64) {
    println!(
        "| load | gateways | guaranteed requests missed, % | more than with own windows | good answers/s | in flight, mean \
         | in flight, highest mean of a second | sum of windows | response time of the guaranteed class, ms | messages/s |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    );
    for (load, plan) in plans() {
        let alone = Plan { gateways: 1, faults: Vec::new(), ..plan.clone() };
        let own = Plan { shares_windows: false, ..plan.clone() };
        let mut before: Vec<f64> = Vec::new();
        for (gateways, plan) in [("one", alone), ("four, own windows", own), ("four, shared windows", plan)] {
            let all = results(seeds, None, |job| play(&plan, first + job as u64), || ());
            let mean = |of: fn(&Outcome) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
            let missed: Vec<f64> = all.iter().map(|o| 100.0 * o.missed / o.sent.max(1.0)).collect();
            let more = if gateways == "four, shared windows" { difference(&missed, &before) } else { String::new() };
            println!(
                "| {load} | {gateways} | {:.2} | {more} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} |",
                missed.iter().sum::<f64>() / missed.len() as f64,
                mean(|o| o.good_per_s),
                mean(|o| o.in_flight[0]),
                mean(|o| o.in_flight[1]),
                mean(|o| o.windows),
                1e3 * mean(|o| o.seconds),
                mean(|o| o.messages_per_s),
            );
            before = missed;
        }
    }
}

/// The mean difference of pairs, with its standard error.
fn difference(now: &[f64], before: &[f64]) -> String {
    let count = now.len() as f64;
    let each: Vec<f64> = now.iter().zip(before).map(|(now, before)| now - before).collect();
    let mean = each.iter().sum::<f64>() / count;
    let variance = each.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    format!("{mean:+.2} ± {:.2}", (variance / count).sqrt())
}

fn plans() -> Vec<(&'static str, Plan)> {
    let limit = Some(Duration::from_millis(300));
    let fault = |kind, from, to| vec![(kind, 0, [from, to].map(Duration::from_secs))];
    let (cut, away) = (fault(Fault::Cut, 80, 130), fault(Fault::NoCoordinator, 80, 130));
    vec![
        ("moves every 10 s, no response time", Plan::default()),
        ("the same, p95 300 ms", Plan { limit, ..Plan::default() }),
        ("without moves, no response time", Plan { moves: Duration::from_secs(10_000), ..Plan::default() }),
        (
            "four nodes and times the load",
            Plan { nodes: 4, capacity: 800.0, floor: 400.0, load: [380.0, 600.0], ..Plan::default() },
        ),
        ("all clients at one gateway", Plan { parts: vec![1.0, 0.0, 0.0, 0.0], ..Plan::default() }),
        ("a tenth of the messages lost", Plan { loss: 0.1, ..Plan::default() }),
        ("a gateway killed for 30 s", Plan { faults: fault(Fault::Killed, 80, 110), ..Plan::default() }),
        ("one cut off for 50 s", Plan { faults: cut.clone(), ..Plan::default() }),
        ("the same, p95 300 ms", Plan { faults: cut, limit, ..Plan::default() }),
        ("no coordinator for 50 s", Plan { faults: away.clone(), ..Plan::default() }),
        ("the same, p95 300 ms", Plan { faults: away, limit, ..Plan::default() }),
        ("a page table, the other class needs the disk", Plan { page: Some([0.01, 0.008]), ..Plan::default() }),
        ("the same, p95 300 ms", Plan { page: Some([0.01, 0.008]), limit, ..Plan::default() }),
        ("a page table, both need the processors", Plan { page: Some([0.04, 0.006]), ..Plan::default() }),
        ("the same, p95 300 ms", Plan { page: Some([0.04, 0.006]), limit, ..Plan::default() }),
    ]
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
    let wrong = Some(Duration::from_millis(2));
    println!("| load | costs are passed on | guaranteed requests missed, % |\n|---|---|---|");
    for (load, limit, declared, faults) in [
        ("moves every 10 s", None, None, Vec::new()),
        ("the same, p95 300 ms", limit, None, Vec::new()),
        ("gateways that start as their load comes", None, None, killed.clone()),
        ("the same, p95 300 ms", limit, None, killed.clone()),
        ("the same, 2 ms are declared and 40 ms needed", limit, wrong, killed),
    ] {
        for shares_costs in [false, true] {
            let plan = Plan { limit, declared, shares_costs, faults: faults.clone(), ..Plan::default() };
            println!("| {load} | {shares_costs} | {:.2} |", 100.0 * mean(&plan, |o| o.missed / o.sent.max(1.0)));
        }
    }
    println!(
        "\n| one node of four for 30 s | gateways | health is told | errors | requests missed, % |\n|---|---|---|---|---|"
    );
    for (fault, name) in [(Fault::Failing, "answers with errors"), (Fault::Flaky, "fails three requests in ten")] {
        for (gateways, shares_health) in [(1, false), (4, false), (4, true)] {
            let faults = vec![(fault, 0, [80, 110].map(Duration::from_secs))];
            let four = Plan { nodes: 4, capacity: 800.0, floor: 400.0, load: [380.0, 150.0], ..Plan::default() };
            let plan = Plan { gateways, shares_health, faults, ..four };
            let missed = 100.0 * mean(&plan, |o| o.missed / o.sent.max(1.0));
            println!("| {name} | {gateways} | {shares_health} | {:.1} | {missed:.2} |", mean(&plan, |o| o.failed));
        }
    }
}
