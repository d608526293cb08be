//! Plays a scenario.

use std::path::Path;
use std::time::Duration;

use weirgate_emulator::clock;

use super::cluster::{Busy, Cluster};
use super::managed::Managed;
use super::recording::{Recording, Relocation, Sample};
use super::scenario::Scenario;
use super::{CLASSES, NODES, SHARE};

/// Interval between two readings of the counters, half a point of the figures.
const SAMPLE: Duration = Duration::from_millis(250);

/// Polling interval for shares: a tenth of 0.3 s, the shortest relocation time to be resolved.
pub(super) const STEP: Duration = Duration::from_millis(30);

/// Minimum share of every class on every node, in percent.
const FLOOR: f64 = 1.0;

/// Part of its final share at which a class counts as relocated.
const ARRIVED: f64 = 0.9;

/// Plays `scenario` with `program`, which is Weirgate, in `directory`, which must exist. `progress` gets
/// the elapsed time.
///
/// # Errors
/// Control groups cannot be made, or a program does not start or exits early. The error quotes its output.
pub fn play(
    scenario: &Scenario,
    program: &Path,
    directory: &Path,
    mut progress: impl FnMut(Duration),
) -> Result<Recording, String> {
    let mut cluster = Cluster::new(scenario.length)?;
    let mut busy: Vec<Busy> = Vec::new();
    for node in 0..NODES {
        for class in (0..CLASSES).filter(|class| (scenario.busy)(node, *class)) {
            busy.push(cluster.start(node, class)?);
        }
    }
    cluster.measure()?;
    let mut managed = scenario.coordinator.map(|terms| Managed::new(terms, program, directory)).transpose()?;
    let mut recording = Recording { scenario: scenario.name.into(), node_cpus: cluster.size, ..Recording::default() };
    // The process of the present request, and its end.
    let mut request: Option<(Busy, Duration)> = None;
    if let Some(managed) = &mut managed {
        (0..NODES).try_for_each(|node| managed.start_agent(&cluster, node))?;
    }
    let counters = cluster.counters()?;
    let used = || counters.iter().map(|node| node.iter().map(|c| c.read().unwrap_or(0)).collect()).collect();
    let start = clock::now();
    loop {
        let now = Duration::from_nanos(clock::now() - start);
        let over = now >= scenario.length;
        if over || recording.samples.last().is_none_or(|last| last.at + SAMPLE.as_secs_f64() <= now.as_secs_f64()) {
            recording.samples.push(Sample { at: now.as_secs_f64(), used: used() });
        }
        if over {
            break;
        }
        if let (Some(managed), Some(terms)) = (&mut managed, scenario.coordinator) {
            if !managed.has_coordinator() && now >= terms.from {
                managed.start_coordinator()?;
            }
            managed.check()?;
        }
        if let Some(length) = scenario.request {
            if let Some(last) = recording.relocations.last_mut()
                && last.took.is_none()
                && cluster.share(last.node, 0) >= ARRIVED * (NODES as f64 * SHARE - (NODES - 1) as f64 * FLOOR)
            {
                last.took = Some(now.as_secs_f64() - last.at);
            }
            if request.as_ref().is_none_or(|(_, until)| now >= *until) {
                let node = recording.relocations.len() % NODES;
                // The old request ends before the new one begins.
                drop(request.take());
                request = Some((cluster.start(node, 0)?, now + length));
                recording.relocations.push(Relocation { at: now.as_secs_f64(), node, took: None });
            }
        }
        progress(now);
        clock::pause(STEP);
    }
    // A request that began shortly before the end has no time left and is not counted.
    if let (Some(length), Some(last)) = (scenario.request, recording.relocations.last())
        && last.at + length.as_secs_f64() > scenario.length.as_secs_f64() + 1.0
    {
        recording.relocations.pop();
    }
    drop(request);
    if let Some(managed) = managed {
        recording.log = managed.stop()?;
    }
    Ok(recording)
}
