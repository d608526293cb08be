//! Tests of the admin API of a running gateway, over real sockets. A test named after A, C or L and a number
//! covers that row of the admin plane's threat model.

mod access;
mod bounds;
mod changes;
mod logs;
mod prometheus;
mod reading;
mod tap;
mod telemetry;
mod trust;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::{TempDir, tempdir};
use weirgate_config::Admin;
use weirgate_gateway::access_log::AccessLog;
use weirgate_gateway::admin::{AdminListener, AdminServer, Operations};
use weirgate_gateway::metrics::Metrics;
use weirgate_gateway::telemetry::Telemetry;
use weirgate_gateway::{Gateway, Observer, ReloadSource};

/// A token with 128 bits.
pub(crate) const TOKEN: &str = "9f86d081884c7d659a2feaa0c55ad015";

/// Time limit of every operation, longer than any of them needs. A test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway with an admin API and one node. It is stopped at the end of its test.
pub(crate) struct Running {
    pub(crate) gateway: Gateway,
    pub(crate) admin: SocketAddr,
    pub(crate) log: Arc<AccessLog>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) file: PathBuf,
    pub(crate) scratch: Scratch,
    server: Option<AdminServer>,
}

/// Configuration of a gateway to start.
pub(crate) struct Start<'a> {
    /// The policy without `listen` and `admin`.
    pub(crate) policy: &'a str,
    pub(crate) listen: &'a str,
    pub(crate) token: bool,
    pub(crate) hosts: &'a [&'a str],
}

impl Default for Start<'_> {
    fn default() -> Self {
        Start {
            policy: "classes: [{ name: gold, match: { host: gold.test } }, { name: other }]\n",
            listen: "listen: 127.0.0.1:0",
            token: false,
            hosts: &[],
        }
    }
}

impl Start<'_> {
    /// Starts the gateway in front of `node`.
    pub(crate) fn before(self, node: SocketAddr) -> Running {
        let scratch = Scratch(tempdir().expect("a directory"));
        let text = format!(
            "{}\nadmin: off\nthreads: 1\nupstreams: {{ web: {{ nodes: [{node}] }} }}\n{}",
            self.listen, self.policy
        );
        let text = text.replace("SCRATCH", scratch.0.path().to_str().expect("UTF-8"));
        let file = scratch.write("policy.yaml", &text);
        let site = load(file.to_str().expect("UTF-8"), &text).expect("a sound policy");
        let site_has_trust = site.trust.is_some();
        let log = Arc::new(AccessLog::start(site.access_log.as_ref()).expect("the log opens"));
        let (metrics, telemetry) = (Arc::new(Metrics::new()), Arc::<Telemetry>::default());
        let observers: Vec<Box<dyn Observer>> =
            vec![Box::new(Arc::clone(&metrics)), Box::new(Arc::clone(&log)), Box::new(Arc::clone(&telemetry))];
        let source = ReloadSource::File { path: file.clone(), resolve: Box::new(load) };
        let gateway = Gateway::start(site, &text, source, observers).expect("the gateway starts");
        let config = Admin {
            address: weirgate_listening::Address::Tcp("127.0.0.1:0".parse().expect("an address")),
            file: weirgate_listening::FileAccess::OWNER,
            token_file: self.token.then(|| scratch.write("token", TOKEN)),
            hosts: self.hosts.iter().map(|h| (*h).to_owned()).collect(),
        };
        let listener = AdminListener::open(config, None, site_has_trust).expect("the admin API opens");
        let admin = listener.address().expect("a TCP address");
        let operations = Arc::new(Operations::new(gateway.clone(), metrics, Arc::clone(&log), Arc::clone(&telemetry)));
        telemetry.serve(Arc::clone(&operations)).expect("the exporter starts");
        let server = Some(listener.serve(operations).expect("the admin API is served"));
        Running { gateway, admin, log, telemetry, file, scratch, server }
    }
}

fn load(name: &str, text: &str) -> Result<weirgate_config::Site, String> {
    weirgate_config::load(name, text).map(|loaded| loaded.site).map_err(|e| e.to_string())
}

impl Running {
    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    /// Sends a GET to the admin API.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[])
    }

    /// Sends a POST of `{}` to the admin API.
    pub(crate) fn post(&self, path: &str, headers: &[&str]) -> Answer {
        self.ask("POST", path, &[&["Content-Type: application/json", "Content-Length: 2"], headers].concat())
    }

    /// Sends any request to the admin API, with the body `{}` if it has a length.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[&str]) -> Answer {
        let host = if headers.iter().any(|h| h.starts_with("Host:")) { "" } else { "Host: localhost\r\n" };
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let body = if lines.contains("Content-Length: 2\r\n") { "{}" } else { "" };
        exchange(
            self.admin,
            format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{lines}\r\n{body}").as_bytes(),
        )
    }

    /// Returns the version in force.
    pub(crate) fn version(&self) -> u64 {
        self.gateway.active_config().version
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server = None;
        self.gateway.drain();
        self.gateway.join();
        self.telemetry.close();
    }
}

/// A parsed response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (n, value) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Opens a connection with a read timeout, so that it cannot hang.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Sends `request` and reads to the end of the connection.
pub(crate) fn exchange(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = connect(address);
    // A failed write is fine if the server has already answered and closed.
    let _ = stream.write_all(request);
    read_answer(&mut stream)
}

/// Reads to the end of the connection.
pub(crate) fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if let Err(error) = ended {
        assert!(error.kind() == std::io::ErrorKind::ConnectionReset, "{error} after {text:?}");
    }
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// Starts a node that answers every request with 200 and `ok`. Its threads end with the process.
pub(crate) fn node() -> SocketAddr {
    serve(|mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
            head.push(byte[0]);
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    })
}

/// Starts a node that accepts requests and never answers.
pub(crate) fn silent_node() -> SocketAddr {
    serve(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    })
}

fn serve(work: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || work(stream));
        }
    });
    address
}

/// A directory for one test, removed at its end.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the temporary directory is writable");
        path
    }
}

pub(crate) fn json_lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).expect("the file is there");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}
