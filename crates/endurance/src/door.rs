//! A class within its guarantee, beside mixes of hostile clients that try to hold the door.
//!
//! The class sends without a pause from the first mix to the last. Each mix begins with a quiet part, for comparison,
//! in which the clients of the mix before are gone. A request of the class is lost if it is not answered by a node:
//! refused, failed, or without an answer for ten seconds.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use weirgate_emulator::clock;
use weirgate_emulator::random::Random;
use weirgate_experiment::Condition;
use weirgate_lab::load::{Counts, Running};

use crate::group::Group;
use crate::hostile::{Attack, Kind, Mix};
use crate::interim;
use crate::meter::{Meter, Spell, lost};
use crate::report::{Report, quantiles};
use crate::stage::{Files, Stage, allow_descriptors};
use crate::usage::Usage;

/// Number of mixes in a run.
const MIXES: usize = 50;

/// Part of a mix's time that is quiet, for comparison.
const QUIET: f64 = 0.2;

/// Interval between two looks at the gateway, and half the period of the node that dies.
const LOOK: Duration = Duration::from_millis(500);

/// Numbers of nodes in `experiments/endurance/door.yaml`: of the one that dies, of the one of endless 103s and of the
/// one that never answers.
const DYING: usize = 2;
const INTERIM: usize = 3;
const STUCK: usize = 4;

/// Number of the class's traffic.
const GOLD: usize = 0;

/// Open files of the gateway in addition to two for each hostile client: those of the class, listeners, logs.
const SPARE: u64 = 2000;

/// Time that a mix may take in addition to its length, at most.
const SETTING_UP: Duration = Duration::from_secs(5);

/// Time after the last mix in which the gateway releases its memory and descriptors. It exceeds the time limit of a
/// head.
const AFTERWARDS: Duration = Duration::from_secs(15);

/// Runs all mixes and returns the number of requests that the class lost.
///
/// # Errors
/// A part does not start or ends early.
pub(crate) fn run(
    files: &Files<'_>,
    seconds: u64,
    seed: u64,
    only: Option<&Mix>,
    memory: Option<u64>,
    output: Option<&Path>,
) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let mixes = only.map_or_else(|| (0..MIXES).map(|_| Mix::draw(&mut random)).collect(), |only| vec![only.clone()]);
    let each = Duration::from_secs(seconds) / mixes.len() as u32;
    // The class sends until it is stopped. Starting and ending a mix takes a fraction of a second.
    let length = (each + SETTING_UP) * mixes.len() as u32 + AFTERWARDS;
    let given = files.changes;
    let changes = [given, &[format!("phases=[{{ name: all, until: {}s }}]", length.as_secs() + 1)]].concat();
    let group = memory.map(|mb| Group::new(&files.program, mb << 20)).transpose()?;
    let program = group.as_ref().map_or_else(|| files.program.clone(), Group::program);
    let files = Files { program, experiment: files.experiment.clone(), changes: &changes };
    let clients = mixes.iter().map(Mix::clients).max().unwrap_or(0);
    let short = allow_descriptors(2 * clients + SPARE).err();
    // The kernel accepts its connections. Nothing reads them.
    let stuck = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (stuck, _listener) = stuck.map_err(|error| format!("node that never answers: {error}"))?;
    let mut stage = Stage::start(&files, &[(INTERIM, interim::start()?), (STUCK, stuck)])?;
    let which = only.map_or_else(|| format!("--seed {seed}"), |only| format!("--mix \"{only}\""));
    let set: String = given.iter().map(|change| format!(" --set {change}")).collect();
    let memory = memory.map_or_else(String::new, |mb| format!(" --memory {mb}"));
    let command = format!("cargo xtask bench door --seconds {seconds} {which}{set}{memory}");
    let mut report = Report::new("A guaranteed class beside hostile clients", &command);
    report.line(&format!(
        "{} mixes of {:.1} s, of which the first {:.0} % are quiet. Gateway {}. Times in milliseconds: \
         p50/p95/p99. Memory and descriptors are the maximum of the mix.\n",
        mixes.len(),
        each.as_secs_f64(),
        QUIET * 100.0,
        stage.gateway.version(),
    ));
    if let Some(why) = short {
        report.line(&format!("{why}. The gateway serves as many connections as it has files for.\n"));
    }
    report.line(
        "| mix | hostile clients | sent | served | lost | quiet | during | MB | descriptors | CPU % | they saw |",
    );
    report.line("|---|---|---|---|---|---|---|---|---|---|---|");
    let before = stage.usage()?;
    let load = stage.load(seed)?;
    let mut meter = Meter::new(GOLD);
    for (number, mix) in mixes.iter().enumerate() {
        let (_, quiet) = watch(&mut stage, &load, &mut meter, each.mul_f64(QUIET), false)?;
        let start = stage.usage()?;
        let attack = Attack::start(mix, random.bits(), stage.gateway.address())?;
        let (most, during) = watch(&mut stage, &load, &mut meter, each.mul_f64(1.0 - QUIET), mix.has(Kind::DyingNode))?;
        let cpu = stage.usage()?.cpu.saturating_sub(start.cpu).as_secs_f64() / each.mul_f64(1.0 - QUIET).as_secs_f64();
        let seen = attack.seen().to_string();
        let refused = (attack.seen().count(4) + attack.seen().count(5)) as f64;
        let connections = attack.seen().connections() as f64;
        drop(attack);
        report.line(&format!(
            "| {number} | {mix} | {} | {} | {} | {} | {} | {:.1} | {} | {:.0} | {seen} |",
            quiet.counts.sent + during.counts.sent,
            quiet.counts.served + during.counts.served,
            losses(&quiet.counts, &during.counts),
            quantiles(&quiet.times),
            quantiles(&during.times),
            most.resident_kb as f64 / 1024.0,
            most.descriptors,
            cpu * 100.0,
        ));
        if only.is_some() {
            let time = each.mul_f64(1.0 - QUIET).as_secs_f64();
            for (what, count) in [("refusals", refused), ("connections", connections)] {
                let (rate, per_core) = (count / time, count / (time * cpu));
                report.line(&format!("\n{rate:.0} {what}/s, which is {per_core:.0}/s of a core of the gateway."));
            }
        }
    }
    watch(&mut stage, &load, &mut meter, AFTERWARDS, false)?;
    let after = stage.usage()?;
    let (total, shed) = (meter.total(), stage.shed("gold")?);
    load.stop();
    let sent = load.join().map_err(|error| format!("load generator: {error}"))?;
    report.line(&format!(
        "\n{} requests of the class, {} served, {} lost ({} refused, {} failed, {} without an answer). {:.0} s after the \
         last mix the gateway has {:.1} MB and {} descriptors. It had {:.1} MB and {} at the start.",
        total.sent,
        total.served,
        lost(&total),
        total.shed,
        total.failed,
        total.left,
        AFTERWARDS.as_secs_f64(),
        after.resident_kb as f64 / 1024.0,
        after.descriptors,
        before.resident_kb as f64 / 1024.0,
        before.descriptors,
    ));
    let answers: Vec<String> =
        sent.traffic[GOLD].answers.iter().map(|(answer, count)| format!("{answer:?}: {count}")).collect();
    report.line(&format!(
        "Answers: {}. Reasons of refusals: {}. Connections: {}.",
        answers.join(", "),
        if shed.is_empty() { "none" } else { &shed },
        sent.traffic[GOLD].connections
    ));
    let page = only.map_or_else(
        || "door.md".to_owned(),
        |mix| format!("mix-{}.md", mix.to_string().replace(", ", "-").replace(' ', "-")),
    );
    report.write(output, &page)?;
    Ok(lost(&total))
}

/// Waits for `span` while the class sends. Returns the maximum of the gateway's use, and the class's requests. If
/// `dies`, the dying node is gone every other time.
fn watch(
    stage: &mut Stage,
    load: &Running,
    meter: &mut Meter,
    span: Duration,
    dies: bool,
) -> Result<(Usage, Spell), String> {
    let end = clock::now() + clock::nanos(span);
    let (mut most, mut crashed) = (stage.usage()?, false);
    loop {
        let left = Duration::from_nanos(end.saturating_sub(clock::now()));
        if left.is_zero() {
            break;
        }
        clock::pause(left.min(LOOK));
        most = most.max(stage.usage()?);
        if load.is_finished() {
            return Err("the load generator has ended early".to_owned());
        }
        if dies {
            crashed = !crashed;
            stage.nodes.set_condition(DYING, Condition { crashed, ..Condition::WELL })?;
        }
    }
    if crashed {
        stage.nodes.set_condition(DYING, Condition::WELL)?;
    }
    Ok((most, meter.take(load)))
}

/// Returns the lost requests of a mix, with their kinds if there are any.
fn losses(quiet: &Counts, during: &Counts) -> String {
    let of = |counts: &Counts| match lost(counts) {
        0 => "0".to_owned(),
        all => format!("{all} ({} refused, {} failed, {} left)", counts.shed, counts.failed, counts.left),
    };
    match lost(quiet) {
        0 => of(during),
        _ => format!("{}, and {} in the quiet part", of(during), of(quiet)),
    }
}
