//! Outline of an experiment: the words and values that its tables and figures need, and no more.
//!
//! A report can therefore be made again from a file with the verdicts, without the experiment's own file
//! and the files it refers to. The field names are those of the lab's `run.json`.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use weirgate_experiment::{Experiment, Fault, FaultKind, Machine};

use super::svg::figure_text;

/// An experiment in words and values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outline {
    /// Name of the experiment.
    pub name: String,
    /// One line of description for people. May be empty.
    pub title: String,
    /// Quantity that the phases vary, with its unit, if they are points of a curve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<String>,
    /// Settling time in seconds: the start of each phase is judged separately.
    pub settle_s: f64,
    /// Phases, in order of time.
    pub phases: Vec<OutlinedPhase>,
    /// Every class, then every template.
    pub classes: Vec<OutlinedClass>,
    /// Description of the machines. Equal ones are counted.
    pub machines: String,
    /// One-way delay in milliseconds between the gateway and a machine.
    pub network_ms: f64,
    /// Faults, in order of time.
    pub faults: Vec<OutlinedFault>,
    /// Published figures to print next to ours.
    pub published: Vec<OutlinedFigure>,
}

/// A phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutlinedPhase {
    /// Unique name of the phase.
    pub name: String,
    /// Start of the phase, in seconds from the start of the run.
    pub from_s: f64,
    /// End of the phase, in seconds from the start of the run.
    pub to_s: f64,
    /// Whether the phase is judged. A warm-up is not.
    pub judged: bool,
    /// Its position on the axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
}

/// A class and its guarantees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutlinedClass {
    /// Name of the class.
    pub name: String,
    /// Upstream that receives its requests.
    pub upstream: String,
    /// Guaranteed requests per second.
    pub throughput_per_s: Option<f64>,
    /// Guaranteed statistic (`avg`, `p95`, …) and its limit in milliseconds.
    pub response_time: Option<(String, f64)>,
    /// Declared service time of a request, in milliseconds. `None` if it is learned.
    pub service_ms: Option<f64>,
}

/// A fault.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutlinedFault {
    /// Start of the fault, in seconds from the start of the run.
    pub from_s: f64,
    /// End of the fault, in seconds from the start of the run. `None` if it happens at one instant.
    pub to_s: Option<f64>,
    /// Description of the fault.
    pub what: String,
}

/// A published figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutlinedFigure {
    /// Name of the discipline.
    pub discipline: String,
    /// Name of the phase.
    pub phase: String,
    /// Name of the class.
    pub class: String,
    /// Requests served per second.
    pub served_per_s: Option<f64>,
    /// Guaranteed statistic of the response time, or its mean if none is guaranteed, in milliseconds.
    pub response_time_ms: Option<f64>,
    /// Fraction of the requests that were shed, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shed: Option<f64>,
}

impl Outline {
    /// The outline of an experiment.
    pub fn new(experiment: &Experiment) -> Outline {
        let policy = &experiment.site.policy;
        let length = experiment.duration().as_secs_f64();
        let phases = experiment.phases.iter().enumerate().map(|(index, phase)| OutlinedPhase {
            name: phase.name.clone(),
            from_s: experiment.phase_from(index).as_secs_f64(),
            to_s: phase.until.as_secs_f64(),
            judged: phase.judged,
            x: phase.x,
        });
        let classes = policy.all_classes();
        let classes = classes.map(|class| OutlinedClass {
            name: class.name.clone(),
            upstream: policy.pools.get(class.pool).map_or_else(String::new, |pool| pool.name.clone()),
            throughput_per_s: class.guarantee.throughput,
            response_time: class
                .guarantee
                .response_time
                .map(|limit| (limit.statistic.to_string(), limit.limit.as_secs_f64() * 1e3)),
            service_ms: class.service_time.map(|time| time.as_secs_f64() * 1e3),
        });
        let faults = experiment.faults.iter().map(|fault| {
            let (from_s, to_s) = (fault.at.as_secs_f64(), fault.until.map_or(length, |until| until.as_secs_f64()));
            let is_moment = matches!(fault.kind, FaultKind::Reload | FaultKind::Restart { .. });
            let lasts = !is_moment && to_s > from_s;
            OutlinedFault { from_s, to_s: lasts.then_some(to_s), what: fault_text(experiment, fault) }
        });
        let published = experiment.published.iter().map(|figure| OutlinedFigure {
            discipline: figure.discipline.clone(),
            phase: experiment.phases.get(figure.phase).map_or_else(String::new, |phase| phase.name.clone()),
            class: policy.classes.get(figure.class).map_or_else(String::new, |class| class.name.clone()),
            served_per_s: figure.served_per_s,
            response_time_ms: figure.response_time_ms,
            shed: figure.shed,
        });
        Outline {
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            axis: experiment.axis.clone(),
            settle_s: experiment.settle.as_secs_f64(),
            phases: phases.collect(),
            classes: classes.collect(),
            machines: machines(experiment),
            network_ms: experiment.network_delay.as_secs_f64() * 1e3,
            faults: faults.chain(drifts(experiment)).collect(),
            published: published.collect(),
        }
    }
}

fn fault_text(experiment: &Experiment, fault: &Fault) -> String {
    let what = match fault.kind {
        FaultKind::Removed => "out".to_owned(),
        FaultKind::Crash => "crashed".to_owned(),
        FaultKind::Stall => "stalled".to_owned(),
        FaultKind::Slow(speed) => format!("at {} % of speed", figure_text(speed * 100.0)),
        FaultKind::FailFast(share) if fault.classes.is_empty() => {
            format!("{} % fail at once", figure_text(share * 100.0))
        }
        FaultKind::FailFast(share) => {
            let names: Vec<&str> = experiment.site.policy.all_classes().map(|c| c.name.as_str()).collect();
            let of: Vec<&str> = fault.classes.iter().filter_map(|class| names.get(*class).copied()).collect();
            format!("{} % of {} fail at once", figure_text(share * 100.0), of.join(", "))
        }
        FaultKind::LostReports => return "health reports lost".to_owned(),
        FaultKind::Reload if experiment.reloads.iter().any(|reload| reload.at == fault.at) => {
            return "another policy loaded".to_owned();
        }
        FaultKind::Reload => return "policy reloaded".to_owned(),
        FaultKind::Restart { follows: false } => return "gateway restarted".to_owned(),
        FaultKind::Restart { follows: true } => return "standby takes over".to_owned(),
    };
    let name = |index: &usize| experiment.machines.get(*index).map_or("?", |machine| machine.name.as_str());
    let names: Vec<&str> = fault.machines.iter().map(name).collect();
    subjects(&names, &what)
}

/// Names up to three machines, and counts more.
fn subjects(names: &[&str], what: &str) -> String {
    match names.len() {
        0..=3 => format!("{} {what}", names.join(", ")),
        n => format!("{n} machines {what}"),
    }
}

/// Changes of speeds. Machines that change speed in the same way share one entry.
fn drifts(experiment: &Experiment) -> impl Iterator<Item = OutlinedFault> + '_ {
    let is_first = |index: usize| {
        let drift = |machine: &Machine| (machine.speed, machine.drift.clone());
        let own = drift(&experiment.machines[index]);
        experiment.machines.iter().position(|machine| drift(machine) == own) == Some(index)
    };
    (0..experiment.machines.len()).filter(move |index| is_first(*index)).flat_map(move |first| {
        let own = &experiment.machines[first];
        let same = |machine: &&Machine| machine.speed == own.speed && machine.drift == own.drift;
        let names: Vec<&str> = experiment.machines.iter().filter(same).map(|machine| machine.name.as_str()).collect();
        own.drift.0.iter().skip(1).map(move |knot| OutlinedFault {
            from_s: knot.at.as_secs_f64(),
            to_s: (!knot.over.is_zero()).then(|| (knot.at + knot.over).as_secs_f64()),
            what: subjects(&names, &format!("to speed {}", figure_text(own.speed * knot.value))),
        })
    })
}

/// Description of the machines. Equal ones are counted, not listed.
fn machines(experiment: &Experiment) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for machine in &experiment.machines {
        let mut kind = format!("{} CPU{}", machine.cpus, if machine.cpus == 1 { "" } else { "s" });
        if (machine.speed - 1.0).abs() > f64::EPSILON {
            let _ = write!(kind, " of speed {}", figure_text(machine.speed));
        }
        if !machine.shared.is_empty() {
            let _ = write!(kind, " and the servers {} behind one address", machine.shared.join(", "));
        } else if machine.servers > 1 {
            let _ = write!(kind, " and {} servers behind one address", machine.servers);
        }
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} with {kind}")).collect();
    kinds.join(", ")
}
