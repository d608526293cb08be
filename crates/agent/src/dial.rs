//! The agent's session with the coordinator, opened again for the lifetime of the agent.
//!
//! Source: Cluster Reserves, Sec. 4: a persistent TCP connection between tracker and coordinator. Here there are two
//! HTTP connections. Reports go over one of them, and on the other the agent always waits for the next shares. If one
//! of them fails, the session ends and the shares stay as they are. While the coordinator is not reachable, the agent
//! tries again after a pause of at first 50 ms and at most 400 ms. Each pause is shortened by a random part, so that a
//! thousand agents do not reach a new coordinator at once.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use weirgate_clock::{self as clock, Clock};
use weirgate_http_client::{Address, Answer, Connection, Limits, Request};
use weirgate_tls::{LiveTrust, Role, Wanted};
use weirgate_wire::{Hello, NodeReport, NodeShares, Refused, SESSIONS_PATH, Session, WIRE_VERSION};

/// First and longest pause before the coordinator is dialled again. A new coordinator starts its first run after all
/// nodes have connected and reported a window of 250 ms. With a pause of 400 ms before that, shares are
/// managed again within a second of its start. A thousand agents then cause 2,500 refused connections a
/// second, a negligible load for a loopback or a network card.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(400));

/// Maximum size of an answer, in bytes. The shares of 100 classes are 2 KiB.
const MAX_ANSWER: u64 = 64 << 10;

/// Limits of a request that is answered at once. They are needed because a machine that has failed closes no
/// connection.
const AT_ONCE: Limits = Limits::new(Duration::from_secs(2), MAX_ANSWER);

/// Limits of a request for the next shares. The coordinator answers within 10 s, even if there are none.
const WAITING: Limits = Limits::new(Duration::from_secs(30), MAX_ANSWER);

/// Maximum number of reports that wait for the network, which is two windows of them. The session is given up if there
/// are more, because the coordinator counts a node as down after 1 s without a report.
const MAX_WAITING: usize = 2;

/// Maximum number of characters of the coordinator's reason in the log.
const MAX_QUOTED: usize = 200;

pub(crate) enum Event {
    /// A session is open. The agent sends its reports here, and the session ends when the sender is dropped.
    Up(mpsc::Sender<NodeReport>),
    /// The coordinator has sent shares to set. A correct coordinator sends one for each class.
    Shares(NodeShares),
    /// The session has ended or could not be opened, with the reason. Not sent if the agent itself gave it up.
    Down(String),
}

/// The coordinator to dial, and the identity of the agent.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) coordinator: String,
    pub(crate) node: String,
    pub(crate) trust: Option<Arc<LiveTrust>>,
    pub(crate) events: mpsc::Sender<Event>,
}

/// How a session ended without an error.
enum End {
    /// The receiver of the events is gone.
    Unheard,
    /// The agent dropped the sender of its reports.
    Dropped,
}

impl Dial {
    /// Keeps a session until the receiver of the events is gone.
    pub(crate) async fn keep(self) {
        let mut pause = PAUSE.0;
        loop {
            let began = Clock::start();
            match self.talk().await {
                Ok(End::Unheard) => return,
                Ok(End::Dropped) => {}
                Err(why) => {
                    if self.events.send(Event::Down(why)).await.is_err() {
                        return;
                    }
                }
            }
            // The pause is not reset after a short session. So a coordinator that ends sessions at once
            // is not dialled too often.
            if began.now() >= PAUSE.1 {
                pause = PAUSE.0;
            }
            clock::sleep(clock::jittered(pause)).await;
            pause = (2 * pause).min(PAUSE.1);
        }
    }

    /// Opens one session and uses it until it ends.
    ///
    /// # Errors
    /// The reason why there is no session, or why it ended.
    async fn talk(&self) -> Result<End, String> {
        let address = match &self.trust {
            None => Address::Tcp(self.coordinator.clone()),
            Some(trust) => {
                let wanted = Wanted { role: Role::Coordinator, name: None };
                Address::Trusted(self.coordinator.clone(), Arc::clone(trust), wanted)
            }
        };
        let mut connection = Connection::new(address.clone());
        let hello = Hello { version: WIRE_VERSION, node: self.node.clone() };
        let hello = json(Request::post(&self.coordinator, SESSIONS_PATH, body(&hello)));
        let Session { session } = read(ask(&mut connection, &hello, &AT_ONCE).await?)?;
        let path = format!("{SESSIONS_PATH}/{session}");

        let (sender, reports) = mpsc::channel(MAX_WAITING);
        if self.events.send(Event::Up(sender)).await.is_err() {
            return Ok(End::Unheard);
        }
        tokio::select! {
            ended = self.send(connection, &path, reports) => ended,
            ended = self.receive(Connection::new(address), &path) => ended,
        }
    }

    async fn send(
        &self,
        mut connection: Connection,
        path: &str,
        mut reports: mpsc::Receiver<NodeReport>,
    ) -> Result<End, String> {
        let mut number = 0u64;
        while let Some(report) = reports.recv().await {
            number += 1;
            let report = Request::put(&self.coordinator, &format!("{path}/reports/{number}"), body(&report));
            ask(&mut connection, &json(report), &AT_ONCE).await?;
        }
        Ok(End::Dropped)
    }

    async fn receive(&self, mut connection: Connection, path: &str) -> Result<End, String> {
        let mut after = 0;
        loop {
            let next = Request::get(&self.coordinator, &format!("{path}/shares?after={after}"));
            let answer = ask(&mut connection, &next, &WAITING).await?;
            if answer.status == 204 {
                continue;
            }
            let shares: NodeShares = read(answer)?;
            after = shares.run;
            if self.events.send(Event::Shares(shares)).await.is_err() {
                return Ok(End::Unheard);
            }
        }
    }
}

/// Returns a message as JSON.
fn body(message: &impl serde::Serialize) -> Vec<u8> {
    // The messages consist of structs, numbers and texts, which JSON can represent.
    serde_json::to_vec(message).unwrap_or_default()
}

fn json(request: Request) -> Request {
    request.field("content-type", "application/json")
}

/// Sends a request, and returns the answer if it is a success.
async fn ask(connection: &mut Connection, request: &Request, limits: &Limits) -> Result<Answer, String> {
    let answer = connection.send(request, limits).await.map_err(|error| error.to_string())?;
    if (200..300).contains(&answer.status) {
        return Ok(answer);
    }
    let reason = serde_json::from_slice(&answer.body).map(|Refused { error }| quoted(&error));
    Err(reason.map_or_else(
        |_| format!("the coordinator answers with status {}", answer.status),
        |why| format!("the coordinator refuses: {why}"),
    ))
}

fn read<T: DeserializeOwned>(answer: Answer) -> Result<T, String> {
    let read = serde_json::from_slice(&answer.body);
    read.map_err(|error| format!("this is no answer of a coordinator: {}", quoted(&error.to_string())))
}

/// Cuts a text and removes characters that could control a terminal.
fn quoted(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().collect() } else { vec![c] };
    text.chars().take(MAX_QUOTED).flat_map(shown).collect()
}
