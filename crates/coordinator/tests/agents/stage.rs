//! Test environment: a coordinator on its own port, and agents that use the real protocol.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tempfile::{TempDir, tempdir};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use weirgate_coordinator::{CoordinatorServer, SharedState};
use weirgate_http_client::{Address, Answer, Connection, Limits, Request};
use weirgate_pki::Authority;
use weirgate_tls::{LiveTrust, Role, Wanted};
use weirgate_wire::{Hello, Measured, NodeReport, NodeShares, SESSIONS_PATH, Session, Trigger, WIRE_VERSION};

/// Time limit of every operation, much longer than any of them needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Interval of reports while agents wait for shares, as with real agents.
const WINDOW: Duration = Duration::from_millis(250);

/// A day.
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

const LIMITS: Limits = Limits::new(PATIENCE, 1 << 20);

/// An authority for the parties of a test, in a folder that is removed at the end.
pub(crate) struct Pki {
    folder: TempDir,
    authority: Authority,
}

impl Pki {
    pub(crate) fn new() -> Pki {
        Pki::at(weirgate_clock::calendar())
    }

    /// An authority that works at another time.
    pub(crate) fn at(now: SystemTime) -> Pki {
        let folder = tempdir().expect("a directory");
        let authority = Authority::create(&folder.path().join("pki"), "test", 365, now);
        Pki { folder, authority: authority.expect("an authority") }
    }

    /// Returns the trust of a party, with a new certificate.
    pub(crate) fn trust(&mut self, role: Role, name: &str) -> Arc<LiveTrust> {
        let folder = self.authority.issue(role, name, &[], 30).expect("a certificate");
        load(&folder, role)
    }

    /// Revokes the certificate of a party. The trust folders of the others have the new list.
    pub(crate) fn revoke(&mut self, role: Role, name: &str) {
        self.authority.revoke(role, name).expect("it had a certificate");
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

pub(crate) fn load(folder: &Path, role: Role) -> Arc<LiveTrust> {
    Arc::new(LiveTrust::load(folder, &[role], None).expect("a trust folder"))
}

/// A running coordinator, stopped when it is dropped.
pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<SharedState>,
    said: mpsc::Receiver<String>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Stage {
    /// Starts a coordinator with a policy in which `reserves` has a listener and these lines.
    pub(crate) fn new(lines: &str, trust: Option<Arc<LiveTrust>>) -> Stage {
        let text = format!("reserves:\n  listen: 127.0.0.1:0\n  admin: off\n{lines}");
        let loaded = weirgate_config::load("policy.yaml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let reserves = loaded.site.reserves.expect("it has reserves");
        let (sender, said) = mpsc::channel();
        let say = move |line: &str| drop(sender.send(line.to_owned()));
        let coordinator = CoordinatorServer::open(&reserves, trust, say).expect("it opens");
        let (address, shared) = (coordinator.address().expect("an address"), coordinator.shared());
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(coordinator.serve(async { drop(stopped.await) }))
        });
        Stage { address, shared, said, stop: Some(stop), thread: Some(thread) }
    }

    /// Starts a coordinator with two nodes, two classes with a promised half each, and these lines.
    pub(crate) fn two(lines: &str, trust: Option<Arc<LiveTrust>>) -> Stage {
        let classes =
            "  classes:\n    - { name: a, share: 50%, cgroup: a }\n    - { name: b, share: 50%, cgroup: b }\n";
        Stage::new(&format!("{lines}{classes}"), trust)
    }

    /// Waits for a message that contains `part`.
    pub(crate) fn hear(&self, part: &str) -> String {
        let mut heard = Vec::new();
        loop {
            match self.said.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => heard.push(line),
                Err(_) => panic!("nothing was said of {part:?}, but {heard:?}"),
            }
        }
    }

    pub(crate) fn state(&self, node: usize) -> String {
        self.shared.view().nodes[node].state.clone()
    }

    /// Stops the coordinator.
    pub(crate) fn end(&mut self) -> std::io::Result<()> {
        drop(self.stop.take());
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("it does not panic"))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let ended = self.end();
        if !std::thread::panicking() {
            ended.expect("it ends well");
        }
    }
}

/// An agent that uses the real protocol.
pub(crate) struct Agent {
    runtime: Runtime,
    connection: Connection,
    host: String,
    pub(crate) path: String,
    /// Number of the last report.
    number: u64,
    /// The last report sent.
    last: NodeReport,
    /// Shares, and in the end the reason why there are no more.
    shares: mpsc::Receiver<Result<NodeShares, String>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the address of the coordinator, for a party with `trust`.
pub(crate) fn coordinator(address: SocketAddr, trust: Option<&Arc<LiveTrust>>) -> Address {
    match trust {
        None => Address::Tcp(address.to_string()),
        Some(trust) => {
            let wanted = Wanted { role: Role::Coordinator, name: None };
            Address::Trusted(address.to_string(), Arc::clone(trust), wanted)
        }
    }
}

/// Sends one request on a connection of its own.
pub(crate) fn ask(address: &Address, request: Request) -> Result<Answer, String> {
    weirgate_http_client::blocking::exchange(address, request, &LIMITS).map_err(|error| error.to_string())
}

/// Returns a greeting for `node`.
pub(crate) fn hello(host: &str, node: &str, version: u32) -> Request {
    let hello = serde_json::to_vec(&Hello { version, node: node.to_owned() }).expect("JSON");
    Request::post(host, SESSIONS_PATH, hello).field("content-type", "application/json")
}

/// Returns the reason in an answer that is a refusal.
fn success(answer: Answer) -> Result<Answer, String> {
    if (200..300).contains(&answer.status) { Ok(answer) } else { Err(format!("{}: {}", answer.status, answer.text())) }
}

impl Agent {
    /// Connects as `node`, or returns the reason for a refusal.
    pub(crate) fn new(address: SocketAddr, node: &str, trust: Option<&Arc<LiveTrust>>) -> Result<Agent, String> {
        let (host, address) = (address.to_string(), coordinator(address, trust));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut connection = Connection::new(address.clone());
        let opened = runtime.block_on(connection.send(&hello(&host, node, WIRE_VERSION), &LIMITS));
        let opened = success(opened.map_err(|error| error.to_string())?)?;
        let Session { session } = serde_json::from_slice(&opened.body).expect("a session");
        let path = format!("{SESSIONS_PATH}/{session}");
        let ((sender, shares), (stop, stopped)) = (mpsc::channel(), oneshot::channel::<()>());
        let waits = wait_for_shares(Connection::new(address), host.clone(), path.clone(), sender);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! { _ = stopped => {}, () = waits => {} }
            });
        });
        let (stop, thread) = (Some(stop), Some(thread));
        Ok(Agent { runtime, connection, host, path, number: 0, last: NodeReport::default(), shares, stop, thread })
    }

    /// Reports the shares of `run` as in force and fully used, or the first one as half used if `idle`.
    pub(crate) fn report(&mut self, run: u64, shares: &[f64], idle: bool) {
        let mut usage = shares.to_vec();
        if idle {
            usage[0] /= 2.0;
        }
        let sink: Vec<bool> = usage.iter().zip(shares).map(|(used, share)| used >= share).collect();
        let wants = idle.then_some(Trigger::SinkEnded { class: 0 });
        let (allocation, seconds) = (shares.to_vec(), 0.25);
        let measured = Measured { run, seconds, allocation, usage, sink, wants };
        self.say(&NodeReport { measured, ..NodeReport::default() });
    }

    fn say(&mut self, report: &NodeReport) {
        self.number += 1;
        self.send(self.number, report).expect("it takes the report");
        // The trigger is sent only once, and the reports continue without it.
        self.last = report.clone();
        self.last.measured.wants = None;
    }

    /// Sends a report with this number.
    pub(crate) fn send(&mut self, number: u64, report: &NodeReport) -> Result<(), String> {
        let body = serde_json::to_vec(report).expect("JSON");
        let request = Request::put(&self.host, &format!("{}/reports/{number}", self.path), body);
        let request = request.field("content-type", "application/json");
        let answer = self.runtime.block_on(self.connection.send(&request, &LIMITS));
        success(answer.map_err(|error| error.to_string())?).map(drop)
    }

    /// Sends the last report again, under its own or an earlier number.
    pub(crate) fn repeat(&mut self, back: u64) -> Result<(), String> {
        let last = self.last.clone();
        self.send(self.number - back, &last)
    }

    /// Waits for the end of the session. Returns its reason.
    pub(crate) fn end(&mut self) -> String {
        loop {
            if let Err(why) = self.shares.recv_timeout(PATIENCE).expect("it ends") {
                return why;
            }
        }
    }

    /// Returns the shares that arrive within a window, if any.
    fn shares_soon(&mut self) -> Option<(u64, Vec<f64>)> {
        match self.shares.recv_timeout(WINDOW) {
            Ok(Ok(shares)) => Some((shares.run, shares.shares)),
            Ok(Err(why)) => panic!("the session has ended: {why}"),
            Err(_) => None,
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Passes on shares until the session ends.
async fn wait_for_shares(
    mut connection: Connection,
    host: String,
    path: String,
    sender: mpsc::Sender<Result<NodeShares, String>>,
) {
    let mut after = 0;
    loop {
        let request = Request::get(&host, &format!("{path}/shares?after={after}"));
        let answer = connection.send(&request, &LIMITS).await.map_err(|error| error.to_string()).and_then(success);
        let next = match answer {
            Ok(answer) if answer.status == 204 => continue,
            Ok(answer) => Ok(serde_json::from_slice::<NodeShares>(&answer.body).expect("shares")),
            Err(why) => Err(why),
        };
        let ended = next.is_err();
        after = next.as_ref().map_or(after, |shares| shares.run);
        if sender.send(next).is_err() || ended {
            return;
        }
    }
}

/// Returns the next shares of these agents. While they wait, they repeat their last reports.
pub(crate) fn shares<const N: usize>(mut agents: [&mut Agent; N]) -> [(u64, Vec<f64>); N] {
    let mut given = [const { None }; N];
    for _ in 0..PATIENCE.as_millis() / WINDOW.as_millis() {
        for (agent, given) in agents.iter_mut().zip(&mut given).filter(|(_, given)| given.is_none()) {
            *given = agent.shares_soon();
        }
        if given.iter().all(Option::is_some) {
            return given.map(|given| given.expect("all are there"));
        }
        for agent in &mut agents {
            let again = agent.last.clone();
            agent.say(&again);
        }
    }
    panic!("no shares but {given:?}");
}
