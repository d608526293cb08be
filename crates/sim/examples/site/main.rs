//! Compares designs that divide floors between gateways, and measures the cost of the chosen one. ADR 23 has the
//! tables.
//!
//! ```text
//! cargo run --release -p weirgate-sim --example site                 # the designs
//! cargo run --release -p weirgate-sim --example site -- floors       # the chosen one at low and high rates
//! cargo run --release -p weirgate-sim --example site -- windows 8    # four gateways and one, with their engines
//! cargo run --release -p weirgate-sim --example site -- learned      # costs and health, passed on or not
//! cargo run --release -p weirgate-sim --example site -- seeds 10000  # the invariant under faults
//! cargo run --release -p weirgate-sim --example site -- cost docs/figures/site-cost.svg
//! ```

mod chart;
mod cost;
mod windows;

use std::error::Error;
use std::time::Duration;

use weirgate_sim::parallel::results;
use weirgate_sim::site::{Design, Fault, Outcome, Scenario, play};

/// Runs of each design and scenario.
const SEEDS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => designs(),
        ["floors"] => floors(),
        ["windows"] => windows::table(8, 1),
        ["windows", count] => windows::table(count.parse()?, 1),
        ["windows", count, first] => windows::table(count.parse()?, first.parse()?),
        ["learned"] => windows::learned(),
        ["seeds", count] => seeds(count.parse()?)?,
        ["cost"] => drop(cost::table()?),
        ["cost", file] => std::fs::write(file, chart::svg(&cost::table()?))?,
        _ => {
            return Err("site [floors | windows [COUNT [FIRST SEED]] | learned | seeds COUNT | cost [FILE.svg]]".into());
        }
    }
    Ok(())
}

/// Prints the error of the leases by floor and load, with and without shifts every ten seconds.
fn floors() {
    println!(
        "| floor | load | shifts | floor error, % | requests lost, % | follows in ms, median | 99 % | messages/s |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for floor in [100.0, 400.0, 800.0] {
        for (load, shifts) in [(0.95, true), (1.2, true), (0.95, false), (1.2, false)] {
            let shift_every = Duration::from_secs(if shifts { 10 } else { 1_000 });
            let scenario = Scenario { floor, load, shift_every, ..Scenario::default() };
            let all = outcomes(&scenario, Design::Leases, SEEDS);
            let [median, most] = follow(&all);
            println!(
                "| {floor}/s | {load} | {} | {:.2} | {:.2} | {median} | {most} | {:.0} |",
                if shifts { "every 10 s" } else { "none" },
                100.0 * mean(&all, |o| o.floor_error),
                100.0 * mean(&all, |o| o.lost),
                mean(&all, |o| o.messages_per_s),
            );
        }
    }
}

/// Prints one table for each scenario.
fn designs() {
    let overload = Scenario::default();
    let fits = Scenario { load: 0.95, ..Scenario::default() };
    let never = Duration::from_secs(1_000);
    let steady = Scenario { shift_every: never, ..Scenario::default() };
    let steady_fits = Scenario { shift_every: never, ..fits.clone() };
    let far = Scenario { delay: [Duration::from_millis(10), Duration::from_millis(40)], ..Scenario::default() };
    let scenarios = [
        ("overload of 1.2, without shifts", steady),
        ("load of 0.95, without shifts", steady_fits),
        ("overload of 1.2, shifts every 10 s", overload),
        ("load of 0.95, shifts every 10 s", fits),
        ("overload of 1.2, shifts every 10 s, messages take 10 to 40 ms", far),
    ];
    for (name, scenario) in scenarios {
        println!(
            "\n### {name}\n\n| design | floor error, % | requests lost, % | largest sum, × floor | exceeded, s | follows in ms, median | 99 % \
             | messages/s | etcd/s | added to a request, ms |\n|---|---|---|---|---|---|---|---|---|"
        );
        for design in Design::ALL {
            row(design, &outcomes(&scenario, design, SEEDS));
        }
    }
    println!(
        "\n### Faults of one kind, for 0.2 to 45 s, every 8 s on average\n\n| | {} |\n|---|---|---|---|---|",
        Design::ALL
            .iter()
            .filter(|design| **design != Design::LeasesWithReserve)
            .map(|design| design.as_str())
            .collect::<Vec<_>>()
            .join(" | ")
    );
    for kind in Fault::ALL.into_iter().map(Some).chain([None]) {
        let faults = kind.map_or(Fault::ALL.to_vec(), |kind| vec![kind]);
        let scenario = Scenario { faults, ..Scenario::with_faults() };
        print!("| {} |", kind.map_or("all", Fault::as_str));
        for design in Design::ALL.into_iter().filter(|design| *design != Design::LeasesWithReserve) {
            let all = outcomes(&scenario, design, SEEDS);
            let (error, sum) = (mean(&all, |o| o.floor_error), max(&all, |o| o.largest_sum));
            print!(" {:.1} %, {sum:.2} |", 100.0 * error);
        }
        println!();
    }
    println!("\nFloor error, and largest sum of shares as a multiple of the floor.");
}

fn mean(all: &[Outcome], of: fn(&Outcome) -> f64) -> f64 {
    all.iter().map(of).sum::<f64>() / all.len() as f64
}

fn max(all: &[Outcome], of: fn(&Outcome) -> f64) -> f64 {
    all.iter().map(of).fold(0.0, f64::max)
}

fn outcomes(scenario: &Scenario, design: Design, count: usize) -> Vec<Outcome> {
    results(count, None, |job| play(scenario, design, 1 + job as u64), || ())
}

/// The median and the 99th percentile of the times to follow a shift, in milliseconds.
fn follow(all: &[Outcome]) -> [String; 2] {
    let mut follow: Vec<f64> = all.iter().flat_map(|o| &o.follow).map(|d| d.as_secs_f64() * 1e3).collect();
    follow.sort_by(f64::total_cmp);
    [0.5, 0.99]
        .map(|part| follow.get((part * follow.len() as f64) as usize).map_or("–".into(), |ms| format!("{ms:.0}")))
}

fn row(design: Design, all: &[Outcome]) {
    let [median, most] = follow(all);
    println!(
        "| {} | {:.2} | {:.2} | {:.4} | {:.1} | {median} | {most} | {:.0} | {:.1} | {:.2} |",
        design.as_str(),
        100.0 * mean(all, |o| o.floor_error),
        100.0 * mean(all, |o| o.lost),
        max(all, |o| o.largest_sum),
        mean(all, |o| o.exceeded.as_secs_f64()),
        mean(all, |o| o.messages_per_s),
        mean(all, |o| o.etcd_per_s),
        1e3 * mean(all, |o| o.added_delay.as_secs_f64()),
    );
}

/// Plays many seeds of the chosen design under faults and looks for a sum beyond the floor.
fn seeds(count: usize) -> Result<(), String> {
    let scenario = Scenario::with_faults();
    let all = outcomes(&scenario, Design::Leases, count);
    let largest = max(&all, |o| o.largest_sum);
    let broken: Vec<usize> = (1..).zip(&all).filter(|(_, o)| !o.exceeded.is_zero()).map(|(seed, _)| seed).collect();
    println!("{count} seeds, largest sum {largest:.6} × floor, exceeded in {} {broken:?}", broken.len());
    if broken.is_empty() { Ok(()) } else { Err("the sum of shares exceeded the floor".into()) }
}
