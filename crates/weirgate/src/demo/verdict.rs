//! The table at the end: which guarantees were held, and by how much.

use std::fmt::Write;
use std::time::Duration;

use weirgate_emulator::NodeStats;
use weirgate_emulator::client::{Ceiling, ClassReport, Ended, Floor, Report, Tally, Verdict};
use weirgate_engine::{ClassSnapshot, ShedReason};

use super::progress::millis;
use super::scenario::{CPUS, Scenario};

/// A generator this late makes the response times of its own.
const LATE: Duration = Duration::from_millis(20);

/// The table, the totals and the verdict. Was something judged, and everything held?
pub(crate) fn text(
    scenario: &Scenario,
    report: &Report,
    gateway: &[ClassSnapshot],
    nodes: &[NodeStats],
) -> (String, bool) {
    let mut text = String::from("\n");
    if report.ended != Ended::Schedule {
        let after = report.elapsed.as_secs_f64();
        let _ = writeln!(text, "Ended early, after {after:.1} s: the verdict is over what was measured.\n");
    }
    let verdicts = report.verdicts();
    let judged: Vec<&Verdict> = verdicts.iter().filter(|v| !v.settling).collect();
    text += &row("class", "phase", "served, of asked, owed", "response time, of limit");
    for verdict in &judged {
        let class = &report.classes[verdict.class];
        let phase = &class.phases[verdict.phase];
        let floor = verdict.floor.map_or("-".to_owned(), |f| floor_text(&f, &phase.settled));
        let ceiling = verdict.ceiling.map_or("-".to_owned(), |c| ceiling_text(&c));
        text += &row(&class.name, &phase.name, &floor, &ceiling);
    }
    let best_effort = |c: &&ClassReport| c.guarantee.throughput.is_none() && c.guarantee.response_time.is_none();
    for class in report.classes.iter().filter(best_effort) {
        for phase in class.phases.iter().filter(|p| p.settled.arrivals > 0) {
            let served = format!("- {:>12} of {:>5}", phase.settled.served, phase.settled.arrivals);
            text += &row(&class.name, &phase.name, &served, "- best effort");
        }
    }
    text += &settling(scenario, report, &verdicts);
    text += &totals(report, gateway, nodes);
    let parts = |v: &&Verdict| [v.floor.map(|f| f.held), v.ceiling.filter(|c| c.measured.is_some()).map(|c| c.held)];
    let parts: Vec<bool> = judged.iter().flat_map(parts).flatten().collect();
    let missed = parts.iter().filter(|held| !**held).count();
    let _ = match (parts.len(), missed) {
        (0, _) => writeln!(text, "\nNothing was judged: it ended before any phase had settled."),
        (n, 0) => writeln!(text, "\nHELD: all {n} guarantees, in every phase."),
        (n, _) => writeln!(text, "\nMISSED: {missed} of {n} guarantees."),
    };
    (text, missed == 0 && !parts.is_empty())
}

fn row(class: &str, phase: &str, floor: &str, ceiling: &str) -> String {
    let line = format!("{class:<8} {phase:<10} {floor:<30} {ceiling}");
    format!("{}\n", line.trim_end())
}

fn word(held: bool) -> &'static str {
    if held { "✔ held  " } else { "✘ MISSED" }
}

fn floor_text(floor: &Floor, tally: &Tally) -> String {
    format!("{} {:>5} of {:>5}, {:>4.0}", word(floor.held), floor.served, tally.arrivals, floor.owed.ceil())
}

fn ceiling_text(ceiling: &Ceiling) -> String {
    let Some(measured) = ceiling.measured.map(millis) else { return "- nothing served".to_owned() };
    format!("{} {} {measured:>7} of {}", word(ceiling.held), ceiling.statistic, millis(ceiling.limit))
}

/// What was missed in the parts that are judged apart.
fn settling(scenario: &Scenario, report: &Report, verdicts: &[Verdict]) -> String {
    let missed = verdicts.iter().filter(|v| v.settling && !v.held()).map(|v| {
        let class = &report.classes[v.class];
        let phase = &class.phases[v.phase];
        let floor = v.floor.filter(|f| !f.held).map(|f| format!("served {} of {:.0} owed", f.served, f.owed.ceil()));
        let over = |c: Ceiling| format!("{} {}", c.statistic, c.measured.map_or("-".to_owned(), millis));
        let ceiling = v.ceiling.filter(|c| !c.held).map(over);
        let what: Vec<String> = floor.into_iter().chain(ceiling).collect();
        format!("  {} {}: {}\n", class.name, phase.name, what.join(", "))
    });
    let missed: String = missed.collect();
    let first = scenario.plan.settle.as_secs_f64();
    match missed.as_str() {
        "" => format!("\nThe first {first:.2} s of each phase are judged apart: there, too, everything was held.\n"),
        _ => format!("\nThe first {first:.2} s of each phase are judged apart. Missed there:\n{missed}"),
    }
}

fn totals(report: &Report, gateway: &[ClassSnapshot], nodes: &[NodeStats]) -> String {
    let mut text = String::from("\n");
    for class in &report.classes {
        let total = class.total();
        let _ = writeln!(
            text,
            "{:<8} asked {}: served {}, shed {}{}, failed {}{}",
            class.name,
            total.arrivals,
            total.served,
            total.shed,
            reasons(gateway, class),
            total.failed.total(),
            failures(&total),
        );
    }
    let busy: f64 = nodes.iter().map(|n| n.busy.as_secs_f64()).sum();
    let cpus = f64::from(CPUS) * nodes.len() as f64;
    let _ = writeln!(
        text,
        "nodes    received {}, answered {}, worked for {} clients who had left; CPUs busy {:.0} % of the time",
        nodes.iter().map(|n| n.requests).sum::<u64>(),
        nodes.iter().map(|n| n.replies).sum::<u64>(),
        nodes.iter().map(|n| n.unwanted).sum::<u64>(),
        100.0 * busy / (cpus * report.points.last().map_or(0.0, |p| p.at.as_secs_f64())).max(1e-9),
    );
    let late = Duration::from_micros(report.lateness.value_at_percentile(99.0));
    let emulation = nodes.iter().map(|n| n.lateness.value_at_percentile(99.0)).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "errors   requests left {:.1} ms late, replies {:.1} ms (p99); both count as response time",
        late.as_secs_f64() * 1e3,
        emulation as f64 / 1e6,
    );
    if late > LATE {
        text += "         This machine is too busy for the demo: guarantees may be missed for that alone.\n";
    }
    text
}

/// The gateway's reasons for what it shed, if any.
fn reasons(gateway: &[ClassSnapshot], class: &ClassReport) -> String {
    let Some(snapshot) = gateway.iter().find(|c| c.name == class.name) else { return String::new() };
    let counts = ShedReason::ALL.iter().zip(snapshot.shed).filter(|(_, n)| *n > 0);
    let counts: Vec<String> = counts.map(|(reason, n)| format!("{reason} {n}")).collect();
    if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) }
}

/// What failed, if anything, and what the clients could not do themselves.
fn failures(total: &Tally) -> String {
    let failed = &total.failed;
    let counts = [
        ("gave up", failed.timeout),
        ("reset", failed.reset),
        ("no connection", failed.connect),
        ("garbled", failed.garbled),
        ("other status", failed.status),
        ("waited for a connection", total.delayed),
        ("cut off at the end", total.cut),
    ];
    let counts: Vec<String> = counts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what} {n}")).collect();
    if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) }
}
