//! Measures the CPU cost and the highest rate of the load generator against one emulated node without demand, on
//! another CPU if there are two. Then runs the same closed loop with wrk and oha, if they are installed.
//!
//! Run it with `cargo bench -p weirgate-lab`. Add `-- WORD` to run only the lines with the word in their name.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use weirgate_emulator::{Cluster, NodeSpec, clock};
use weirgate_experiment::{Experiment, Fate};
use weirgate_lab::load::{self, Plan, Template};
use weirgate_lab::process::{self, Process};

const SECONDS: u64 = 3;

/// Maximum number of connections. At 70,000 requests/s all of them are in use once a reply takes 15 ms.
const CONNECTIONS: usize = 1024;

/// Number of users in the closed loop.
const USERS: usize = 64;

/// Returns an experiment with one traffic source.
fn experiment(traffic: &str) -> Result<Experiment, io::Error> {
    let text = format!(
        "policy:\n  upstreams: {{ web: {{ nodes: [n1:80] }} }}\n  classes: [{{ name: A }}]\n\
         traffic:\n  - {{ class: A, {traffic}, demand: 1us }}\nphases:\n  - {{ name: all, until: {SECONDS}s }}\n"
    );
    let loaded = weirgate_experiment::load_experiment("bench.yaml", &text, Path::new(""), &[]);
    loaded.map(|loaded| loaded.experiment).map_err(|errors| io::Error::other(errors.to_string()))
}

/// Returns the CPU time that the nodes' thread has used so far.
fn nodes_time() -> io::Result<Duration> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("stat"))?;
        if let Some((_, rest)) = stat.split_once("(emulated-nodes) ") {
            let field = |place: usize| rest.split(' ').nth(place).and_then(|field| field.parse::<f64>().ok());
            let ticks = field(11).unwrap_or(0.0) + field(12).unwrap_or(0.0);
            return Ok(Duration::from_secs_f64(ticks / rustix::param::clock_ticks_per_second() as f64));
        }
    }
    Err(io::Error::other("the nodes have no thread"))
}

/// Returns whether the command line selects the line `name`.
fn is_wanted(name: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--")).peekable();
    words.peek().is_none() || words.any(|word| name.contains(&word))
}

/// Plays one traffic source and prints a line.
fn play(name: &str, traffic: &str, target: SocketAddr, cpu: usize) -> io::Result<()> {
    if !is_wanted(name) {
        return Ok(());
    }
    let experiment = experiment(traffic)?;
    let own = std::process::id();
    let (all, nodes) = (process::cpu_time(own)?, nodes_time()?);
    let plan = Plan {
        experiment: &experiment,
        seed: 1,
        target,
        templates: &[Template { path: "/".into(), ..Template::emulated(&experiment, 0) }],
        start: clock::now() + clock::SECOND / 50,
        cpu: Some(cpu),
        connections: CONNECTIONS,
        max_requests: load::MAX_REQUESTS,
    };
    let sent = load::start(&plan)?.join()?;
    let nodes = nodes_time()? - nodes;
    let own = process::cpu_time(own)?.saturating_sub(all + nodes);
    let served = sent.records.iter().filter(|record| record.fate == Fate::Served).count();
    let last = sent.records.iter().map(|record| record.ended).max().unwrap_or(1);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / served as f64;
    println!(
        "{name:<22} {:>8.0} {:>8.1} µs {:>6.1} µs {:>7.0} µs {:>7} µs {:>8} µs {:>6}{}",
        served as f64 * 1e9 / last as f64,
        each(own),
        each(nodes),
        sent.lateness.mean(),
        sent.lateness.value_at_quantile(0.99),
        sent.histograms[0][0].value_at_quantile(0.5),
        sent.traffic[0].connections,
        if served == sent.records.len() { "" } else { "  (not all were served)" },
    );
    Ok(())
}

/// Runs another generator and prints a line. The generator prints its rate after `mark`.
fn peer(name: &str, command: &mut Command, mark: &str, cpu: usize) -> io::Result<()> {
    if !is_wanted(name) {
        return Ok(());
    }
    let log = std::env::temp_dir().join(format!("weirgate-bench-{name}-{}", std::process::id()));
    let (mut peer, nodes) = match Process::start(name, command, Some(cpu), &log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            println!("{name:<22} is not installed");
            return std::fs::remove_file(&log);
        }
        started => (started?, nodes_time()?),
    };
    let (begun, mut used) = (clock::now(), Duration::ZERO);
    while peer.ended()?.is_none() && clock::now() - begun < 4 * SECONDS * clock::SECOND {
        // The last reading before the process exits counts. It may miss a hundredth of the CPU time.
        used = used.max(process::cpu_time(peer.id())?);
        clock::pause(Duration::from_millis(20));
    }
    let nodes = nodes_time()? - nodes;
    let said = std::fs::read_to_string(&log)?;
    std::fs::remove_file(&log)?;
    let rate = said.split_once(mark).and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<f64>().ok());
    let rate = rate.ok_or_else(|| io::Error::other(format!("{name} says no rate:\n{said}")))?;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / (rate * SECONDS as f64);
    println!("{name:<22} {rate:>8.0} {:>8.1} µs {:>6.1} µs", each(used), each(nodes));
    Ok(())
}

fn main() -> io::Result<()> {
    let cpus = process::cpus()?;
    let (Some(&first), Some(&last)) = (cpus.first(), cpus.last()) else { return Ok(()) };
    // A thread inherits the CPU of the thread that starts it.
    let start = || process::pin(last).and_then(|()| Cluster::start(vec![NodeSpec::new("node", 4)], 1));
    let cluster = std::thread::scope(|scope| scope.spawn(start).join());
    let cluster = cluster.unwrap_or_else(|_| Err(io::Error::other("the starting thread has panicked")))?;
    let address = cluster.addresses()[0];
    // The nodes' thread has its name by the time it answers.
    cluster.stats()?;
    println!("load on CPU {first}, node on CPU {last}\n");
    println!("                        served/s   CPU/req    node  late avg   late p99     median  conns");
    for rate in [10_000, 30_000, 50_000, 70_000] {
        play(&format!("open loop {rate}/s"), &format!("rate: {rate}/s"), address, first)?;
    }
    let users = format!("users: {USERS}, think: 1us");
    play(&format!("{USERS} users, no thinking"), &users, address, first)?;
    let (url, seconds, users) = (format!("http://{address}/"), format!("{SECONDS}s"), USERS.to_string());
    let args = ["-t", "1", "-c", &users, "-d", &seconds, &url];
    peer("wrk", Command::new("wrk").args(args), "Requests/sec:", first)?;
    let args = ["--no-tui", "-c", &users, "-z", &seconds, &url];
    peer("oha", Command::new("oha").args(args), "Requests/sec:", first)
}
