//! The experiment `instructions`: user instructions of one request in Weirgate, HAProxy and nginx.
//!
//! Callgrind counts every instruction of a process outside of the kernel, so a count does not depend on the other work
//! of the machine. Each proxy serves [`FEW`] requests in one run and [`MANY`] in another, all on one connection. The
//! difference divided by the number of requests between is the cost of one request, without start and end. The node is
//! a thread of this program. `experiments/instructions/README.md` has figures.
//!
//! Weirgate's counts have budgets. A change that exceeds one fails here, and not months later in a comparison.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::proxy_cpu::program;
use crate::steps::{becomes_true, show};

/// Requests of the two runs. The difference averages over timers and reallocations.
const FEW: u32 = 500;
const MANY: u32 = 2500;

/// Port of the node, which the configurations name.
const NODE: u16 = 18_110;

/// Fields of a browser besides `Host`, 16 in all.
const BROWSER: &str = "Connection: keep-alive\r\nCache-Control: max-age=0\r\n\
    sec-ch-ua: \"Chromium\";v=\"130\", \"Google Chrome\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) \
    AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\nAccept: text/html,application/xhtml+xml,\
    application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\nReferer: https://www.shop.test/shop/items\r\nAccept-Encoding: gzip, \
    deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9,de;q=0.8\r\nCookie: session=0123456789abcdef0123456789abcdef; \
    basket=4711,4712; theme=dark\r\n";

/// A kind of request.
struct Case {
    name: &'static str,
    path: &'static str,
    fields: &'static str,
    /// Status of the response.
    status: &'static str,
    /// Maximum count for Weirgate: about 3 % above the present one, which is more than two builds differ.
    budget: u64,
    /// The count that the project aims at.
    target: u64,
}

const CASES: [Case; 4] = [
    Case { name: "minimal head", path: "/gold/", fields: "", status: "200", budget: 27_200, target: 25_000 },
    Case { name: "browser's head", path: "/gold/", fields: BROWSER, status: "200", budget: 35_500, target: 37_000 },
    Case { name: "shed, minimal head", path: "/denied", fields: "", status: "503", budget: 13_500, target: 10_000 },
    Case {
        name: "shed, browser's head",
        path: "/denied",
        fields: BROWSER,
        status: "503",
        budget: 21_400,
        target: 10_000,
    },
];

/// Counts all cases and prints a table.
pub(crate) fn run() -> Result<(), String> {
    let valgrind = program("valgrind").map_err(|_| "valgrind is missing: apt-get install valgrind".to_owned())?;
    show(Command::new(env!("CARGO")).args(["build", "--locked", "--release", "--package", "weirgate"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from);
    let directory = std::env::temp_dir().join(format!("weirgate-instructions-{}", std::process::id()));
    std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let counted = count_all(&valgrind, &target.join("release/weirgate"), &directory);
    let removed = std::fs::remove_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()));
    let exceeded = counted?;
    removed?;
    if exceeded.is_empty() { Ok(()) } else { Err(format!("over their budget: {}", exceeded.join(", "))) }
}

fn count_all(valgrind: &Path, weirgate: &Path, directory: &Path) -> Result<Vec<&'static str>, String> {
    let node = Node::start()?;
    let here = crate::root().join("experiments/instructions");
    let (haproxy, nginx) = (program("haproxy").ok(), program("nginx").ok());
    println!(
        "   {:22} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "user instructions", "Weirgate", "budget", "target", "HAProxy", "nginx"
    );
    let mut exceeded = Vec::new();
    for case in &CASES {
        let policy = if case.status == "503" { "shed.yaml" } else { "weirgate.yaml" };
        let ours = Proxy { port: 18_111, command: vec![weirgate.into(), "run".into(), here.join(policy)] };
        let haproxy = haproxy.as_ref().map(|program| Proxy {
            port: 18_112,
            command: vec![program.clone(), "-db".into(), "-f".into(), here.join("haproxy.cfg")],
        });
        let nginx = nginx.as_ref().map(|program| {
            let mut command = vec![program.clone(), "-p".into(), directory.into(), "-e".into(), "stderr".into()];
            command.extend(["-c".into(), here.join("nginx.conf")]);
            Proxy { port: 18_113, command }
        });
        let ours = ours.count(valgrind, directory, &node, case)?;
        let peer = |proxy: Option<Proxy>| match proxy {
            Some(proxy) => proxy.count(valgrind, directory, &node, case).map(|count| count.to_string()),
            None => Ok("-".to_owned()),
        };
        let (haproxy, nginx) = (peer(haproxy)?, peer(nginx)?);
        println!("   {:22} {ours:>9} {:>9} {:>9} {haproxy:>9} {nginx:>9}", case.name, case.budget, case.target);
        if ours > case.budget {
            exceeded.push(case.name);
        }
    }
    Ok(exceeded)
}

/// A proxy that listens on `port`.
struct Proxy {
    port: u16,
    command: Vec<PathBuf>,
}

impl Proxy {
    /// Returns the instructions of one request.
    fn count(&self, valgrind: &Path, directory: &Path, node: &Node, case: &Case) -> Result<u64, String> {
        let few = self.total(valgrind, directory, node, case, FEW)?;
        let many = self.total(valgrind, directory, node, case, MANY)?;
        Ok(many.saturating_sub(few) / u64::from(MANY - FEW))
    }

    /// Returns the instructions of a process that serves `requests`.
    fn total(&self, valgrind: &Path, directory: &Path, node: &Node, case: &Case, requests: u32) -> Result<u64, String> {
        let counts = directory.join("callgrind");
        let child = Command::new(valgrind)
            .args(["--tool=callgrind", "--quiet"])
            .arg(format!("--callgrind-out-file={}", counts.display()))
            .args(&self.command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("cannot start valgrind: {e}"))?;
        let mut process = Stopped(child);
        let line = || self.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let up = becomes_true(|| TcpStream::connect(("127.0.0.1", self.port)).is_ok() || process.has_ended());
        if !up || process.has_ended() {
            return Err(format!("`{}` does not serve under valgrind", line()));
        }
        let (held, mut client) = match case.status {
            "503" => occupy(self.port, node, case)?,
            _ => (Vec::new(), Client::connect(self.port)?),
        };
        for _ in 0..requests {
            let answer = client.ask(case.path, case.fields)?;
            if answer != case.status {
                return Err(format!("`{}` answers {answer} to {}, not {}", line(), case.path, case.status));
            }
        }
        // Without requests in flight every proxy ends at the first signal.
        drop((held, client));
        process.stop()?;
        let text = std::fs::read_to_string(&counts).map_err(|e| format!("{}: {e}", counts.display()))?;
        let total = text.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
        total.and_then(|total| total.trim().parse().ok()).ok_or_else(|| "callgrind gave no total".to_owned())
    }
}

/// Occupies the slot and the queue of `shed.yaml`. Returns the connections that hold them, and one that is shed.
fn occupy(port: u16, node: &Node, case: &Case) -> Result<(Vec<Client>, Client), String> {
    let mut first = Client::connect(port)?;
    let before = node.held();
    first.send("/hold", "")?;
    // HAProxy and nginx refuse without a request in flight, and forward this one like any other.
    if !becomes_true(|| node.held() > before) {
        return Err("the node gets no request".to_owned());
    }
    // One of two further requests waits, and the other one is shed.
    let (mut one, mut other) = (Client::connect(port)?, Client::connect(port)?);
    one.send(case.path, case.fields)?;
    other.send(case.path, case.fields)?;
    if !becomes_true(|| one.has_answer() || other.has_answer()) {
        return Err("no request is shed".to_owned());
    }
    let (mut shed, waiting) = if one.has_answer() { (one, other) } else { (other, one) };
    shed.answer()?;
    Ok((vec![first, waiting], shed))
}

/// A process that is ended, also if its count fails.
struct Stopped(Child);

impl Stopped {
    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Ends it in an orderly way, so that callgrind writes its counts.
    fn stop(&mut self) -> Result<(), String> {
        let _ = Command::new("kill").arg(self.0.id().to_string()).stderr(Stdio::null()).status();
        if becomes_true(|| self.has_ended()) { Ok(()) } else { Err("a proxy does not end".to_owned()) }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node with one page of 1,024 bytes. It never answers a request for `/hold`, and counts them.
struct Node(Arc<NodeState>);

#[derive(Default)]
struct NodeState {
    ended: AtomicBool,
    held: AtomicU32,
}

impl Node {
    fn start() -> Result<Node, String> {
        let listener = TcpListener::bind(("127.0.0.1", NODE)).map_err(|e| format!("port {NODE} of 127.0.0.1: {e}"))?;
        let node = Node(Arc::default());
        let state = Arc::clone(&node.0);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if state.ended.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&state);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Ok(node)
    }

    fn held(&self) -> u32 {
        self.0.held.load(Ordering::Relaxed)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", NODE));
    }
}

/// Serves one connection. Requests come one after another and have no body.
fn serve(mut stream: TcpStream, state: &NodeState) {
    let page = format!(
        "HTTP/1.1 200 OK\r\nServer: node\r\nDate: Mon, 23 Nov 2026 16:00:00 GMT\r\nContent-Type: text/html\r\n\
         Content-Length: 1024\r\n\r\n{}",
        "w".repeat(1024)
    );
    let _ = stream.set_nodelay(true);
    let mut head = Vec::new();
    let mut buffer = [0; 8192];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        head.extend_from_slice(&buffer[..bytes]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        if head.starts_with(b"GET /hold ") {
            state.held.fetch_add(1, Ordering::Relaxed);
        } else if stream.write_all(page.as_bytes()).is_err() {
            return;
        }
        head.clear();
    }
}

/// A client with one connection, which asks one request after another.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn connect(port: u16) -> Result<Client, String> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| format!("port {port}: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(Client { stream, received: Vec::new() })
    }

    fn send(&mut self, path: &str, fields: &str) -> Result<(), String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: www.shop.test\r\n{fields}\r\n");
        self.stream.write_all(request.as_bytes()).map_err(|e| format!("the proxy takes no request: {e}"))
    }

    /// Whether a byte of a response has arrived.
    fn has_answer(&self) -> bool {
        let _ = self.stream.set_nonblocking(true);
        let answer = self.stream.peek(&mut [0]);
        let _ = self.stream.set_nonblocking(false);
        answer.is_ok()
    }

    /// Asks for `path` and returns the status of the response.
    fn ask(&mut self, path: &str, fields: &str) -> Result<String, String> {
        self.send(path, fields)?;
        self.answer()
    }

    /// Returns the status of the next response.
    fn answer(&mut self) -> Result<String, String> {
        self.received.clear();
        let mut buffer = [0; 8192];
        loop {
            let bytes = self.stream.read(&mut buffer).map_err(|e| format!("no response: {e}"))?;
            self.received.extend_from_slice(&buffer[..bytes]);
            let Some(end) = self.received.windows(4).position(|window| window == b"\r\n\r\n") else {
                if bytes == 0 {
                    return Err("the proxy closed the connection".to_owned());
                }
                continue;
            };
            let head = String::from_utf8_lossy(&self.received[..end]).to_ascii_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if self.received.len() < end + 4 + length.unwrap_or(0) {
                continue;
            }
            let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
            if head.lines().any(|line| line.starts_with("connection: close")) {
                let port = self.stream.peer_addr().map_err(|e| e.to_string())?.port();
                *self = Client::connect(port)?;
            }
            return Ok(status);
        }
    }
}
