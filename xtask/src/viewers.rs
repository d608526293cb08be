//! The measurement `viewers`: CPU time that the live page costs the gateway, with 200 classes, 100 nodes and ten
//! viewers.
//!
//! A gateway gets a constant trickle of requests for all classes, so that every figure of the page moves. Spans without
//! viewers and with ten of them take turns. The kernel's count of the threads' CPU time
//! (`/proc/PID/task/TID/schedstat`, in nanoseconds) does not depend on the other work of the machine, apart from
//! caches. The page is made on the thread of the admin API alone, so its share is exact. That of the process also has
//! the noise of the requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::exchange::{Client, Node, Stopped};
use crate::steps::{asked, becomes_true, built, target};

const CLASSES: usize = 200;
const NODES: u16 = 100;
const VIEWERS: usize = 10;

/// Length of one span, unless another one is asked for. A look is taken each second, so this averages over 60 of them.
const SECONDS: u64 = 60;

/// Pairs of spans. Their spread shows what the machine adds.
const ROUNDS: usize = 3;

/// Maximum share of a core for ten viewers.
const BUDGET: f64 = 0.05;

/// Time between two requests: five for each node and second.
const TRICKLE: Duration = Duration::from_millis(2);

/// Time limit of a read. A look comes each second, and later on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const LISTEN: u16 = 18_131;
const ADMIN: u16 = 18_132;
/// Port of the first node. The others have those after it.
const FIRST_NODE: u16 = 18_140;

/// Measures and prints a table.
pub(crate) fn run() -> Result<(), String> {
    let weirgate = built(&["weirgate"])?.join("weirgate");
    let span = Duration::from_secs(asked("--seconds", SECONDS)?);
    let file = target().join("viewers.yaml");
    std::fs::write(&file, policy()).map_err(|e| format!("{}: {e}", file.display()))?;
    let _nodes = (FIRST_NODE..FIRST_NODE + NODES).map(Node::at).collect::<Result<Vec<_>, _>>()?;
    let child = Command::new(&weirgate)
        .arg("run")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("{}: {e}", weirgate.display()))?;
    let id = child.id();
    let mut process = Stopped(child);
    // The listener is open before its thread starts.
    if !becomes_true(|| used(id).is_ok() || process.has_ended()) || process.has_ended() {
        return Err("the gateway does not serve".to_owned());
    }
    let ended = Arc::new(AtomicBool::new(false));
    let requests = trickle(&ended);
    println!(
        "   {CLASSES} classes, {NODES} nodes, spans of {} s. Percent of a core: admin thread, process, and bytes of a look",
        span.as_secs()
    );
    let mut shares = Vec::new();
    let mut lacking = Vec::new();
    for _ in 0..ROUNDS {
        let idle = measure(id, span)?;
        let (viewers, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Seen::default()));
        let threads: Vec<_> = (0..VIEWERS).map(|_| view(&viewers, &seen)).collect();
        let with = measure(id, span)?;
        viewers.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a viewer panicked")??;
        }
        let (looks, bytes) = (seen.looks.load(Ordering::Relaxed), seen.bytes.load(Ordering::Relaxed));
        let each = bytes / looks.max(1);
        println!(
            "   without {:5.2} {:6.2}   with {:5.2} {:6.2}   {each:>7}   {looks} looks",
            idle.admin * 100.0,
            idle.process * 100.0,
            with.admin * 100.0,
            with.process * 100.0
        );
        shares.push(with.admin - idle.admin);
        lacking.push(looks < span.as_secs() * VIEWERS as u64 * 9 / 10);
    }
    ended.store(true, Ordering::Relaxed);
    requests.join().map_err(|_| "the requests panicked")??;
    process.stop()?;
    shares.sort_by(f64::total_cmp);
    let [least, median, most] = shares[..] else { return Err("there are three rounds".to_owned()) };
    println!(
        "   ten viewers cost {:.2} % of a core, {:.2} to {:.2} %, of {:.0} % allowed",
        median * 100.0,
        least * 100.0,
        most * 100.0,
        BUDGET * 100.0
    );
    match (median <= BUDGET, lacking.contains(&true)) {
        (true, false) => Ok(()),
        (false, _) => Err("over the budget".to_owned()),
        (true, true) => Err("viewers saw less than nine of ten looks".to_owned()),
    }
}

/// Every other class has a guarantee.
fn policy() -> String {
    use std::fmt::Write as _;
    let mut text =
        format!("listen: 127.0.0.1:{LISTEN}\nadmin: 127.0.0.1:{ADMIN}\nthreads: 1\nupstreams:\n  web:\n    nodes:\n");
    for port in FIRST_NODE..FIRST_NODE + NODES {
        let _ = writeln!(text, "      - {{ name: web-{port}, address: \"127.0.0.1:{port}\" }}");
    }
    text += "classes:\n";
    for class in 1..CLASSES {
        let guarantee = match class % 2 {
            0 => "",
            _ => ", guarantee: { throughput: 2/s, response_time: { p95: 500ms } }, service_time: 5ms",
        };
        let _ = writeln!(text, "  - {{ name: customer-{class:03}, match: {{ path: /{class} }}{guarantee} }}");
    }
    text + "  - { name: other }\n"
}

/// Sends a request for one class after another.
fn trickle(ended: &Arc<AtomicBool>) -> JoinHandle<Result<(), String>> {
    let ended = Arc::clone(ended);
    std::thread::spawn(move || {
        let mut client = Client::connect(LISTEN)?;
        for class in (1..=CLASSES).cycle() {
            if ended.load(Ordering::Relaxed) {
                break;
            }
            // The gateway may close the connection after any response.
            if client.ask(&format!("/{class}"), "").is_err() {
                client = Client::connect(LISTEN)?;
            }
            weirgate_clock::pause(TRICKLE);
        }
        Ok(())
    })
}

/// Looks and bytes that all viewers have received.
#[derive(Default)]
struct Seen {
    looks: AtomicU64,
    bytes: AtomicU64,
}

/// Views the stream as the page does, with a new request after each response.
fn view(ended: &Arc<AtomicBool>, seen: &Arc<Seen>) -> JoinHandle<Result<(), String>> {
    let (ended, seen) = (Arc::clone(ended), Arc::clone(seen));
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while !ended.load(Ordering::Relaxed) {
            let mut stream = TcpStream::connect(("127.0.0.1", ADMIN)).map_err(|e| e.to_string())?;
            stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
            let request = b"GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(request).map_err(|e| e.to_string())?;
            let mut before = 0;
            while !ended.load(Ordering::Relaxed) {
                let read = stream.read(&mut buffer).map_err(|e| e.to_string())?;
                let Some(piece) = buffer.get(..read).filter(|piece| !piece.is_empty()) else { break };
                seen.bytes.fetch_add(read as u64, Ordering::Relaxed);
                // An event ends with an empty line. JSON has none.
                for byte in piece {
                    seen.looks.fetch_add(u64::from(before == b'\n' && *byte == b'\n'), Ordering::Relaxed);
                    before = *byte;
                }
            }
        }
        Ok(())
    })
}

/// Shares of a core.
struct Shares {
    admin: f64,
    process: f64,
}

fn measure(id: u32, span: Duration) -> Result<Shares, String> {
    let clock = weirgate_clock::Clock::start();
    let before = used(id)?;
    weirgate_clock::pause(span);
    let (after, time) = (used(id)?, clock.now().as_nanos() as f64);
    let share = |from: u64, to: u64| to.saturating_sub(from) as f64 / time;
    Ok(Shares { admin: share(before.0, after.0), process: share(before.1, after.1) })
}

/// Returns the CPU time of the admin API's thread and of all threads, in nanoseconds.
fn used(id: u32) -> Result<(u64, u64), String> {
    let folder = format!("/proc/{id}/task");
    let tasks = std::fs::read_dir(&folder).map_err(|e| format!("{folder}: {e}"))?;
    let (mut admin, mut all) = (0, 0);
    for task in tasks.flatten() {
        // A thread that has ended meanwhile has no files.
        let file = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let time = file("schedstat").split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        all += time;
        if file("comm").trim() == "weirgate-admin" {
            admin = time;
        }
    }
    if admin == 0 { Err("the gateway has no thread of the admin API".to_owned()) } else { Ok((admin, all)) }
}
