//! Cost of the clients and of the nodes themselves: CPU time per request over loopback, with keep-alive and
//! 1 KiB replies. Run with `cargo bench -p weirgate-emulator`. Linux only, because it reads `/proc`.

use std::fs;
use std::time::Duration;

use weirgate_emulator::client::{ClassPlan, Load, Phase, Plan, Statistic};
use weirgate_emulator::{Cluster, Distribution, NodeSpec};

/// Ticks per second of CPU times in `/proc`: hundredths of a second on every Linux.
const TICKS: f64 = 100.0;

/// CPU seconds of a process or thread, from its `stat` file.
fn cpu_seconds(stat: &str) -> f64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |n: usize| after_name.split_whitespace().nth(n).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (field(11) + field(12)) / TICKS
}

/// CPU seconds of the live thread called `name`.
fn thread_seconds(name: &str) -> f64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    // The kernel keeps 15 bytes of a thread's name.
    let mark = format!("({})", &name[..name.len().min(15)]);
    stats.filter(|stat| stat.contains(&mark)).map(|stat| cpu_seconds(&stat)).sum()
}

fn main() -> std::io::Result<()> {
    println!("rate/s    served/s  late avg  late p99  resp p99   CPU/request: clients   nodes");
    for rate in [5_000.0, 20_000.0, 30_000.0, 40_000.0] {
        let nodes = (0..4).map(|i| NodeSpec::new(format!("node-{i}"), 2)).collect();
        let cluster = Cluster::start(nodes, 1)?;
        let class = |i: usize| ClassPlan::new(format!("class-{i}"), cluster.addresses()[i], "x");
        let demand = Distribution::Fixed(Duration::from_micros(50));
        let load = Load::poisson(rate / 4.0, demand, "/?demand={us}us");
        let phase = Phase::new("steady", Duration::from_secs(3), vec![load; 4]);
        let before = fs::read_to_string("/proc/self/stat").map(|s| cpu_seconds(&s))?;
        let report = Plan::new((0..4).map(class).collect(), vec![phase]).start()?.join()?;
        let all = fs::read_to_string("/proc/self/stat").map(|s| cpu_seconds(&s))? - before;
        let nodes = thread_seconds("emulated-nodes");
        let mut total = report.classes[0].total();
        for class in &report.classes[1..] {
            total.add(&class.total());
        }
        let served = total.served as f64;
        println!(
            "{rate:<9} {:<9.0} {:>5.0} µs  {:>5} µs  {:>7.0?}  {:>19.1} µs  {:>3.1} µs  {}",
            served / report.elapsed.as_secs_f64(),
            report.lateness.mean(),
            report.lateness.value_at_percentile(99.0),
            total.response_time(Statistic::Percentile(99.0)).unwrap_or_default(),
            (all - nodes) / served * 1e6,
            nodes / served * 1e6,
            if total.served == total.arrivals { "" } else { "(not all were served)" },
        );
    }
    Ok(())
}
