//! Clients and nodes that could hold the door, each at its full size, at a gateway process with the default discipline
//! and default limits: a test sets only the limit that it is about. Beside each of them the others are served.
//!
//! `weirgate-endurance` plays the same kinds of clients in random mixes and for a long time.

#[path = "../processes/head.rs"]
mod head;
mod node;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../processes/mod.rs"]
mod processes;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../processes/spoken.rs"]
mod spoken;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use weirgate_clock::{Clock, pause};

use head::head;
use node::Node;
use processes::{Directory, becomes_true, say};
use spoken::Process;

/// A gateway in front of one node, with a class within its guarantee and another one.
struct Door {
    node: Node,
    address: SocketAddr,
    process: Process,
    _directory: Directory,
}

impl Door {
    /// Opens a gateway. `other` has further fields of its other class, and `limits` further lines of its policy.
    fn open(other: &str, limits: &str) -> Door {
        Door::under("", other, limits)
    }

    /// Opens a gateway after a line of a shell script.
    fn under(line: &str, other: &str, limits: &str) -> Door {
        let (node, directory) = (Node::start(), Directory::new());
        let policy = directory.write(
            "policy.yaml",
            &format!(
                "listen: 127.0.0.1:0\nadmin: off\nupstreams: {{ web: {{ nodes: [{}] }} }}\nclasses:\n  - {{ name: gold, \
                 match: {{ path_prefix: /gold }}, guarantee: {{ throughput: 20/s }} }}\n  - {{ name: other{other} }}\n\
                 {limits}",
                node.address
            ),
        );
        let mut command = Command::new("sh");
        let script = format!("{line}\nexec \"$0\" run \"$1\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_weirgate")]).arg(policy).stdin(Stdio::null());
        let process = Process::start(command);
        process.line("ready", 1);
        Door { address: process.address("listening on", 1), node, process, _directory: directory }
    }

    /// Returns a new connection that never blocks.
    fn hostile(&self) -> TcpStream {
        let stream = connect([127, 0, 0, 1], self.address);
        stream.set_nonblocking(true).expect("a socket");
        stream
    }

    /// Returns a new client.
    fn client(&self) -> Client {
        Client(connect([127, 0, 0, 1], self.address))
    }

    /// Asks for a page of the class within its guarantee on a new connection, and returns the status.
    fn gold(&self) -> u16 {
        self.client().ask("/gold")
    }

    /// Waits until the gateway has accepted this many connections. The kernel keeps silent ones back for a second.
    fn has_accepted(&self, connections: usize) {
        let files = format!("/proc/{}/fd", self.process.current);
        let accepted = || std::fs::read_dir(&files).is_ok_and(|files| files.count() >= connections);
        assert!(becomes_true(accepted), "it does not accept {connections} connections");
    }

    /// Checks that ten new clients are served before silent connections are closed anyway, which is after 10 s.
    fn serves_others(&self) {
        for nth in 0..10 {
            let began = Clock::start();
            assert_eq!(self.gold(), 200, "{nth}");
            assert!(began.now() < Duration::from_secs(8), "{nth}: {:?}", began.now());
        }
    }

    /// Returns a field of the gateway's memory in bytes: `VmRSS` is its resident memory, `VmHWM` the largest so far,
    /// and `RssFile` the part of it that files have.
    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.current)).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).expect("Linux has it");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }
}

/// A client that waits for its answers.
struct Client(TcpStream);

impl Client {
    fn send(&mut self, path: &str) {
        self.0.write_all(get(path).as_bytes()).expect("it takes the request");
    }

    /// Returns the status of the next answer, whose body has a length, or 0 if the connection ends instead.
    fn answer(&mut self) -> u16 {
        let Ok(head) = head(&mut self.0) else { return 0 };
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        let read = std::io::copy(&mut (&self.0).take(length), &mut std::io::sink());
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        if read.is_ok_and(|read| read == length) { status } else { 0 }
    }

    fn ask(&mut self, path: &str) -> u16 {
        self.send(path);
        self.answer()
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n")
}

/// Connects from an address of loopback. The kernel keeps few bytes for it, so that a slow reader is one at once.
fn connect(own: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a socket");
    socket.bind(&SocketAddr::from((own, 0)).into()).expect("an address of loopback");
    socket.connect(&address.into()).expect("the kernel accepts it");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    stream
}

/// File descriptors that all tests of this process may need at once.
const FILES: u64 = 15_000;

/// Lets this process have as many file descriptors as it may. If they do not suffice, prints so and returns false.
fn has_files() -> bool {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("the hard limit");
    let suffices = maximum.is_none_or(|maximum| maximum >= FILES);
    if !suffices {
        say(&format!("SKIPPED: {FILES} file descriptors are needed, and the limit is {maximum:?}"));
    }
    suffices
}

/// Whether the other side has ended the connection. Reads what has arrived.
fn has_ended(stream: &mut TcpStream) -> bool {
    loop {
        match stream.read(&mut [0; 4_096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// The heads of requests whose bodies never end, each with the bytes that come once a second.
const BODIES: [(&str, &str); 4] = [
    ("Content-Length: 100000000", "x"),
    ("Transfer-Encoding: chunked", "1\r\nx\r\n"),
    ("Expect: 100-continue\r\nContent-Length: 100000000", "x"),
    ("Expect: 100-continue\r\nTransfer-Encoding: chunked", "1\r\nx\r\n"),
];

#[test]
fn a_thousand_slow_bodies_are_gone_after_25_seconds() {
    if !has_files() {
        return;
    }
    let door = Door::open("", "");
    let mut bodies: Vec<(TcpStream, &str)> = (0..1_000)
        .map(|at| {
            let (fields, part) = BODIES[at % BODIES.len()];
            let mut stream = door.hostile();
            let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("a small head");
            (stream, part)
        })
        .collect();
    // Time is what these clients attack with, so it is real here. It runs from the last one on, and the gateway's from
    // each.
    let began = Clock::start();
    while began.now() < Duration::from_secs(25) {
        assert_eq!(door.gold(), 200, "after {:?} with {} slow bodies", began.now(), bodies.len());
        bodies.retain_mut(|(stream, part)| !has_ended(stream) && stream.write_all(part.as_bytes()).is_ok());
        pause(Duration::from_secs(1));
    }
    bodies.retain_mut(|(stream, _)| !has_ended(stream));
    assert_eq!(bodies.len(), 0, "slow bodies are still open");
}

#[test]
fn silent_connections_beyond_the_limit_keep_nobody_out() {
    let door = Door::open("", "limits: { connections: 500 }\n");
    let _silent: Vec<TcpStream> = (0..520).map(|_| door.hostile()).collect();
    door.has_accepted(500);
    door.serves_others();
}

#[test]
fn a_thousand_silent_connections_at_256_descriptors_keep_nobody_out() {
    if !has_files() {
        return;
    }
    let door = Door::under("ulimit -n 256", "", "");
    let _silent: Vec<TcpStream> = (0..1_000).map(|_| door.hostile()).collect();
    // The gateway keeps as many descriptors for nodes.
    door.has_accepted(100);
    door.serves_others();
}

#[test]
fn the_limit_of_descriptors_is_raised_to_the_hard_one_and_told() {
    if !has_files() {
        return;
    }
    let door = Door::under("ulimit -Sn 256; ulimit -Hn 2000", "", "");
    let line = door.process.line("up to", 1);
    assert!(line.contains("client connections, because the process may have 2000 open files"), "{line}");
}

/// Lets the gateway keep all of a large response for a slow client, so that it would use gigabytes for 300 of them. By
/// default it keeps 1 MiB, of which the kernel takes more than that.
const KEEPS: &str = "buffer_per_request: 8MiB";

/// Lets 300 clients ask for a large response and read it at a kilobyte a second for a while, beside the class within
/// its guarantee.
fn slow_readers(door: &Door) {
    let mut readers: Vec<TcpStream> = (0..300).map(|_| door.hostile()).collect();
    for reader in &mut readers {
        reader.write_all(get("/large").as_bytes()).expect("a small head");
    }
    for _ in 0..10 {
        assert_eq!(door.gold(), 200);
        for reader in &mut readers {
            // The gateway may refuse some of them for lack of memory.
            let _ = reader.read(&mut [0; 1_000]);
        }
        pause(Duration::from_secs(1));
    }
    assert!(door.node.asked("/large") > 0, "none was served");
}

#[test]
fn slow_readers_stay_within_the_memory_limit() {
    let door = Door::open("", &format!("limits: {{ memory: 100MiB, {KEEPS} }}\n"));
    slow_readers(&door);
    // Without the pages of the program's file, which the kernel can take back.
    let most = door.memory("VmHWM") - door.memory("RssFile");
    assert!(most <= 100 << 20, "{} MiB", most >> 20);
}

/// Trees of the memory controller, of v1 and v2, with the file of the limit.
const TREES: [(&str, &str); 2] = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A control group that is removed with this value.
struct Group(PathBuf);

impl Group {
    /// Makes a group with this much memory. If there is no controller that could be changed, prints so and returns
    /// `None`.
    fn new(bytes: u64) -> Option<Group> {
        for (tree, file) in TREES {
            let group = PathBuf::from(tree).join(format!("weirgate-test-{}-door", std::process::id()));
            if std::fs::create_dir(&group).is_ok() {
                let group = Group(group);
                // Only the kernel makes these files. Elsewhere it is a directory like any other.
                let limit = std::fs::OpenOptions::new().write(true).open(group.0.join(file));
                if limit.and_then(|mut limit| limit.write_all(bytes.to_string().as_bytes())).is_ok() {
                    return Some(group);
                }
            }
        }
        say("SKIPPED: no control group of memory that could be changed");
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel may need a moment after the last process has ended.
        becomes_true(|| std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn slow_readers_do_not_end_a_gateway_in_a_small_control_group() {
    let Some(group) = Group::new(96 << 20) else { return };
    let entry = group.0.join("cgroup.procs");
    let door = Door::under(&format!("echo $$ > '{}'", entry.display()), "", &format!("limits: {{ {KEEPS} }}\n"));
    slow_readers(&door);
}

#[test]
fn a_polite_client_does_not_stand_behind_150_requests_of_another() {
    let door = Door::open("", "");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..150 {
            scope.spawn(|| {
                let mut client = door.client();
                while !ended.load(Ordering::Relaxed) {
                    if client.ask("/work") == 0 {
                        client = door.client();
                    }
                }
            });
        }
        becomes_true(|| door.node.asked("/work") > 150);
        // The same class, and another address than that of the 150. First come first served would be 150 turns.
        let mut turns: Vec<(u32, u16)> = (0..20)
            .map(|_| {
                let before = door.node.asked("/work");
                let status = Client(connect([127, 0, 0, 2], door.address)).ask("/work");
                (door.node.asked("/work") - before, status)
            })
            .collect();
        // The others end before anything is asserted.
        ended.store(true, Ordering::Relaxed);
        turns.sort_unstable();
        assert!(turns.iter().all(|(_, status)| *status == 200) && turns[10].0 < 50, "{turns:?}");
    });
}

#[test]
fn endless_interim_responses_end_and_delay_nobody() {
    let door = Door::open(", timeouts: { total: 6s }", "");
    let mut endless = door.client();
    endless.send("/interim");
    assert_eq!(endless.answer(), 103, "interim responses are passed on");
    for nth in 0..10 {
        assert_eq!(door.gold(), 200, "{nth}");
        assert_eq!(endless.answer(), 103, "they have not ended");
    }
    let last = std::iter::repeat_with(|| endless.answer()).find(|status| *status != 103);
    assert_eq!(last, Some(504), "their time limit holds");
}

#[test]
fn a_get_without_an_answer_is_not_repeated_at_the_only_node() {
    let door = Door::open(", timeouts: { first_byte: 1s }", "");
    assert_eq!(door.client().ask("/hang"), 504);
    assert_eq!(door.node.asked("/hang"), 1);
    assert_eq!(door.gold(), 200);
}

#[test]
fn memory_returns_when_9000_idle_clients_have_gone() {
    if !has_files() {
        return;
    }
    let door = Door::open("", "");
    assert_eq!(door.gold(), 200);
    let before = door.memory("VmRSS");
    let idle: Vec<TcpStream> = (0..9_000)
        .map(|_| {
            let mut client = door.client();
            assert_eq!(client.ask("/"), 200);
            client.0
        })
        .collect();
    let within = door.memory("VmRSS");
    drop(idle);
    // Half of what they used may stay for the next ones.
    let kept = || door.memory("VmRSS").saturating_sub(before);
    assert!(
        becomes_true(|| kept() <= (within - before) / 2),
        "{} of {} kB are kept",
        kept() >> 10,
        (within - before) >> 10
    );
}
