//! The draws of each family.
//!
//! Every scenario starts as a plain one (equal machines, one pool, two to six classes, of which nearly all
//! stay within their guarantee). Its family then makes one thing difficult.

use weirgate_engine::Statistic;
use weirgate_experiment::{FaultKind, Thrashing};

use super::draw::Draw;
use super::everyday;
use super::family::Family;
use super::sketch::{ClassSketch, FaultSketch, MachineSketch, PhaseSketch, PoolSketch, Shape, Sketch, Stream};
use super::yaml::class_name;

/// The phases' names. Those at odd indices are events.
const PHASES: [&str; 5] = ["before", "event", "between", "event2", "after"];

/// Largest share of a pool's machines that fails: the share that passive ejection leaves out by default.
const MAX_FAILING: f64 = 0.34;

pub(super) fn sketch(family: Family, draw: &mut Draw) -> Sketch {
    let mut sketch = plain(family, draw);
    let about = match family {
        Family::Surge => surge(&mut sketch, draw),
        Family::Costly => costly(&mut sketch, draw),
        Family::NodesLost => nodes_lost(&mut sketch, draw),
        Family::Bursts => bursts(&mut sketch, draw),
        Family::IoAndCpu => io_and_cpu(&mut sketch, draw),
        Family::TightPercentiles => tight_percentiles(&mut sketch, draw),
        Family::HiddenServers => hidden_servers(&mut sketch, draw),
        Family::UnequalCosts => unequal_costs(&mut sketch, draw),
        Family::Abandonment => abandonment(&mut sketch, draw),
        Family::UnequalNodes => unequal_nodes(&mut sketch, draw),
        Family::SharedPools => shared_pools(&mut sketch, draw),
        Family::WrongServiceTime => wrong_service_time(&mut sketch, draw),
        Family::ManyClasses => many_classes(&mut sketch, draw),
        Family::IdleReturn => idle_return(&mut sketch, draw),
        Family::Tenants => tenants(&mut sketch, draw),
        Family::Reload => reload(&mut sketch, draw),
        Family::LostReports => lost_reports(&mut sketch, draw),
        Family::BestEffort => best_effort(&mut sketch, draw),
        // The scenarios of this family are written in `resources`.
        Family::Resources => String::new(),
        everyday => everyday::sketch(everyday, &mut sketch, draw),
    };
    sketch.about = about;
    sketch
}

fn plain(family: Family, draw: &mut Draw) -> Sketch {
    let count = draw.whole(3, 5);
    let total = draw.between(60.0, 100.0);
    // No phase is shorter than 12 s, because its first five seconds are judged apart.
    let weights: Vec<f64> = (0..count).map(|_| draw.between(1.0, 2.0)).collect();
    let (sum, spare) = (weights.iter().sum::<f64>(), total - 12.0 * count as f64);
    let mut until_s = 0.0f64;
    let phases = weights.iter().zip(PHASES).map(|(weight, name)| {
        until_s = (until_s + 12.0 + spare * weight / sum).round();
        PhaseSketch { name, until_s, judged: true }
    });
    let phases: Vec<PhaseSketch> = phases.collect();
    let cpus = draw.pick(&[1, 2, 2, 4]);
    let thrashing = draw.chance(0.15).then(|| Thrashing {
        // With one process per request, thrashing begins at about ten requests for each CPU.
        beyond: cpus * draw.whole(8, 24) as u32,
        penalty: draw.pick(&[0.005, 0.01, 0.02, 0.04]),
    });
    let concurrency = draw.chance(0.2).then(|| cpus * draw.whole(16, 64) as u32);
    let declared = draw.chance(0.7);
    let machines: Vec<MachineSketch> = (0..draw.whole(4, 20))
        .map(|_| MachineSketch { cpus, speed: 1.0, servers: 1, concurrency, thrashing, declared })
        .collect();
    let all = (0..machines.len()).collect();
    let classes = match family {
        Family::ManyClasses => draw.whole(20, 100),
        _ => draw.whole(2, 6),
    };
    let mut sketch = Sketch {
        about: String::new(),
        delay_ms: draw.pick(&[0.1, 0.2, 0.5, 1.0, 2.0]),
        pools: vec![PoolSketch { name: "web", machines: all, health_check: draw.chance(0.4) }],
        machines,
        classes: Vec::new(),
        phases,
        faults: Vec::new(),
        timeouts: draw.chance(0.5),
        rate: draw.decades(500.0, 3000.0),
        tight: draw.between(0.65, 1.0),
        cpu_ms: None,
        at_true_cost: family.fits_at_true_cost(),
        settle_s: None,
    };
    for _ in 0..classes {
        let class = plain_class(sketch.phases.len(), draw);
        sketch.classes.push(class);
    }
    sketch
}

pub(super) fn plain_class(phases: usize, draw: &mut Draw) -> ClassSketch {
    let mut offer = within(draw);
    let offers = (0..phases).map(|_| {
        if draw.chance(0.3) {
            offer = within(draw);
        }
        offer
    });
    ClassSketch {
        pool: 0,
        tenants: None,
        offers: offers.collect(),
        share: Some(draw.between(0.3, 1.5)),
        cost: draw.decades(0.4, 2.5),
        shape: draw.pick(&[Shape::Exponential, Shape::Exponential, Shape::Fixed, Shape::Hyper]),
        io: draw.chance(0.15).then(|| (draw.decades(0.2, 2.0), Shape::Exponential)),
        cost_ratio: vec![1.0; phases],
        slower: vec![1.0; phases],
        declared: draw.chance(0.85).then_some(1.0),
        limit: draw.chance(0.9).then(|| (statistic(draw), draw.decades(4.0, 100.0))),
        stream: if draw.chance(0.1) { Stream::Even } else { Stream::Poisson },
        patience: None,
        retries: 0,
    }
}

/// Draws the share of its guarantee that a class within it sends.
fn within(draw: &mut Draw) -> f64 {
    draw.between(0.3, 0.95)
}

fn statistic(draw: &mut Draw) -> Statistic {
    draw.pick(&[
        Statistic::Average,
        Statistic::Percentile(90.0),
        Statistic::Percentile(95.0),
        Statistic::Percentile(95.0),
        Statistic::Percentile(99.0),
    ])
}

/// Draws the phases with an event: one of them, or both.
pub(super) fn events(sketch: &Sketch, draw: &mut Draw) -> Vec<usize> {
    let events: Vec<usize> = (1..sketch.phases.len()).step_by(2).collect();
    if events.len() > 1 && draw.chance(0.5) { vec![draw.pick(&events)] } else { events }
}

pub(super) fn surge(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let surging = draw.whole(1, sketch.classes.len().min(2));
    let surging = draw.some(surging, sketch.classes.len());
    let mut told = Vec::new();
    for class in surging {
        let times = draw.between(2.0, 6.0);
        for phase in events(sketch, draw) {
            sketch.classes[class].offers[phase] *= times;
        }
        told.push(format!("{} ×{times:.1}", class_name(class)));
    }
    format!("surges of {}", told.join(", "))
}

fn costly(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let class = draw.whole(0, sketch.classes.len() - 1);
    let times = draw.between(2.0, 8.0);
    for phase in events(sketch, draw) {
        sketch.classes[class].cost_ratio[phase] = times;
    }
    // The owed rate of expensive requests depends on the declared service time.
    sketch.classes[class].declared = Some(1.0);
    if draw.chance(0.4) {
        surge(sketch, draw);
        return format!("requests of {} cost ×{times:.1}, during a surge", class_name(class));
    }
    format!("requests of {} cost ×{times:.1}", class_name(class))
}

/// Draws the failing machines: at least one, and at most a third.
fn failing(sketch: &Sketch, draw: &mut Draw) -> Vec<usize> {
    let all = sketch.machines.len();
    let max = ((all as f64 * MAX_FAILING) as usize).max(1);
    let count = draw.whole(1, max);
    draw.some(count, all)
}

fn nodes_lost(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let kind = match draw.whole(0, 4) {
        0 => FaultKind::Removed,
        1 => FaultKind::Crash,
        2 => FaultKind::Stall,
        3 => FaultKind::Slow(draw.pick(&[0.2, 0.3, 0.5])),
        _ => FaultKind::FailFast(draw.pick(&[0.5, 1.0])),
    };
    let machines = failing(sketch, draw);
    let about = format!("{} of {} machines: {kind:?}", machines.len(), sketch.machines.len());
    for phase in events(sketch, draw) {
        let (from_s, until_s) = (sketch.phase_from(phase), Some(sketch.phases[phase].until_s));
        sketch.faults.push(FaultSketch { kind, from_s, until_s, machines: machines.clone() });
    }
    if draw.chance(0.4) {
        surge(sketch, draw);
        return format!("{about}, during a surge");
    }
    about
}

fn bursts(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let steady = draw.whole(0, sketch.classes.len() - 1);
    for (index, class) in sketch.classes.iter_mut().enumerate() {
        let burst = draw.between(1.5, 5.0);
        let stream = Stream::Mmpp { burst, share: draw.between(0.1, 0.8) / burst, length_s: draw.decades(0.2, 5.0) };
        if index == steady {
            // It stays within its guarantee even in a burst.
            class.stream = stream;
            class.offers.iter_mut().for_each(|offer| *offer = 0.95 / burst);
        } else if draw.chance(0.7) {
            class.stream = stream;
            let times = draw.between(1.2, 3.0);
            class.offers.iter_mut().for_each(|offer| *offer *= times);
        }
    }
    format!("bursts, those of {} within its guarantee", class_name(steady))
}

fn io_and_cpu(sketch: &mut Sketch, draw: &mut Draw) -> String {
    for (index, class) in sketch.classes.iter_mut().enumerate() {
        let shape = draw.pick(&[Shape::Exponential, Shape::Hyper, Shape::Fixed]);
        // The first class only computes, the second mainly waits.
        class.io = match index {
            0 => None,
            1 => Some((draw.decades(3.0, 20.0), shape)),
            _ => draw.chance(0.5).then(|| (draw.decades(0.5, 20.0), shape)),
        };
    }
    for machine in &mut sketch.machines {
        machine.concurrency = None;
        machine.thrashing = None;
    }
    if draw.chance(0.6) { format!("I/O and CPU, {}", surge(sketch, draw)) } else { "I/O and CPU".to_owned() }
}

fn tight_percentiles(sketch: &mut Sketch, draw: &mut Draw) -> String {
    for class in &mut sketch.classes {
        class.limit = Some((Statistic::Percentile(draw.pick(&[95.0, 99.0, 99.0])), draw.between(4.0, 8.0)));
    }
    if draw.chance(0.6) { format!("tight limits, {}", surge(sketch, draw)) } else { "tight limits".to_owned() }
}

fn hidden_servers(sketch: &mut Sketch, draw: &mut Draw) -> String {
    sketch.machines.truncate(draw.whole(3, 6));
    let (servers, declared) = (draw.whole(2, 5) as u32, draw.chance(0.5));
    for machine in &mut sketch.machines {
        (machine.servers, machine.declared) = (servers, declared);
    }
    sketch.pools[0].machines = (0..sketch.machines.len()).collect();
    format!("{servers} servers behind each of {} addresses, {}", sketch.machines.len(), surge(sketch, draw))
}

fn unequal_costs(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let last = sketch.classes.len() - 1;
    for (index, class) in sketch.classes.iter_mut().enumerate() {
        class.cost = match index {
            0 => 0.1,
            index if index == last => 10.0,
            _ => draw.decades(0.1, 10.0),
        };
    }
    format!("costs of 1 : 100, {}", surge(sketch, draw))
}

fn abandonment(sketch: &mut Sketch, draw: &mut Draw) -> String {
    for class in &mut sketch.classes {
        class.patience = Some(draw.between(0.9, 1.5));
        class.limit.get_or_insert((Statistic::Percentile(95.0), 20.0));
        class.retries = draw.whole(0, 3) as u32;
        if draw.chance(0.3) {
            class.stream = Stream::Users { think_s: draw.between(0.5, 3.0) };
        }
    }
    format!("clients leave at 0.9 to 1.5 times the limit and try again, {}", surge(sketch, draw))
}

fn unequal_nodes(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let declared = draw.chance(0.5);
    for machine in &mut sketch.machines {
        machine.cpus = draw.pick(&[1, 2, 4, 8]);
        machine.speed = draw.pick(&[0.4, 0.7, 1.0, 1.0, 1.5, 2.0]);
        machine.declared = declared;
        machine.thrashing = None;
        machine.concurrency = None;
    }
    let about = if declared { "unequal machines" } else { "unequal machines of unknown capacity" };
    if draw.chance(0.6) { format!("{about}, {}", surge(sketch, draw)) } else { about.to_owned() }
}

fn shared_pools(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let pools = draw.whole(2, 3).min(sketch.machines.len() / 2);
    let all = sketch.machines.len();
    // Each pool has its own range of machines and reaches into the next pool's.
    let each = all / pools;
    let reach = draw.whole(1, each);
    let health_check = sketch.pools[0].health_check;
    let pool = |(index, name)| {
        let machines = (index * each..(index + 1) * each + reach).map(|machine| machine % all).collect();
        PoolSketch { name, machines, health_check }
    };
    sketch.pools = ["web", "search", "shop"].into_iter().take(pools).enumerate().map(pool).collect();
    for (pool, shared) in sketch.pools.iter_mut().enumerate() {
        if pool + 1 == pools {
            shared.machines.extend(pools * each..all);
        }
        shared.machines.sort_unstable();
        shared.machines.dedup();
    }
    while sketch.classes.len() < pools {
        let class = plain_class(sketch.phases.len(), draw);
        sketch.classes.push(class);
    }
    for (index, class) in sketch.classes.iter_mut().enumerate() {
        class.pool = index % pools;
    }
    format!("{pools} pools on {all} machines, each shares {reach} with the next, {}", surge(sketch, draw))
}

fn wrong_service_time(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let times = draw.pick(&[0.5, 2.0]);
    let one = draw.chance(0.6).then(|| draw.whole(0, sketch.classes.len() - 1));
    for (index, class) in sketch.classes.iter_mut().enumerate() {
        class.declared = Some(if one.is_none_or(|one| one == index) { times } else { 1.0 });
    }
    let whose = one.map_or("every class".to_owned(), class_name);
    format!("the declared service time of {whose} is ×{times}, {}", surge(sketch, draw))
}

fn many_classes(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let all = sketch.classes.len();
    let beyond = draw.whole(1, all / 4);
    for class in draw.some(beyond, all) {
        let times = draw.between(2.0, 10.0);
        for phase in events(sketch, draw) {
            sketch.classes[class].offers[phase] *= times;
        }
    }
    format!("{all} classes, {beyond} of them surge")
}

fn idle_return(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let idle = draw.whole(0, sketch.classes.len() - 1);
    for phase in events(sketch, draw) {
        sketch.classes[idle].offers[phase] = 0.0;
    }
    let rest: Vec<usize> = (0..sketch.classes.len()).filter(|class| *class != idle).collect();
    let greedy = draw.pick(&rest);
    let times = draw.between(1.5, 5.0);
    sketch.classes[greedy].offers.iter_mut().for_each(|offer| *offer *= times);
    let about = format!("{} is idle and returns, {} takes what it leaves", class_name(idle), class_name(greedy));
    if draw.chance(0.5) {
        return about;
    }
    // All nodes hang for a moment. Nothing is judged until they go on.
    let (from_s, length) = (sketch.phases[0].until_s, draw.between(1.0, 3.0).round());
    let machines = (0..sketch.machines.len()).collect();
    sketch.faults.push(FaultSketch { kind: FaultKind::Stall, from_s, until_s: Some(from_s + length), machines });
    sketch.phases.insert(1, PhaseSketch { name: "hang", until_s: from_s + length, judged: false });
    for class in &mut sketch.classes {
        class.offers.insert(1, class.offers[0]);
        class.cost_ratio.insert(1, class.cost_ratio[0]);
        class.slower.insert(1, class.slower[0]);
    }
    format!("{about}, all nodes hang for {length} s")
}

fn tenants(sketch: &mut Sketch, draw: &mut Draw) -> String {
    sketch.classes.truncate(3);
    let keys = draw.whole(5, 60) as u32;
    let last = sketch.classes.len() - 1;
    let about = surge(sketch, draw);
    let template = &mut sketch.classes[last];
    template.tenants = Some(keys);
    template.share = Some(draw.between(0.8, 2.5));
    format!("{keys} tenants in {}, {about}", class_name(last))
}

fn reload(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let about = surge(sketch, draw);
    let end = sketch.phases[sketch.phases.len() - 1].until_s;
    let times = draw.whole(1, 4);
    for _ in 0..times {
        let from_s = draw.between(10.0, end - 5.0).round();
        sketch.faults.push(FaultSketch { kind: FaultKind::Reload, from_s, until_s: None, machines: Vec::new() });
    }
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!("the policy is loaded again {times}, {about}")
}

fn lost_reports(sketch: &mut Sketch, draw: &mut Draw) -> String {
    sketch.pools[0].health_check = true;
    for phase in events(sketch, draw) {
        let (from_s, until_s) = (sketch.phase_from(phase), Some(sketch.phases[phase].until_s));
        sketch.faults.push(FaultSketch { kind: FaultKind::LostReports, from_s, until_s, machines: Vec::new() });
    }
    if draw.chance(0.5) {
        return format!("health reports are lost, {}", surge(sketch, draw));
    }
    format!("health reports are lost, {}", nodes_lost(sketch, draw))
}

fn best_effort(sketch: &mut Sketch, draw: &mut Draw) -> String {
    let classes = draw.whole(1, 2);
    let mut wanted = 0.0;
    for _ in 0..classes {
        let mut class = plain_class(sketch.phases.len(), draw);
        class.share = None;
        class.limit = class.limit.filter(|_| draw.chance(0.3));
        class.offers.iter_mut().for_each(|offer| *offer = draw.decades(0.2, 2.0));
        wanted += class.offers.iter().copied().fold(0.0, f64::max);
        sketch.classes.push(class);
    }
    format!("best effort wants up to {wanted:.1} times the capacity")
}
