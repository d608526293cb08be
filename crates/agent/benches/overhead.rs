//! CPU time that an agent takes from its node, in percent of a core, with 100 classes and one real cgroup for
//! each. It uses cgroup v1 if that may be changed, and otherwise a tree of plain files, which costs more to
//! write. The agent reports four windows a second, without TLS. In the second line of output the
//! coordinator changes all shares in every window, the maximum that it ever does. Run
//! `cargo bench -p weirgate-agent`.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use weirgate_agent::{Node, Settings};
use weirgate_clock::Clock;

/// Reads the heads of requests for `scripted`.
#[allow(dead_code)]
#[path = "../../weirgate/tests/processes/head.rs"]
mod head;
#[allow(dead_code)]
#[path = "../../weirgate/tests/reserves_agent/scripted.rs"]
mod scripted;

use scripted::Coordinator;

const CLASSES: usize = 100;

/// Duration of each measurement, in seconds: 40 windows.
const SECONDS: u64 = 10;

/// Trees of cgroup v1.
const TREES: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"];

/// Groups for all classes, removed at the end.
struct Groups {
    directories: Vec<PathBuf>,
    root: PathBuf,
    state: PathBuf,
}

impl Groups {
    fn make() -> std::io::Result<Groups> {
        let name = format!("weirgate-bench-{}", std::process::id());
        let state = std::env::temp_dir().join(&name);
        fs::create_dir_all(&state)?;
        let mut groups = Groups { directories: Vec::new(), root: PathBuf::from(&name), state };
        if groups.real(&name).is_err() {
            eprintln!("cgroup v1 cannot be changed here: a tree of plain files instead");
            groups.root = groups.state.join("tree");
            for class in 0..CLASSES {
                let group = groups.root.join(format!("c{class}"));
                fs::create_dir_all(&group)?;
                for (file, text) in
                    [("cpu.weight", "100\n"), ("cpu.stat", "usage_usec 5\n"), ("cgroup.events", "populated 1\n")]
                {
                    fs::write(group.join(file), text)?;
                }
            }
            fs::write(groups.root.join("cgroup.controllers"), "cpu\n")?;
        }
        Ok(groups)
    }

    fn real(&mut self, name: &str) -> std::io::Result<()> {
        for tree in TREES {
            let root = Path::new(tree).join(name);
            for directory in [root.clone()].into_iter().chain((0..CLASSES).map(|class| root.join(format!("c{class}"))))
            {
                fs::create_dir(&directory)?;
                self.directories.push(directory);
            }
        }
        Ok(())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.directories.iter().rev().for_each(|directory| drop(fs::remove_dir(directory)));
        let _ = fs::remove_dir_all(&self.state);
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// Receives the reports until none comes any more, and answers each with shares, if they are to change. Returns the
/// number of reports.
fn manage(mut coordinator: Coordinator, change: bool, stop: &AtomicBool) -> usize {
    coordinator.session();
    let mut reports = 0;
    while !stop.load(Ordering::Relaxed) {
        coordinator.report();
        reports += 1;
        if change {
            let share = |class: usize| if (class + reports).is_multiple_of(2) { 1.25 } else { 0.75 };
            coordinator.shares(reports as u64, &(0..CLASSES).map(share).collect::<Vec<_>>());
        }
    }
    reports
}

fn play(name: &str, change: bool) -> Result<(), Box<dyn std::error::Error>> {
    let groups = Groups::make()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let classes: Vec<String> =
        (0..CLASSES).map(|class| format!("{{name: c{class}, share: 1%, cgroup: c{class}}}")).collect();
    let listen = listener.local_addr()?;
    let text = format!("reserves: {{listen: '{listen}', nodes: [n1], classes: [{}]}}", classes.join(", "));
    let site = weirgate_config::load("bench.yaml", &text).map_err(|errors| errors.to_string())?.site;
    let settings = Settings {
        cluster: site.reserves.ok_or("it has them")?.cluster,
        node: 0,
        cpus: None,
        root: Some(groups.root.clone()),
        state: groups.state.clone(),
        source: None,
        trust: None,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let coordinator = {
        let (stop, coordinator) = (Arc::clone(&stop), Coordinator::on(listener));
        std::thread::spawn(move || manage(coordinator, change, &stop))
    };
    let ((sender, receiver), stopping) = (mpsc::channel(), Arc::clone(&stop));
    let agent = std::thread::spawn(move || -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let node = Node::start(settings, |_| {})?;
            let (began, clock) = (cpu_time(), Clock::start());
            let end = async {
                weirgate_clock::sleep(Duration::from_secs(SECONDS)).await;
                let _ = sender.send((cpu_time() - began, clock.now()));
                // The coordinator ends with the next report.
                stopping.store(true, Ordering::Relaxed);
                weirgate_clock::sleep(Duration::from_secs(1)).await;
            };
            node.run(end, false).await
        })
    });
    let (cpu, wall) = receiver.recv()?;
    agent.join().map_err(|_| "the agent panicked")??;
    let reports = coordinator.join().map_err(|_| "the coordinator panicked")?;
    let percent = 100.0 * cpu.as_secs_f64() / wall.as_secs_f64();
    let rate = reports as f64 / wall.as_secs_f64();
    println!("{name:<32} {percent:.3} % of a core for {CLASSES} classes, {rate:.1} reports/s");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    play("shares stay", false)?;
    play("shares change in every window", true)
}
