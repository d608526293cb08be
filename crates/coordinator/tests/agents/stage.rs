//! Test environment: a coordinator on its own port, and agents that use the real protocol.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::{TempDir, tempdir};
use tokio::sync::oneshot;
use weirgate_coordinator::{CoordinatorServer, SharedState};
use weirgate_wire::{AgentLink, FromAgent, FromCoordinator, NodeReport, Token, Trigger};

/// Time limit of every operation, much longer than any of them needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Interval of reports while agents wait for shares, as with real agents.
const WINDOW: Duration = Duration::from_millis(250);

/// Valid tokens.
pub(crate) const ONE: &str = "9f86d081884c7d659a2feaa0c55ad015";
pub(crate) const TWO: &str = "a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Files with the tokens, removed at the end.
pub(crate) struct Tokens(TempDir);

impl Tokens {
    pub(crate) fn new() -> Tokens {
        let directory = tempdir().expect("a directory");
        std::fs::write(directory.path().join("one"), ONE).expect("a file");
        std::fs::write(directory.path().join("two"), TWO).expect("a file");
        Tokens(directory)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
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
    pub(crate) fn new(lines: &str) -> Stage {
        let text = format!("reserves:\n  listen: 127.0.0.1:0\n  admin: off\n{lines}");
        let loaded = weirgate_config::load("policy.yaml", &text, false).unwrap_or_else(|errors| panic!("{errors}"));
        let reserves = loaded.site.reserves.expect("it has reserves");
        let (sender, said) = mpsc::channel();
        let coordinator =
            CoordinatorServer::open(&reserves, move |line| drop(sender.send(line.to_owned()))).expect("it opens");
        let (address, shared) = (coordinator.address().expect("an address"), coordinator.shared());
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(coordinator.serve(async { drop(stopped.await) }))
        });
        Stage { address, shared, said, stop: Some(stop), thread: Some(thread) }
    }

    /// Starts a coordinator with two nodes, two classes with a promised half each, and these lines.
    pub(crate) fn two(lines: &str) -> Stage {
        let classes =
            "  classes:\n    - { name: a, share: 50%, cgroup: a }\n    - { name: b, share: 50%, cgroup: b }\n";
        Stage::new(&format!("{lines}{classes}"))
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
    pub(crate) stream: BufReader<TcpStream>,
    pub(crate) link: AgentLink,
    /// The last report sent.
    last: NodeReport,
    /// The part of the next line received so far.
    line: String,
}

pub(crate) fn dial(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream.set_nodelay(true).expect("no delay");
    BufReader::new(stream)
}

/// Returns the next line without its end, or `None` at the end of the stream.
pub(crate) fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    match stream.read_line(&mut line) {
        Ok(0) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
        // If the other side has left data unread, the end of the stream is a reset.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
        Err(error) => panic!("no line: {error}"),
    }
}

pub(crate) fn token(text: &str) -> Token {
    Token::find("test", None, Some(("X", text.to_owned()))).expect("it is strong").expect("it is there")
}

impl Agent {
    /// Connects as `node`, or returns the reason for a refusal.
    pub(crate) fn new(address: SocketAddr, node: &str, secret: Option<&str>) -> Result<Agent, String> {
        let mut stream = dial(address);
        let secret = secret.map(token);
        let nonce = *b"sixteen  of them";
        let (greeted, hello) = AgentLink::agent(secret.as_ref(), node, nonce);
        stream.get_mut().write_all(hello.as_bytes()).expect("it takes the greeting");
        let challenge = line(&mut stream).ok_or("closed")?;
        let (link, proof) = greeted.challenged(challenge.as_bytes()).map_err(|error| error.to_string())?;
        stream.get_mut().write_all(proof.as_bytes()).expect("it takes the proof");
        Ok(Agent { stream, link, last: NodeReport::default(), line: String::new() })
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
        self.say(&NodeReport { run, seconds, allocation, usage, sink, wants, ..NodeReport::default() });
    }

    fn say(&mut self, report: &NodeReport) {
        let line = self.link.seal(&FromAgent::Report(report.clone()));
        self.send(&line);
        // The trigger is sent only once, and the reports continue without it.
        self.last = NodeReport { wants: None, ..report.clone() };
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.stream.get_mut().write_all(line.as_bytes()).expect("it takes the line");
    }

    /// Returns the coordinator's next message, or `None` if it has closed the connection.
    pub(crate) fn hear(&mut self) -> Option<FromCoordinator> {
        let line = line(&mut self.stream)?;
        Some(self.link.open(line.as_bytes()).expect("a sealed line"))
    }

    /// Returns the shares that arrive within a window, if any.
    fn shares_soon(&mut self) -> Option<(u64, Vec<f64>)> {
        self.stream.get_ref().set_read_timeout(Some(WINDOW)).expect("a time limit");
        let read = self.stream.read_line(&mut self.line);
        self.stream.get_ref().set_read_timeout(Some(PATIENCE)).expect("a time limit");
        match read {
            Ok(1..) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
            other => panic!("the coordinator closed the connection: {other:?}"),
        }
        let line = std::mem::take(&mut self.line);
        match self.link.open(line.trim_end().as_bytes()) {
            Ok(FromCoordinator::Shares { run, shares }) => Some((run, shares)),
            other => panic!("no shares, but {other:?}"),
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
