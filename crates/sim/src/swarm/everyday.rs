//! Draws of the everyday families: traffic with response times that are not CPU time, clusters that are
//! small or new, and machines that fail unseen.
//!
//! They start as plain scenarios like the others. Three things differ. CPU times are set and the rates
//! follow from them, because these families are about times. Guarantees fit at the true cost of the
//! requests, without waiting, and within the worker slots (see `figures`). No node is given up for being
//! slow, because a timeout of twice a short limit would cut long requests.

use weirgate_engine::Statistic;
use weirgate_experiment::FaultKind;

use super::draw::Draw;
use super::family::Family;
use super::ideas::{events, plain_class, surge};
use super::sketch::{ClassSketch, FaultSketch, MachineSketch, PhaseSketch, Shape, Sketch};
use super::yaml::class_name;

/// Names of the phases of a leak.
const STEPS: [&str; 10] =
    ["step1", "step2", "step3", "step4", "step5", "step6", "step7", "step8", "step9", "restarted"];

/// CPU time of a request that only holds a slot, in milliseconds: a connection is accepted and registered.
const HOLDER_CPU_MS: f64 = 0.2;

/// Turns a plain scenario into one of `family` and returns a description of its difficulty.
pub(super) fn sketch(family: Family, sketch: &mut Sketch, draw: &mut Draw) -> String {
    sketch.timeouts = false;
    sketch.cpu_ms = Some(draw.decades(2.0, 8.0));
    let (count, cpus) = (draw.whole(4, 12), draw.pick(&[1, 2, 2, 2]));
    machines(sketch, count, cpus, None);
    sketch.classes.iter_mut().for_each(limited);
    match family {
        Family::SlowDependency => slow_dependency(sketch, draw),
        Family::LongBatch => long_batch(sketch, draw),
        Family::HeavyTails => heavy_tails(sketch, draw),
        Family::LongServices => long_services(sketch, draw),
        Family::SmallClusters => small_clusters(sketch, draw),
        Family::ColdStarts => cold_starts(sketch, draw),
        Family::MajorityCrash => majority_crash(sketch, draw),
        Family::SlotHolders => slot_holders(sketch, draw),
        Family::WrongDeclarations => wrong_declarations(sketch, draw),
        Family::Leaks => leaks(sketch, draw),
        Family::SharedDatabase => shared_database(sketch, draw),
        _ => String::new(),
    }
}

/// Puts `count` equal machines behind the only pool.
fn machines(sketch: &mut Sketch, count: usize, cpus: u32, concurrency: Option<u32>) {
    let declared = sketch.machines[0].declared;
    let machine = || MachineSketch { cpus, speed: 1.0, servers: 1, concurrency, thrashing: None, declared };
    sketch.machines = (0..count).map(|_| machine()).collect();
    sketch.pools[0].machines = (0..count).collect();
}

/// Gives a class a limit if it has none. Without a limit a request counts as served in time only if it ends
/// within seconds after its phase, and long requests do not.
fn limited(class: &mut ClassSketch) {
    class.limit.get_or_insert((Statistic::Percentile(95.0), 20.0));
}

fn cpus(sketch: &Sketch) -> f64 {
    sketch.machines.iter().map(MachineSketch::capacity).sum()
}

/// Lengthens every phase so that the run lasts `total_s` seconds.
fn lengthen(sketch: &mut Sketch, total_s: f64) {
    let end = sketch.phases[sketch.phases.len() - 1].until_s;
    sketch.phases.iter_mut().for_each(|phase| phase.until_s = (phase.until_s * total_s / end).round());
}

/// Adds a surge to the scenario with probability `chance`.
fn beside(about: String, sketch: &mut Sketch, chance: f64, draw: &mut Draw) -> String {
    if draw.chance(chance) { format!("{about}, {}", surge(sketch, draw)) } else { about }
}

fn slow_dependency(sketch: &mut Sketch, draw: &mut Draw) -> String {
    if draw.chance(0.3) {
        // Nodes that take hundreds of requests at a time. In some scenarios that is enough, in others not.
        let (count, cpus) = (sketch.machines.len(), sketch.machines[0].cpus);
        machines(sketch, count, cpus, Some(cpus * draw.whole(64, 256) as u32));
    }
    let times = draw.decades(5.0, 50.0);
    let asks = draw.whole(1, sketch.classes.len());
    let asking = draw.some(asks, sketch.classes.len());
    let events = events(sketch, draw);
    for &class in &asking {
        let class = &mut sketch.classes[class];
        class.io = Some((draw.decades(1.0, 4.0), draw.pick(&[Shape::Exponential, Shape::Fixed, Shape::Hyper])));
        events.iter().for_each(|&phase| class.slower[phase] = times);
    }
    let who: Vec<String> = asking.into_iter().map(class_name).collect();
    beside(format!("a dependency of {} waits ×{times:.0}", who.join(", ")), sketch, 0.3, draw)
}

fn shared_database(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let (count, cpus) = (draw.whole(1, 12), draw.whole(1, 4) as u32);
    machines(sketch, count, cpus, None);
    // Of the processors' time, 28 to 74 % is guaranteed.
    sketch.tight = draw.between(0.3, 0.8);
    // The database is slow in the second phase, for a minute.
    sketch.phases.truncate(3);
    for (phase, until_s) in sketch.phases.iter_mut().zip([40.0, 100.0, 130.0]) {
        phase.until_s = until_s;
    }
    sketch.classes.truncate(4);
    if draw.chance(0.7) {
        let mut best_effort = plain_class(sketch.phases.len(), draw);
        (best_effort.share, best_effort.limit) = (None, None);
        best_effort.offers.fill(draw.decades(0.02, 0.5));
        sketch.classes.push(best_effort);
    }
    let guaranteed = sketch.classes.iter().filter(|class| class.share.is_some()).count();
    let times = draw.decades(4.0, 40.0);
    let asking: Vec<usize> = if draw.chance(0.6) { (0..guaranteed).collect() } else { draw.some(1, guaranteed) };
    for class in &mut sketch.classes {
        class.declared = class.declared.filter(|_| draw.chance(0.8));
        for per_phase in [&mut class.offers, &mut class.cost_ratio, &mut class.slower] {
            per_phase.truncate(3);
        }
        // Over the p95 of the slow phase, which is some three times the mean.
        class.limit = class.limit.map(|(statistic, _)| (statistic, draw.between(0.8, 5.0)));
    }
    for &class in &asking {
        let class = &mut sketch.classes[class];
        class.io = Some((draw.decades(0.5, 10.0), draw.pick(&[Shape::Exponential, Shape::Exponential, Shape::Hyper])));
        class.slower[1] = times;
    }
    let who: Vec<String> = asking.into_iter().map(class_name).collect();
    let about = format!("a database of {} takes ×{times:.0}", who.join(", "));
    if draw.chance(0.5) {
        return about;
    }
    let surging = draw.whole(1, guaranteed) - 1;
    sketch.classes[surging].offers[1] = draw.between(2.0, 5.0);
    format!("{about}, {} surges", class_name(surging))
}

fn long_batch(sketch: &mut Sketch, draw: &mut Draw) -> String {
    lengthen(sketch, draw.between(120.0, 200.0));
    sketch.classes.truncate(4);
    let events = events(sketch, draw);
    let guaranteed = draw.chance(0.4);
    let long_s = if guaranteed { draw.decades(1.0, 6.0) } else { draw.decades(1.0, 60.0) };
    let mut class = plain_class(sketch.phases.len(), draw);
    class.declared = class.declared.filter(|_| draw.chance(0.5));
    class.shape = draw.pick(&[Shape::Exponential, Shape::Fixed]);
    // Some batches compute, others wait for a dependency.
    class.io = draw.chance(0.4).then(|| (draw.decades(3.0, 20.0), Shape::Exponential));
    let unit_ms = sketch.cpu_ms.unwrap_or(1.0);
    class.cost = long_s * 1e3 / unit_ms / (1.0 + class.io.map_or(0.0, |(io, _)| io));
    let times = draw.decades(2.0, 20.0);
    if guaranteed {
        // A part of the cluster that is large enough for some requests in a phase.
        class.share = Some(draw.between(0.5, 1.5));
        limited(&mut class);
        events.iter().for_each(|&phase| class.offers[phase] *= times);
    } else {
        class.share = None;
        class.limit = None;
        class.offers.iter_mut().for_each(|offer| *offer = 0.02);
        events.iter().for_each(|&phase| class.offers[phase] = draw.decades(0.3, 3.0));
    }
    sketch.classes.push(class);
    let whose = if guaranteed { "surplus" } else { "best-effort" };
    format!("{whose} requests of {long_s:.1} s with short ones")
}

fn heavy_tails(sketch: &mut Sketch, draw: &mut Draw) -> String {
    for machine in &mut sketch.machines {
        // With only one CPU, a long request halves the speed of all others there.
        machine.cpus = machine.cpus.max(2);
    }
    let count = draw.whole(1, sketch.classes.len().min(2));
    let mut told = Vec::new();
    for index in draw.some(count, sketch.classes.len()) {
        let (share, times) = (draw.decades(0.005, 0.03), draw.decades(20.0, 100.0));
        let class = &mut sketch.classes[index];
        let tail = Shape::Tail { share, times };
        if draw.chance(0.3) {
            class.io = Some((draw.decades(0.5, 2.0), tail));
        } else {
            class.shape = tail;
        }
        // A percentile close to the tail's share would describe short requests in one run and long ones in
        // the next.
        let statistic = draw.pick(&[Statistic::Average, Statistic::Percentile(90.0), Statistic::Percentile(95.0)]);
        class.limit = class.limit.map(|(_, factor)| (statistic, factor));
        told.push(format!("{:.1} % of {} take ×{times:.0}", share * 100.0, class_name(index)));
    }
    beside(told.join(", "), sketch, 0.6, draw)
}

fn long_services(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let cpu_s = draw.decades(1.0, 20.0);
    sketch.cpu_ms = Some(cpu_s * 1e3);
    let (count, cpus) = (draw.whole(4, 12), draw.pick(&[4, 8]));
    let concurrency = draw.chance(0.3).then(|| cpus * draw.whole(2, 8) as u32);
    machines(sketch, count, cpus, concurrency);
    // Each phase has room for some generations of requests.
    let total_s = sketch.phases.len() as f64 * (60.0 + 10.0 * cpu_s);
    lengthen(sketch, total_s);
    sketch.classes.truncate(3);
    let declared = draw.chance(0.5);
    for class in &mut sketch.classes {
        class.declared = declared.then_some(1.0);
        class.shape = draw.pick(&[Shape::Exponential, Shape::Exponential, Shape::Hyper]);
        class.io = draw.chance(0.4).then(|| (draw.decades(0.2, 3.0), Shape::Exponential));
    }
    if draw.chance(0.4) {
        let mut class = plain_class(sketch.phases.len(), draw);
        (class.share, class.limit) = (None, None);
        class.offers.iter_mut().for_each(|offer| *offer = draw.decades(0.1, 1.0));
        sketch.classes.push(class);
    }
    let told = if declared { "declared" } else { "undeclared" };
    beside(format!("requests of about {cpu_s:.0} s, {told}"), sketch, 0.6, draw)
}

fn small_clusters(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let (count, cpus) = draw.pick(&[(1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (1, 8), (2, 4), (4, 2)]);
    let workers = draw.pick(&[Some(cpus), Some(cpus), Some(2 * cpus), None]);
    machines(sketch, count, cpus, workers);
    sketch.cpu_ms = Some(draw.decades(10.0, 60.0));
    // One worker at 92 % needs limits of a hundred service times.
    sketch.tight = draw.between(0.4, 0.9);
    sketch.classes.truncate(4);
    let all = count as u32 * cpus;
    let mut about = format!("{all} workers in all");
    if draw.chance(0.4) && sketch.classes.len() > 1 {
        let last = sketch.classes.len() - 1;
        let keys = draw.whole(3, 10) as u32;
        let template = &mut sketch.classes[last];
        (template.tenants, template.share) = (Some(keys), Some(draw.between(0.8, 2.5)));
        about += &format!(", {keys} tenants in {}", class_name(last));
    }
    if draw.chance(0.7) {
        let class = draw.whole(0, sketch.classes.len() - 1);
        let times = draw.between(2.0, 10.0);
        for phase in events(sketch, draw) {
            sketch.classes[class].cost_ratio[phase] = times;
        }
        sketch.classes[class].declared = Some(1.0);
        about += &format!(", pages of {} cost ×{times:.1}", class_name(class));
        return beside(about, sketch, 0.2, draw);
    }
    beside(about, sketch, 0.7, draw)
}

fn cold_starts(sketch: &mut Sketch, draw: &mut Draw) -> String {
    sketch.tight = draw.between(0.85, 1.0);
    sketch.settle_s = Some(0.0);
    if draw.chance(0.6) {
        sketch.delay_ms = draw.between(20.0, 100.0).round();
    }
    let load = draw.between(0.3, 0.75);
    for class in &mut sketch.classes {
        class.declared = None;
        // Relative to the guarantees, which leave at least 8 % of the capacity.
        let offer = (load / 0.92 / sketch.tight).min(0.95);
        class.offers.iter_mut().for_each(|it| *it = offer);
        if draw.chance(0.7) {
            class.io = Some((draw.decades(1.0, 15.0), draw.pick(&[Shape::Exponential, Shape::Hyper])));
        }
    }
    if draw.chance(0.3) {
        // One class begins later, when the others are known.
        let late = draw.whole(0, sketch.classes.len() - 1);
        sketch.classes[late].offers[0] = 0.0;
    }
    format!("a start at {:.0} % load, {:.0} ms away, nothing declared", load * 100.0, 2.0 * sketch.delay_ms)
}

fn majority_crash(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let (count, cpus) = (draw.whole(5, 20), draw.pick(&[1, 2, 2]));
    machines(sketch, count, cpus, None);
    sketch.pools[0].health_check = false;
    let kind = match draw.whole(0, 2) {
        0 => FaultKind::Crash,
        1 => FaultKind::FailFast(draw.pick(&[0.9, 1.0])),
        _ => FaultKind::FailFast((draw.between(0.1, 0.6) * 20.0).round() / 20.0),
    };
    let failing = ((count as f64 * draw.between(1.0 / 3.0, 0.8)).round() as usize).clamp(2, count - 1);
    let machines = draw.some(failing, count);
    for phase in events(sketch, draw) {
        let (from_s, until_s) = (sketch.phase_from(phase), Some(sketch.phases[phase].until_s));
        sketch.faults.push(FaultSketch { kind, from_s, until_s, machines: machines.clone() });
    }
    beside(format!("{failing} of {count} machines, without health checks: {kind:?}"), sketch, 0.3, draw)
}

fn slot_holders(sketch: &mut Sketch, draw: &mut Draw) -> String {
    lengthen(sketch, draw.between(90.0, 150.0));
    let (count, cpus) = (sketch.machines.len(), sketch.machines[0].cpus);
    let slots = match draw.whole(0, 2) {
        0 => None,
        1 => Some(cpus * draw.whole(8, 32) as u32),
        _ => Some(cpus * draw.whole(100, 500) as u32),
    };
    machines(sketch, count, cpus, slots);
    let unit_ms = sketch.cpu_ms.unwrap_or(1.0);
    let from = draw.whole(0, 1);
    let mut told = Vec::new();
    for _ in 0..draw.whole(1, 2) {
        let (clients, hold_s) = (draw.decades(20.0, 400.0), draw.decades(3.0, 120.0));
        let mut class = plain_class(sketch.phases.len(), draw);
        (class.share, class.limit) = (None, None);
        class.declared = None;
        class.shape = Shape::Exponential;
        class.cost = HOLDER_CPU_MS / unit_ms;
        class.io = Some((hold_s * 1e3 / HOLDER_CPU_MS, draw.pick(&[Shape::Exponential, Shape::Fixed])));
        // The arrival rate by Little's law, as work over the capacity.
        let offer = clients / hold_s * HOLDER_CPU_MS / 1e3 / self::cpus(sketch);
        class.offers.iter_mut().enumerate().for_each(|(phase, it)| *it = if phase >= from { offer } else { 0.0 });
        sketch.classes.push(class);
        told.push(format!("{clients:.0} clients hold slots for {hold_s:.0} s each"));
    }
    beside(told.join(", "), sketch, 0.3, draw)
}

fn wrong_declarations(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let waits = draw.chance(0.5);
    let one = draw.chance(0.4).then(|| draw.whole(0, sketch.classes.len() - 1));
    let alike = draw.chance(0.5).then(|| draw.decades(0.1, 10.0));
    // A common mistake: the CPU time is declared, but the requests mainly wait.
    let as_cpu_time = waits && draw.chance(0.3);
    let mut told = Vec::new();
    for (index, class) in sketch.classes.iter_mut().enumerate() {
        class.io = waits.then(|| (draw.decades(3.0, 20.0), draw.pick(&[Shape::Exponential, Shape::Hyper])));
        let times = match class.io {
            Some((io, _)) if as_cpu_time => 1.0 / (1.0 + io),
            _ => alike.unwrap_or_else(|| draw.decades(0.1, 10.0)),
        };
        let wrong = one.is_none_or(|one| one == index);
        class.declared = Some(if wrong { times } else { 1.0 });
        if wrong {
            told.push(format!("{} ×{times:.2}", class_name(index)));
        }
    }
    let what = if waits { "requests mostly wait" } else { "requests compute" };
    beside(format!("declared service times: {}, {what}", told.join(", ")), sketch, 0.4, draw)
}

fn leaks(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let steps = draw.whole(5, 9);
    let mut until_s = 0.0;
    let names = STEPS[..steps].iter().chain(STEPS.last());
    let phases = names.map(|name| {
        until_s += draw.between(12.0, 16.0).round();
        PhaseSketch { name, until_s, judged: true }
    });
    sketch.phases = phases.collect();
    let phases = sketch.phases.len();
    let computes = draw.chance(0.5);
    let times = if computes { draw.between(1.5, 4.0) } else { draw.between(3.0, 10.0) };
    let one = draw.chance(0.5).then(|| draw.whole(0, sketch.classes.len() - 1));
    for (index, class) in sketch.classes.iter_mut().enumerate() {
        *class = ClassSketch { offers: vec![class.offers[0]; phases], cost_ratio: vec![1.0; phases], ..class.clone() };
        class.slower = vec![1.0; phases];
        if one.is_some_and(|one| one != index) {
            continue;
        }
        if !computes {
            class.io = Some((draw.decades(1.0, 10.0), Shape::Exponential));
        }
        let grown = if computes { &mut class.cost_ratio } else { &mut class.slower };
        // The same factor in every step, until a restart.
        let step = |phase: usize| (times.powf(phase as f64 / (steps - 1) as f64) * 100.0).round() / 100.0;
        grown.iter_mut().take(steps).enumerate().for_each(|(phase, it)| *it = step(phase));
    }
    let (whose, what) = (one.map_or("every class".to_owned(), class_name), if computes { "cost" } else { "wait" });
    beside(format!("requests of {whose} {what} ×{times:.1} in the end"), sketch, 0.3, draw)
}
