//! Writes a scenario as an experiment file. Runs play this file, so you can read, keep and change every
//! scenario.

use std::fmt::Write as _;
use std::time::Duration;

use weirgate_engine::Statistic;
use weirgate_experiment::{Distribution, FaultKind};

use super::family::Family;
use super::figures::Figures;
use super::sketch::{ClassSketch, FaultSketch, PhaseSketch, Sketch, Stream, tidy};

/// Time limit of a node's answer over the limit of its class, if the policy sets one. At least a second.
const TIMEOUT: f64 = 2.0;

/// Classes with a longer mean time have timeouts of an hour. The default limit of the first byte is 60 s,
/// and one in 400 exponential times is longer than six times its mean.
const LONG_MS: f64 = 10_000.0;

/// Returns the experiment file of a scenario.
pub(super) fn yaml(seed: u64, family: Family, sketch: &Sketch, figures: &[Figures]) -> String {
    let mut lines = vec![
        format!("# Scenario {seed} of the swarm ({family}): {}.", sketch.about),
        format!("name: swarm-{seed}"),
        format!("title: \"{family}: {}\"", sketch.about),
        "policy:".to_owned(),
        "  upstreams:".to_owned(),
    ];
    for pool in &sketch.pools {
        lines.push(format!("    {}:", pool.name));
        lines.push("      nodes:".to_owned());
        for &machine in &pool.machines {
            let (name, capacity) = (machine_name(machine), sketch.machines[machine].capacity());
            let capacity = match sketch.machines[machine].declared {
                true => format!(", capacity: {}", tidy(capacity)),
                false => String::new(),
            };
            let address = format!("10.0.0.{}:80", machine + 1);
            lines.push(format!("        - {{ name: {name}, machine: {name}, address: \"{address}\"{capacity} }}"));
        }
        if pool.health_check {
            lines.push("      health_check: { path: /health }".to_owned());
        }
    }
    lines.push("  classes:".to_owned());
    for (index, (class, figures)) in sketch.classes.iter().zip(figures).enumerate() {
        lines.extend(policy_class(sketch, index, class, figures));
    }
    lines.push(format!("    - {{ name: other, upstream: {} }}", sketch.pools[0].name));
    lines.push("machines:".to_owned());
    for (index, machine) in sketch.machines.iter().enumerate() {
        let mut line = format!("  - {{ machine: {}, cpus: {}", machine_name(index), machine.cpus);
        field(&mut line, "speed", (machine.speed != 1.0).then_some(machine.speed));
        field(&mut line, "servers", (machine.servers != 1).then_some(machine.servers));
        field(&mut line, "concurrency", machine.concurrency);
        let thrashing = machine.thrashing.map(|t| format!("{{ beyond: {}, penalty: {} }}", t.beyond, t.penalty));
        field(&mut line, "thrashing", thrashing);
        lines.push(line + " }");
    }
    lines.push(format!("network_delay: {}ms", sketch.delay_ms));
    lines.push("traffic:".to_owned());
    for (index, (class, figures)) in sketch.classes.iter().zip(figures).enumerate() {
        lines.extend(traffic(sketch, index, class, figures));
    }
    lines.extend(phases(&sketch.phases));
    lines.extend(sketch.settle_s.map(|seconds| format!("settle: {seconds}s")));
    if !sketch.faults.is_empty() {
        lines.push("faults:".to_owned());
        lines.extend(sketch.faults.iter().map(fault));
    }
    lines.join("\n") + "\n"
}

pub(super) fn phases(phases: &[PhaseSketch]) -> Vec<String> {
    let line = |phase: &PhaseSketch| {
        let judged = if phase.judged { "" } else { ", judged: false" };
        format!("  - {{ name: {}, until: {}s{judged} }}", phase.name, phase.until_s)
    };
    std::iter::once("phases:".to_owned()).chain(phases.iter().map(line)).collect()
}

/// Adds `, name: value` if there is a value.
fn field(line: &mut String, name: &str, value: Option<impl std::fmt::Display>) {
    if let Some(value) = value {
        // Writing to a string does not fail.
        let _ = write!(line, ", {name}: {value}");
    }
}

pub(super) fn machine_name(index: usize) -> String {
    format!("m{}", index + 1)
}

pub(super) fn class_name(index: usize) -> String {
    format!("c{}", index + 1)
}

fn policy_class(sketch: &Sketch, index: usize, class: &ClassSketch, figures: &Figures) -> Vec<String> {
    let mut lines = vec![
        format!("    - name: {}", class_name(index)),
        format!("      upstream: {}", sketch.pools[class.pool].name),
    ];
    if let Some(keys) = class.tenants {
        lines.push(format!("      per: {{ header: X-Tenant }}\n      max_live: {keys}"));
    }
    let mut promises = Vec::new();
    promises.extend(figures.throughput.map(|rate| format!("throughput: {rate}/s")));
    if let Some((statistic, limit)) = figures.limit {
        let statistic = match statistic {
            Statistic::Average => "avg".to_owned(),
            Statistic::Percentile(p) => format!("p{p}"),
        };
        promises.push(format!("response_time: {{ {statistic}: {limit}ms }}"));
    }
    if !promises.is_empty() {
        lines.push(format!("      guarantee: {{ {} }}", promises.join(", ")));
    }
    lines.extend(figures.service_ms.map(|ms| format!("      service_time: {ms}ms")));
    let timeout = figures.limit.filter(|_| sketch.timeouts).map(|(_, limit)| tidy(TIMEOUT * limit).max(1e3));
    lines.extend(timeout.map(|ms| format!("      timeouts: {{ first_byte: {ms}ms }}")));
    if longest_ms(figures) > LONG_MS {
        lines.push("      timeouts: { first_byte: 1h, total: 1h }".to_owned());
    }
    lines
}

/// Returns the largest mean time in a node over all phases, in milliseconds.
fn longest_ms(figures: &Figures) -> f64 {
    let io = |phase: usize| figures.io.as_ref().map_or(0.0, |io| io[phase].mean());
    figures.cpu.iter().enumerate().map(|(phase, cpu)| (cpu.mean() + io(phase)) * 1e3).fold(0.0, f64::max)
}

fn traffic(sketch: &Sketch, index: usize, class: &ClassSketch, figures: &Figures) -> Vec<String> {
    let mut lines = vec![format!("  - class: {}", class_name(index))];
    lines.extend(class.tenants.map(|keys| format!("    keys: {keys}")));
    let volume: Vec<String> = figures.volume.iter().map(f64::to_string).collect();
    match class.stream {
        Stream::Users { think_s } => {
            lines.push(format!("    users: {}", changes(&sketch.phases, "users", &volume, "")));
            lines.push(format!("    think: {{ exponential: {}s }}", tidy(think_s)));
        }
        stream => {
            lines.push(format!("    rate: {}", changes(&sketch.phases, "rate", &volume, "/s")));
            match stream {
                Stream::Even => lines.push("    arrivals: even".to_owned()),
                Stream::Mmpp { burst, share, length_s } => {
                    let figures = [burst, share, length_s].map(tidy);
                    let [burst, share, length] = figures;
                    lines.push(format!(
                        "    arrivals: {{ mmpp: {{ burst: {burst}, share: {share}, length: {length}s }} }}"
                    ));
                }
                _ => {}
            }
        }
    }
    let demand = |(phase, cpu): (usize, &Distribution)| {
        let io = figures.io.as_ref().map(|io| format!(", io: {}", times(&io[phase])));
        format!("{{ cpu: {}{} }}", times(cpu), io.unwrap_or_default())
    };
    let demands: Vec<String> = figures.cpu.iter().enumerate().map(demand).collect();
    lines.push(format!("    demand: {}", changes(&sketch.phases, "demand", &demands, "")));
    if let Some(ms) = figures.patience_ms {
        lines.push(format!("    patience: {ms}ms"));
    }
    if class.retries > 0 {
        lines.push(format!("    retries: {}\n    retry_after: {{ exponential: 500ms }}", class.retries));
    }
    lines
}

/// Returns a figure, or a list of figures with the instants at which they change.
pub(super) fn changes(phases: &[PhaseSketch], field: &str, values: &[String], unit: &str) -> String {
    let is_another = |phase: &usize| *phase == 0 || values[*phase] != values[phase - 1];
    let steps: Vec<usize> = (0..values.len()).filter(is_another).collect();
    if let [only] = steps.as_slice() {
        return format!("{}{unit}", values[*only]);
    }
    let from = |phase: usize| phase.checked_sub(1).map_or(0.0, |before| phases[before].until_s);
    let step = |phase: usize| format!("{{ at: {}s, {field}: {}{unit} }}", from(phase), values[phase]);
    format!("[{}]", steps.into_iter().map(step).collect::<Vec<_>>().join(", "))
}

pub(super) fn times(distribution: &Distribution) -> String {
    let ms = |time: Duration| format!("{}ms", time.as_nanos() as f64 / 1e6);
    match *distribution {
        Distribution::Fixed(time) => ms(time),
        Distribution::Exponential { mean } => format!("{{ exponential: {} }}", ms(mean)),
        Distribution::HyperExponential { p, first, second, max } => {
            let [first, second, max] = [first, second, max].map(ms);
            format!("{{ hyper_exponential: {{ p: {p}, first: {first}, second: {second}, max: {max} }} }}")
        }
        Distribution::Pareto { shape, min, max } => {
            format!("{{ pareto: {{ shape: {shape}, min: {}, max: {} }} }}", ms(min), ms(max))
        }
        Distribution::LogNormal { median, sigma, tail, max } => {
            let tail = tail.map_or(String::new(), |tail| {
                let (share, shape) = (tail.share, tail.shape);
                format!(", tail: {{ share: {share}, shape: {shape}, from: {} }}", ms(tail.from))
            });
            format!("{{ lognormal: {{ median: {}, sigma: {sigma}{tail}, max: {} }} }}", ms(median), ms(max))
        }
    }
}

pub(super) fn fault(fault: &FaultSketch) -> String {
    let word = match fault.kind {
        FaultKind::Removed => "removed".to_owned(),
        FaultKind::Crash => "crash".to_owned(),
        FaultKind::Stall => "stall".to_owned(),
        FaultKind::Slow(speed) => format!("slow, speed: {speed}"),
        FaultKind::FailFast(share) => format!("fail_fast, share: {share}"),
        FaultKind::LostReports => "lost_reports".to_owned(),
        FaultKind::Reload => "reload".to_owned(),
        FaultKind::Restart { follows: false } => "restart".to_owned(),
        FaultKind::Restart { follows: true } => "takeover".to_owned(),
    };
    let mut line = format!("  - {{ at: {}s, fault: {word}", fault.from_s);
    field(&mut line, "until", fault.until_s.map(|until| format!("{until}s")));
    if !fault.machines.is_empty() {
        let names: Vec<String> = fault.machines.iter().copied().map(machine_name).collect();
        field(&mut line, "machines", Some(format!("[{}]", names.join(", "))));
    }
    line + " }"
}
