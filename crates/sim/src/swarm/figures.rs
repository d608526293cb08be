//! Turns relations into figures: rates, times and guarantees that fit the cluster by construction.
//!
//! The steps are, in this order: scale the guaranteed work to the room that the rule leaves in the worst
//! phase, scale the CPU times so that the first phase has the drawn rate, derive the guarantees from both,
//! and derive the limits from the times that an unloaded and a fully owed cluster would need.

use weirgate_engine::Statistic;
use weirgate_experiment::Distribution;

use super::draw::Draw;
use super::rule::{MAX_OWED, declared_cpu};
use super::sketch::{ClassSketch, MachineSketch, Shape, Sketch, Stream, tidy, tidy_down, tidy_up};
use super::slots;

/// Maximum number of requests per second of all classes. It is more than twice the largest drawn rate, so
/// that surges show, while a run stays below a second of computing.
const MAX_RATE: f64 = 9_000.0;

/// Maximum wanted work in any phase, over the capacity. Beyond it everything is shed alike.
const MAX_WANTED: f64 = 4.0;

/// Range of CPU times, in milliseconds. Below it the gateway and not the cluster is the bottleneck. Above
/// it a phase has too few requests to judge.
const CPU_MS: (f64, f64) = (0.3, 250.0);

/// Number of draws for an estimate of the unloaded response time. The p99 of 4000 rests on 40 of them.
const SAMPLES: usize = 4_000;

/// The p95 of an exponential time over its mean: ln 20.
const P95: f64 = 3.0;

pub(super) struct Figures {
    /// CPU time per phase.
    pub(super) cpu: Vec<Distribution>,
    /// Time without a CPU, per phase.
    pub(super) io: Option<Vec<Distribution>>,
    /// Guaranteed requests per second (of each key).
    pub(super) throughput: Option<f64>,
    /// The limit, in milliseconds.
    pub(super) limit: Option<(Statistic, f64)>,
    /// Declared service time, in milliseconds.
    pub(super) service_ms: Option<f64>,
    /// Requests per second, or users, per phase.
    pub(super) volume: Vec<f64>,
    /// Patience of the clients, in milliseconds.
    pub(super) patience_ms: Option<f64>,
}

pub(super) fn figures(sketch: &Sketch, draw: &mut Draw) -> Vec<Figures> {
    let works: Vec<Work> = sketch.classes.iter().map(|class| Work::new(class, sketch)).collect();
    let room = room(sketch, &works) * sketch.tight;
    // Requests per second and CPU millisecond. Rates are inverse to the unit of CPU time.
    let rates = |phase: usize| -> f64 { works.iter().map(|work| work.rate(phase, room)).sum() };
    let largest = (0..sketch.phases.len()).map(rates).fold(0.0, f64::max);
    let unit = sketch.cpu_ms.map_or(rates(0) / sketch.rate, |ms| ms / 1e3).max(largest / MAX_RATE);
    let calm: Vec<f64> = (0..sketch.phases.len()).map(|phase| moderation(sketch, &works, phase, room)).collect();
    let classes = sketch.classes.iter().zip(&works);
    classes.map(|(class, work)| class_figures(sketch, class, work, [unit, room], &calm, draw)).collect()
}

/// CPU demand of a class, per request of relative cost.
struct Work {
    /// Mean CPU time over the unit.
    cost: f64,
    /// Largest owed work over normal work, over the phases. More expensive requests are owed less often.
    owed: f64,
    share: Option<f64>,
    /// Number of keys with the guarantee: 1, or a template's.
    keys: f64,
    /// Requests sent for all keys over those sent for the most popular one. By Zipf's law the n-th key
    /// sends 1/n.
    popular: f64,
    offers: Vec<f64>,
    cost_ratio: Vec<f64>,
    capacity: f64,
}

impl Work {
    fn new(class: &ClassSketch, sketch: &Sketch) -> Work {
        let io = class.io.map_or(0.0, |(io, _)| io);
        let first = class.cost_ratio.first().copied().unwrap_or(1.0);
        let declared = class.declared.map(|declared| declared_cpu(declared * (1.0 + io), [first, io]));
        let owed = |cost_ratio: &f64| match sketch.at_true_cost {
            // At least the normal cost is owed, whichever part of a declared time is CPU time.
            true => class.declared.map_or(*cost_ratio, |d| (d * (1.0 + io)).max(1.0).min(*cost_ratio)),
            false => declared.map_or(*cost_ratio, |declared| declared.min(*cost_ratio)),
        };
        let machines = &sketch.pools[class.pool].machines;
        Work {
            cost: class.cost * class.shape.of(1.0).mean() * 1e3,
            owed: class.cost_ratio.iter().map(owed).fold(0.0, f64::max),
            share: class.share,
            keys: f64::from(class.tenants.unwrap_or(1)),
            popular: (1..=class.tenants.unwrap_or(1)).map(|rank| 1.0 / f64::from(rank)).sum(),
            offers: class.offers.clone(),
            cost_ratio: class.cost_ratio.clone(),
            capacity: machines.iter().map(|&m| sketch.machines[m].capacity()).sum(),
        }
    }

    /// Returns the requests sent per second, times the unit of CPU time.
    fn rate(&self, phase: usize, room: f64) -> f64 {
        let full = match self.share {
            Some(share) => self.popular * room * share / (self.cost * self.owed * self.keys),
            None => self.capacity / self.cost,
        };
        self.offers[phase] * full
    }
}

/// Returns the work per share that fits by the rule, in every judged phase and for every set of pools.
fn room(sketch: &Sketch, works: &[Work]) -> f64 {
    let mut room = f64::INFINITY;
    for phase in (0..sketch.phases.len()).filter(|phase| sketch.phases[*phase].judged) {
        for set in 1u32..1 << sketch.pools.len() {
            let within = |pool: usize| set >> pool & 1 == 1;
            let serves = |machine: usize| {
                sketch.pools.iter().enumerate().any(|(pool, it)| within(pool) && it.machines.contains(&machine))
            };
            let machines = (0..sketch.machines.len()).filter(|&machine| serves(machine));
            let classes = sketch.classes.iter().zip(works).filter(|(class, _)| within(class.pool));
            let shares: f64 = classes.clone().filter_map(|(_, work)| work.share).sum();
            let does = |m: usize| match sketch.at_true_cost {
                true => with_slots(&sketch.machines[m], classes.clone(), phase),
                false => sketch.machines[m].capacity(),
            };
            let capacity: f64 = machines.map(|m| does(m) * sketch.usable(m, phase)).sum();
            if shares > 0.0 {
                room = room.min(MAX_OWED * capacity / shares);
            }
        }
    }
    room
}

/// Returns the CPU-seconds of a nominal CPU per second that `machine` does for the owed work of `classes`
/// in `phase`. If slots are few, requests that wait keep them from requests that would compute.
fn with_slots<'a>(
    machine: &MachineSketch,
    classes: impl Iterator<Item = (&'a ClassSketch, &'a Work)>,
    phase: usize,
) -> f64 {
    let Some(slots) = machine.concurrency else { return machine.capacity() };
    let (mut cpu, mut io) = (0.0, 0.0);
    for (class, work) in classes {
        let Some(share) = work.share else { continue };
        // Guaranteed work over the largest owed work. A class that is more expensive now is owed fewer
        // requests.
        let normal = share / work.owed;
        let fewer = (work.owed / work.cost_ratio[phase]).min(1.0);
        cpu += normal * fewer * work.cost_ratio[phase];
        io += normal * fewer * class.io.map_or(0.0, |(io, _)| io * class.slower[phase]);
    }
    if cpu == 0.0 {
        return machine.capacity();
    }
    let busy = slots::busy_cpus(slots, machine.cpus, cpu / machine.speed, io);
    machine.capacity() * busy / f64::from(machine.cpus)
}

/// Returns the factor on the requests beyond the guarantees in `phase` that keeps the wanted work at
/// `MAX_WANTED` times the capacity or less.
fn moderation(sketch: &Sketch, works: &[Work], phase: usize, room: f64) -> f64 {
    let capacity: f64 = sketch.machines.iter().map(|machine| machine.capacity()).sum();
    let (mut within, mut beyond) = (0.0, 0.0);
    for work in works {
        let wanted = work.rate(phase, room) * work.cost * work.cost_ratio[phase];
        if is_within(work, phase) { within += wanted } else { beyond += wanted }
    }
    let max = (MAX_WANTED * capacity - within).max(0.0);
    if beyond > max { max / beyond } else { 1.0 }
}

/// Returns whether the class stays within its guarantee in `phase`.
fn is_within(work: &Work, phase: usize) -> bool {
    work.share.is_some() && work.offers[phase] <= 0.95
}

fn class_figures(
    sketch: &Sketch,
    class: &ClassSketch,
    work: &Work,
    [unit, room]: [f64; 2],
    calm: &[f64],
    draw: &mut Draw,
) -> Figures {
    let mean_ms = class.cost * unit * 1e3;
    // A family that sets CPU times needs no clamping.
    let mean_ms = if sketch.cpu_ms.is_some() { mean_ms } else { mean_ms.clamp(CPU_MS.0, CPU_MS.1) };
    let cpu: Vec<Distribution> =
        class.cost_ratio.iter().map(|cost_ratio| class.shape.of(mean_ms * cost_ratio)).collect();
    let io: Option<Vec<Distribution>> =
        class.io.map(|(times, shape)| class.slower.iter().map(|slower| shape.of(mean_ms * times * slower)).collect());
    let io_ms = class.io.map_or(0.0, |(times, shape)| shape.of(mean_ms * times).mean() * 1e3);
    let normal_ms = class.shape.of(mean_ms).mean() * 1e3;
    let service_ms = class.declared.map(|declared| tidy((normal_ms + io_ms) * declared));
    // Use the rounded figures, because the rule must hold for the values in the file.
    let first_ms = cpu.first().map_or(normal_ms, |cpu| cpu.mean() * 1e3);
    let declared_ms = service_ms.map(|service| declared_cpu(service, [first_ms, io_ms]));
    let owed_ms = cpu.iter().map(|cpu| {
        let cpu_ms = cpu.mean() * 1e3;
        if sketch.at_true_cost {
            return service_ms.map_or(cpu_ms, |declared| declared.max(normal_ms).min(cpu_ms));
        }
        declared_ms.map_or(cpu_ms, |declared| declared.min(cpu_ms))
    });
    let owed_ms = owed_ms.fold(0.0, f64::max);
    let throughput = work.share.map(|share| tidy_down(room * share / (owed_ms / 1e3 * work.keys)));
    let limit = class.limit.map(|(statistic, factor)| {
        let limit = limit_ms(sketch, class, &cpu, io.as_deref(), (statistic, factor), draw);
        let limit = limit + blocking_ms(sketch, class.pool, unit);
        // A file with a limit below a declared service time is refused, also if the declaration is wrong.
        (statistic, tidy_up(limit.max(service_ms.unwrap_or(0.0))))
    });
    let volume = (0..sketch.phases.len()).map(|phase| {
        let reduced = if is_within(work, phase) { 1.0 } else { calm[phase] };
        let rate = reduced
            * match throughput {
                Some(g) => g * work.popular * class.offers[phase],
                None => class.offers[phase] * work.capacity / (normal_ms / 1e3),
            };
        match class.stream {
            // Each of N users sends at most once per think time.
            Stream::Users { think_s } => (rate * think_s).floor(),
            _ => tidy_down(rate),
        }
    });
    Figures {
        volume: volume.collect(),
        cpu,
        io,
        throughput,
        limit,
        service_ms,
        patience_ms: class.patience.zip(limit).map(|(times, (_, limit))| tidy(times * limit)),
    }
}

/// Returns a limit that can be held, in milliseconds: `factor` times the unloaded p95, or more if that is
/// not enough for requests that never wait at the gateway.
///
/// With k CPUs of utilisation ρ, M/M/k queues add about ρ^(√(2(k+1))−1) / (k·(1−ρ)) service times
/// (Sakasegawa, 1977) to the mean. Processor sharing stretches long and short requests by that factor
/// alike. Two and a half times the mean is the p92 of an exponential wait. The factor 1.5 leaves room for
/// the discipline.
fn limit_ms(
    sketch: &Sketch,
    class: &ClassSketch,
    cpu: &[Distribution],
    io: Option<&[Distribution]>,
    (statistic, factor): (Statistic, f64),
    draw: &mut Draw,
) -> f64 {
    let machines = &sketch.pools[class.pool].machines;
    let mut limit = 0.0f64;
    let mut seen = Vec::new();
    for (phase, cpu) in cpu.iter().enumerate().filter(|(phase, _)| sketch.phases[*phase].judged) {
        // Phases usually differ in their rates only.
        let io = io.map(|io| io[phase]);
        let setting = (*cpu, io, machines.iter().map(|&m| sketch.usable(m, phase)).collect::<Vec<f64>>());
        if seen.contains(&setting) {
            continue;
        }
        seen.push(setting);
        let live = |m: usize| sketch.machines[m].capacity() * sketch.usable(m, phase);
        let capacity: f64 = machines.iter().map(|&m| live(m)).sum();
        let cpus: f64 = machines
            .iter()
            .map(|&m| f64::from(sketch.machines[m].cpus * sketch.machines[m].servers) * sketch.usable(m, phase).ceil())
            .sum();
        let hidden = machines.iter().any(|&m| sketch.machines[m].servers > 1);
        let mut times = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES {
            let mut at = draw.between(0.0, capacity);
            let chosen = machines.iter().copied().find(|&m| {
                at -= live(m);
                at < 0.0
            });
            let Some(machine) = chosen else { continue };
            let speed = sketch.machines[machine].speed * sketch.usable(machine, phase);
            let waits = io.map_or(0.0, |io| draw.time(&io));
            times.push((draw.time(cpu) / speed + waits) * 1e3 + 2.0 * sketch.delay_ms);
        }
        times.sort_unstable_by(f64::total_cmp);
        let percentile = |p: f64| times[((times.len() as f64 * p / 100.0) as usize).min(times.len() - 1)];
        let limited = match statistic {
            Statistic::Average => times.iter().sum::<f64>() / times.len() as f64,
            Statistic::Percentile(p) => percentile(p),
        };
        let busy = MAX_OWED * sketch.tight;
        let wait = slots::wait(cpus, busy);
        // Servers that take turns behind one address queue as if they were alone.
        let wait = if hidden { wait * 2.0 } else { wait };
        let unloaded = if sketch.at_true_cost { limited.max(percentile(95.0)) } else { percentile(95.0) };
        limit = limit.max(factor * unloaded).max(1.5 * limited * (1.0 + 2.5 * wait));
    }
    limit
}

/// Returns the extra delay of requests of `pool`, in milliseconds, because requests in flight cannot be
/// interrupted. It is 0 if slots are not limited, because CPUs are shared then.
///
/// An ideal scheduler knows everything and serves owed requests first, but a worker ends a long request
/// that it has begun. With k workers a request finds the mean wait of the M/G/k queue: that of M/M/k times
/// (1 + c²)/2, for the mixed times of all owed requests. Its p95 is at most three times that, as for an
/// exponential wait. The p95 of the longest class over k is added: the time until the first of k workers is
/// free, if all began such requests at different times.
fn blocking_ms(sketch: &Sketch, pool: usize, unit: f64) -> f64 {
    if !sketch.at_true_cost {
        return 0.0;
    }
    let machines = sketch.pools[pool].machines.iter().map(|&m| (m, &sketch.machines[m]));
    let mut max = 0.0f64;
    for phase in (0..sketch.phases.len()).filter(|phase| sketch.phases[*phase].judged) {
        let mut workers = 0.0;
        for (index, machine) in machines.clone() {
            let Some(slots) = machine.concurrency else { return 0.0 };
            workers += f64::from(slots * machine.servers) * sketch.usable(index, phase).ceil();
        }
        // Moments of the time in a worker, weighted by owed requests.
        let (mut rate, mut first, mut second, mut longest) = (0.0, 0.0, 0.0, 0.0f64);
        for class in &sketch.classes {
            let Some(share) = class.share.filter(|_| class.pool == pool) else { continue };
            let mean = |relative: f64, shape: Shape| shape.of(class.cost * unit * 1e3 * relative).mean() * 1e3;
            let (waits, io) = class.io.map_or((0.0, Shape::Fixed), |(io, shape)| (io * class.slower[phase], shape));
            let (cpu_ms, io_ms) = (mean(class.cost_ratio[phase], class.shape), mean(waits, io));
            let owed = share / (class.cost * class.cost_ratio[phase]);
            rate += owed;
            first += owed * (cpu_ms + io_ms);
            second += owed
                * ((cpu_ms + io_ms).powi(2)
                    + class.shape.variation() * cpu_ms.powi(2)
                    + io.variation() * io_ms.powi(2));
            longest = longest.max(P95 * (cpu_ms + io_ms));
        }
        if rate > 0.0 {
            let squares = rate * second / (first * first);
            let mean = slots::wait(workers, MAX_OWED * sketch.tight) * squares / 2.0 * first / rate;
            max = max.max(P95 * mean + longest / workers);
        }
    }
    max
}
