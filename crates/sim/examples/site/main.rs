//! Compares designs that divide floors between gateways, and measures the cost of the chosen one. ADR 23 has the
//! tables.
//!
//! ```text
//! cargo run --release -p weirgate-sim --example site                 # the designs
//! cargo run --release -p weirgate-sim --example site -- seeds 10000  # the invariant under faults
//! cargo run --release -p weirgate-sim --example site -- cost docs/figures/site-cost.svg
//! ```

mod chart;
mod cost;

use std::error::Error;
use std::ops::ControlFlow;
use std::time::Duration;

use weirgate_sim::parallel::for_each_job;
use weirgate_sim::site::{Design, Fault, Outcome, Scenario, play};

/// Runs of each design and scenario.
const SEEDS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => designs(),
        ["seeds", count] => seeds(count.parse()?)?,
        ["cost"] => drop(cost::table()?),
        ["cost", file] => std::fs::write(file, chart::svg(&cost::table()?))?,
        _ => return Err("site [seeds COUNT | cost [FILE.svg]]".into()),
    }
    Ok(())
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
            "\n### {name}\n\n| design | floor error, % | largest sum, × floor | exceeded, s | follows in ms, median | 99 % \
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
            .map(|design| design.name())
            .collect::<Vec<_>>()
            .join(" | ")
    );
    for kind in Fault::ALL.into_iter().map(Some).chain([None]) {
        let faults = kind.map_or(Fault::ALL.to_vec(), |kind| vec![kind]);
        let scenario = Scenario { faults, ..Scenario::with_faults() };
        print!("| {} |", kind.map_or("all", Fault::name));
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
    let mut all = Vec::new();
    let work = |job: usize| play(scenario, design, 1 + job as u64);
    for_each_job(count, None, work, |_, outcome| {
        all.push(outcome);
        ControlFlow::Continue(())
    });
    all
}

fn row(design: Design, all: &[Outcome]) {
    let mut follow: Vec<f64> = all.iter().flat_map(|o| &o.follow).map(|d| d.as_secs_f64() * 1e3).collect();
    follow.sort_by(f64::total_cmp);
    let part =
        |part: f64| follow.get((part * follow.len() as f64) as usize).map_or("–".into(), |ms| format!("{ms:.0}"));
    println!(
        "| {} | {:.2} | {:.4} | {:.1} | {} | {} | {:.0} | {:.1} | {:.2} |",
        design.name(),
        100.0 * mean(all, |o| o.floor_error),
        max(all, |o| o.largest_sum),
        mean(all, |o| o.exceeded.as_secs_f64()),
        part(0.5),
        part(0.99),
        mean(all, |o| o.messages_per_s),
        mean(all, |o| o.etcd_per_s),
        1e3 * mean(all, |o| o.added_delay.as_secs_f64()),
    );
}

/// Plays many seeds of the chosen design under faults and looks for a sum beyond the floor.
fn seeds(count: usize) -> Result<(), String> {
    let scenario = Scenario::with_faults();
    let (mut largest, mut broken, mut done) = (0.0_f64, Vec::new(), 0);
    for_each_job(
        count,
        None,
        |job| play(&scenario, Design::Leases, 1 + job as u64),
        |job, outcome| {
            largest = largest.max(outcome.largest_sum);
            done += 1;
            if !outcome.exceeded.is_zero() {
                broken.push(1 + job);
            }
            ControlFlow::Continue(())
        },
    );
    println!("{done} seeds, largest sum {largest:.6} × floor, exceeded in {} {broken:?}", broken.len());
    if broken.is_empty() { Ok(()) } else { Err("the sum of shares exceeded the floor".into()) }
}
