//! Half load for a long time, with a reload each minute and nodes that are killed and restarted.
//!
//! The lab plays the experiment and proves from the ids that clients sent and nodes served that no request was lost
//! or served twice ([`weirgate_lab::proof`]). This module adds the faults, and looks at the gateway's memory and
//! descriptors.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use weirgate_experiment::{Fate, load_experiment_file};
use weirgate_lab::gateways::Approach;
use weirgate_lab::trial::{Cpus, Trial, play};

use crate::report::Report;
use crate::stage::Files;
use crate::usage::Usage;

/// Interval between two looks.
const LOOK: Duration = Duration::from_secs(10);

/// Seconds between two reloads, and between two crashes. They are not multiples of each other, so that a reload comes
/// before, during and after a crash.
const RELOAD_EVERY: u64 = 60;
const CRASH_EVERY: u64 = 45;

/// Seconds for which a node is down: several intervals of its health check.
const DOWN: u64 = 10;

/// Part of the run in which memory may grow: buffers and estimates for every class and node come into being.
const WARM_UP: f64 = 0.1;

/// Growth from the first third after the warm-up to the last one that still counts as flat: a twentieth, which a
/// leak of ten bytes a request would exceed in half an hour, and a few descriptors of connections to nodes.
const GROWTH: f64 = 0.05;
const FEW_DESCRIPTORS: u64 = 8;

/// Runs for `minutes` and returns whether everything held.
///
/// # Errors
/// A part does not start or ends early.
pub(crate) fn run(files: &Files<'_>, minutes: u64, seed: u64, output: Option<&Path>) -> Result<bool, String> {
    let seconds = minutes * 60;
    let changes = [files.changes, &schedule(seconds)].concat();
    let files = Files { program: files.program.clone(), experiment: files.experiment.clone(), changes: &changes };
    let loaded = load_experiment_file(&files.experiment, &files.overrides()?).map_err(|errors| errors.to_string())?;
    let directory = tempfile::Builder::new().prefix("weirgate-endurance-").tempdir();
    let directory = directory.map_err(|error| format!("temporary directory: {error}"))?;
    let command = format!("cargo xtask bench soak --minutes {minutes} --seed {seed}");
    let mut report = Report::new("Half load with reloads and crashes", &command);
    report.line(&format!(
        "A reload every {RELOAD_EVERY} s. Every {CRASH_EVERY} s one of the nodes is killed and comes back after {DOWN} s.\n"
    ));
    report.line("| second | sent | served | refused | failed | left | MB | descriptors | CPU s |");
    report.line("|---|---|---|---|---|---|---|---|---|");
    let mut looks: Vec<Usage> = Vec::new();
    let mut trouble = None;
    let trial = Trial {
        experiment: &loaded.experiment,
        approach: &Approach::parse("weirgate")?,
        source: &files.source()?,
        seed,
        directory: directory.path(),
        cpus: Cpus::of_this_machine()?,
    };
    let outcome = play(&trial, |progress, _| {
        if progress.elapsed < LOOK * looks.len() as u32 {
            return ControlFlow::Continue(());
        }
        let usage = match Usage::of(progress.process) {
            Ok(usage) => usage,
            Err(why) => {
                trouble = Some(why);
                return ControlFlow::Break(());
            }
        };
        looks.push(usage);
        let sum = |of: fn(&weirgate_lab::load::Counts) -> u64| progress.traffic.iter().map(of).sum::<u64>();
        report.line(&format!(
            "| {:.0} | {} | {} | {} | {} | {} | {:.1} | {} | {:.1} |",
            progress.elapsed.as_secs_f64(),
            progress.sent(),
            sum(|counts| counts.served),
            sum(|counts| counts.shed),
            sum(|counts| counts.failed),
            sum(|counts| counts.left),
            usage.resident_kb as f64 / 1024.0,
            usage.descriptors,
            usage.cpu.as_secs_f64(),
        ));
        ControlFlow::Continue(())
    })?;
    if let Some(why) = trouble {
        return Err(why);
    }
    let evidence = &outcome.evidence;
    report.line(&format!(
        "\n{} sent, {} served, {} refused, {} failed, {} left, {} cut off by the end. By their ids: {} lost, {} served \
         twice, {} never sent.",
        evidence.sent,
        evidence.served,
        evidence.shed,
        evidence.failed,
        evidence.left,
        evidence.cut,
        evidence.lost.count,
        evidence.doubled.count,
        evidence.phantom.count,
    ));
    for (traffic, row) in outcome.latency.iter().enumerate() {
        let records = outcome.run.records.iter();
        let refused = records.filter(|record| record.traffic as usize == traffic && record.fate == Fate::Shed).count();
        let (class, p50, p95, p99) = (&row.class, row.p50, row.p95, row.p99);
        report.line(&format!("- {class}: p50 {p50:.0} ms, p95 {p95:.0} ms, p99 {p99:.0} ms, {refused} refused"));
    }
    let memory = Trend::of(looks.iter().map(|look| look.resident_kb), |part| part[part.len() / 2]);
    // Descriptors follow the requests in flight. A leak raises the least of them.
    let descriptors = Trend::of(looks.iter().map(|look| look.descriptors), |part| part[0]);
    report.line(&format!(
        "- memory: {:.1} MB in the first third after the warm-up, {:.1} MB in the last (medians)\n\
         - descriptors: {} and {} (minima)",
        memory.first as f64 / 1024.0,
        memory.last as f64 / 1024.0,
        descriptors.first,
        descriptors.last,
    ));
    report.line(&format!(
        "- lateness of the emulated nodes: p99 {:.1} ms, at most {:.0} ms. Of the load generator: p99 {:.1} ms, at most {:.0} \
         ms. A machine that pauses makes nodes slow, and the gateway then refuses",
        evidence.node_late_ms.p99,
        evidence.node_late_ms.max,
        evidence.generator_late_ms.p99,
        evidence.generator_late_ms.max,
    ));
    let complete = evidence.failed + evidence.left + evidence.cut == 0;
    let accounted = [&evidence.lost, &evidence.doubled, &evidence.phantom].iter().all(|ids| ids.count == 0);
    let flat = memory.last as f64 <= memory.first as f64 * (1.0 + GROWTH)
        && descriptors.last <= descriptors.first + FEW_DESCRIPTORS;
    for (held, promise) in [
        (complete, "no request failed or was left without an answer"),
        (accounted, "no request was lost or served twice"),
        (flat, "memory and descriptors are flat"),
    ] {
        report.line(&format!("- {}: {promise}", if held { "held" } else { "BROKEN" }));
    }
    report.write(output, "soak.md")?;
    Ok(complete && accounted && flat)
}

/// Returns the changes to the experiment: its length, the reloads and the crashes. The nodes crash in turn.
fn schedule(seconds: u64) -> [String; 2] {
    let reloads = (1..).map(|turn| turn * RELOAD_EVERY).take_while(|at| *at < seconds);
    let crashes = (1..).map(|turn| (turn, turn * CRASH_EVERY)).take_while(|(_, at)| at + DOWN < seconds);
    let faults = reloads.map(|at| format!("{{ at: {at}s, fault: reload }}"));
    let faults = faults.chain(crashes.map(|(turn, at)| {
        format!("{{ at: {at}s, until: {}s, fault: crash, machines: n{} }}", at + DOWN, turn % 4 + 1)
    }));
    let faults: Vec<String> = faults.collect();
    [format!("phases=[{{ name: all, until: {seconds}s }}]"), format!("faults=[{}]", faults.join(", "))]
}

/// A figure of the first and of the last third after the warm-up.
#[derive(Debug, PartialEq)]
struct Trend {
    first: u64,
    last: u64,
}

impl Trend {
    /// `figure` gets the sorted values of a third, of which there is at least one.
    fn of(values: impl Iterator<Item = u64>, figure: impl Fn(&[u64]) -> u64) -> Trend {
        let values: Vec<u64> = values.collect();
        let values = &values[(values.len() as f64 * WARM_UP) as usize..];
        let third = values.len().div_ceil(3);
        let figure = |part: &[u64]| {
            let mut part = part.to_vec();
            part.sort_unstable();
            if part.is_empty() { 0 } else { figure(&part) }
        };
        Trend { first: figure(&values[..third]), last: figure(&values[values.len() - third..]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_leaves_the_warm_up_out() {
        let values = (0..100).map(|at| if at < 10 { 1 } else { 1000 + at });
        let median = |part: &[u64]| part[part.len() / 2];
        assert_eq!(Trend::of(values.clone(), median), Trend { first: 1025, last: 1085 });
        assert_eq!(Trend::of(values, |part| part[0]), Trend { first: 1010, last: 1070 });
        assert_eq!(Trend::of([7].into_iter(), median), Trend { first: 7, last: 7 });
        assert_eq!(Trend::of(std::iter::empty(), median), Trend { first: 0, last: 0 });
    }

    #[test]
    fn faults_end_with_the_run() {
        let [length, faults] = schedule(120);
        assert_eq!(length, "phases=[{ name: all, until: 120s }]");
        assert_eq!(
            faults,
            "faults=[{ at: 60s, fault: reload }, { at: 45s, until: 55s, fault: crash, machines: n2 }, \
             { at: 90s, until: 100s, fault: crash, machines: n3 }]"
        );
    }
}
