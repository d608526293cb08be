//! State shared by all connections: the coordinator behind a lock, and a session for each agent.
//!
//! The lock is held for microseconds per report, and for a millisecond while a page of a large cluster is
//! made. The channel of a session holds only the newest shares, so that an agent that does not read uses no
//! more memory. There is at most one session for each node: the newest.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{Notify, watch};
use weirgate_clock::{self as clock, Clock};
use weirgate_config::Reserves;
use weirgate_http_server::{Lines, Peer, Rate};
use weirgate_reserves as reserves;
use weirgate_reserves::{Cause, Coordinator, Problem, Settings, Shares, Solution};
use weirgate_wire::{NodeFigures, NodeReport, reserves_admin as view};

/// Maximum rate of the reports of one node, per second, and the size of a burst. Agents send four.
const REPORTS_PER_SECOND: f64 = 20.0;

/// Maximum time without a report before a session ends. A silent node counts as down after 1 s, and its machine may
/// have failed without closing the connection.
const SILENT: Duration = Duration::from_secs(5);

/// Maximum sleep. Without a connection there is nothing to wake up for.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Why a request of an agent is refused.
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) why: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Refusal {
        Refusal { status, why: why.into() }
    }
}

/// State of the coordinator, shared by its parts.
pub struct SharedState {
    clock: Clock,
    policy: Reserves,
    state: Mutex<State>,
    changed: Notify,
    say: Box<dyn Fn(&str) + Send + Sync>,
}

struct State {
    coordinator: Coordinator,
    nodes: Vec<Agent>,
    /// Limits the lines about connections.
    lines: Lines,
    refused: u64,
}

/// The session of a node.
#[derive(Default)]
struct Agent {
    session: Option<Open>,
    figures: NodeFigures,
}

struct Open {
    id: String,
    peer: Option<SocketAddr>,
    /// The number of the last report. They begin at 1.
    number: u64,
    /// Time of the last report, or of the beginning.
    heard: Duration,
    reports: Rate,
    /// Channel for shares. Dropping it ends the session.
    shares: watch::Sender<Option<Shares>>,
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedState").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl SharedState {
    pub(crate) fn new(policy: &Reserves, say: Box<dyn Fn(&str) + Send + Sync>) -> SharedState {
        let clock = Clock::start();
        let settings = Settings {
            desired: policy.cluster.classes.iter().map(|class| class.share).collect(),
            placed: (0..policy.cluster.nodes.len())
                .map(|node| policy.cluster.classes.iter().map(|class| class.is_on(node)).collect())
                .collect(),
            every: policy.every,
            on_demand: policy.on_demand,
        };
        let now = clock.now();
        let state = State {
            coordinator: Coordinator::new(now, settings),
            nodes: policy.cluster.nodes.iter().map(|_| Agent::default()).collect(),
            lines: Lines::new(now),
            refused: 0,
        };
        SharedState { clock, policy: policy.clone(), state: Mutex::new(state), changed: Notify::new(), say }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Waits until something has changed since [`Self::poll`].
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until `time`, or for an hour if there is none.
    pub(crate) async fn reach(&self, time: Option<Duration>) {
        self.clock.reach(time.unwrap_or_else(|| self.now() + LONGEST)).await;
    }

    /// Returns the index of the node called `name`.
    pub(crate) fn node_called(&self, name: &str) -> Option<usize> {
        self.policy.cluster.node(name)
    }

    /// Checks that `peer` may speak for `node`: with TLS its certificate must be of the agent of that node.
    pub(crate) fn speaks_for(&self, node: usize, peer: &Peer) -> Result<(), Refusal> {
        let name = &self.policy.cluster.nodes[node];
        match &peer.party {
            Some(party) if party.name != *name => {
                let why = format!("the certificate is of {party}, which may not speak for node {name}");
                Err(Refusal::new(StatusCode::FORBIDDEN, why))
            }
            _ => Ok(()),
        }
    }

    /// Opens a session for `node`. Ends an earlier one.
    pub(crate) fn attach(&self, node: usize, peer: &Peer) -> Result<String, Refusal> {
        let random: [u8; 16] = clock::random_bytes()
            .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no random bytes: {error}")))?;
        // The first part finds the node again, and the second one is different in every session of every coordinator.
        let id = random.iter().fold(format!("{node}-"), |id, byte| id + &format!("{byte:02x}"));
        let now = self.now();
        let mut state = self.state();
        state.coordinator.connected(node);
        let open = Open {
            id: id.clone(),
            peer: peer.address,
            number: 0,
            heard: now,
            reports: Rate::new(REPORTS_PER_SECOND, now),
            shares: watch::channel(None).0,
        };
        let agent = &mut state.nodes[node];
        agent.figures = NodeFigures::default();
        let again = agent.session.replace(open).is_some();
        let how = if again { ", in place of an earlier session" } else { "" };
        let from = peer.address.map_or_else(String::new, |address| format!(" from {address}"));
        self.line(&mut state, &format!("node {}: connected{from}{how}", self.policy.cluster.nodes[node]));
        drop(state);
        self.changed.notify_one();
        Ok(id)
    }

    /// Returns the node of a session.
    pub(crate) fn session(&self, id: &str) -> Result<usize, Refusal> {
        let node = id.split_once('-').and_then(|(node, _)| node.parse().ok());
        let node = node.filter(|&node| node < self.policy.cluster.nodes.len());
        let node = node.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "there is no such session"))?;
        self.open(&mut self.state(), node, id).map(|_| node)
    }

    /// Returns the session of `node`, which must have this id.
    fn open<'a>(&self, state: &'a mut State, node: usize, id: &str) -> Result<&'a mut Open, Refusal> {
        let why = match &state.nodes[node].session {
            Some(open) if open.id == id => "",
            Some(_) => "another session speaks for this node",
            None => "this session has ended",
        };
        match state.nodes[node].session.as_mut().filter(|_| why.is_empty()) {
            Some(open) => Ok(open),
            None => Err(Refusal::new(StatusCode::CONFLICT, why)),
        }
    }

    /// Returns the channel with the newest shares. It closes when the session ends.
    pub(crate) fn newest(&self, node: usize, id: &str) -> Result<watch::Receiver<Option<Shares>>, Refusal> {
        self.open(&mut self.state(), node, id).map(|open| open.shares.subscribe())
    }

    /// Ends the sessions that have sent no report for too long.
    pub(crate) fn end_silent(&self) {
        let now = self.now();
        let is_silent = |agent: &Agent| {
            let open = agent.session.as_ref().filter(|open| now >= open.heard + SILENT);
            open.map(|open| open.id.clone())
        };
        let silent: Vec<_> = self.state().nodes.iter().map(is_silent).enumerate().collect();
        for (node, id) in silent.into_iter().filter_map(|(node, id)| Some((node, id?))) {
            self.detach(node, &id, &format!("it has sent nothing for {} s", SILENT.as_secs()));
        }
    }

    /// Notes that a session has ended, with the reason.
    pub(crate) fn detach(&self, node: usize, id: &str, why: &str) {
        let mut state = self.state();
        if self.open(&mut state, node, id).is_err() {
            return;
        }
        state.nodes[node].session = None;
        state.coordinator.disconnected(node);
        self.line(&mut state, &format!("node {}: disconnected: {why}", self.policy.cluster.nodes[node]));
        drop(state);
        self.changed.notify_one();
    }

    /// Notes that a peer was refused. `line` has the reason.
    pub(crate) fn refused(&self, line: &str) {
        let mut state = self.state();
        state.refused += 1;
        self.line(&mut state, line);
    }

    /// Handles report `number` of a session. A report that was sent again counts once.
    ///
    /// # Errors
    /// The report is not valid, is older than the last one, or comes too soon. One that is not valid ends the session.
    pub(crate) fn report(&self, node: usize, id: &str, number: u64, report: NodeReport) -> Result<(), Refusal> {
        let name = &self.policy.cluster.nodes[node];
        if let Err(why) = report.check(self.policy.cluster.classes.len()) {
            self.detach(node, id, &why);
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, format!("node {name}: {why}")));
        }
        let mut state = self.state();
        // Under the lock, so that the coordinator's time never runs backwards.
        let now = self.now();
        let open = self.open(&mut state, node, id)?;
        if number == open.number {
            return Ok(());
        }
        if number < open.number {
            let why = format!("report {number} comes after report {}", open.number);
            return Err(Refusal::new(StatusCode::CONFLICT, why));
        }
        if !open.reports.takes(now) {
            let why = format!("node {name}: more than {REPORTS_PER_SECOND} reports in a second");
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, why));
        }
        (open.number, open.heard) = (number, now);
        state.nodes[node].figures = report.node;
        state.coordinator.reported(now, node, report.measured);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Returns a problem to solve, and the time of the next call.
    pub(crate) fn poll(&self) -> (Option<Problem>, Option<Duration>) {
        let mut state = self.state();
        let now = self.now();
        let problem = state.coordinator.poll_run(now);
        let wake = state.coordinator.next_timeout(now);
        (problem, wake)
    }

    /// Applies the solution of the problem that was begun at `began`, and sends the shares.
    pub(crate) fn solved(&self, solution: Result<Solution, reserves::Error>, began: Duration) {
        let mut state = self.state();
        let now = self.now();
        let failed = state.coordinator.ledger().failure.is_some();
        state.coordinator.solved(now, solution, now.saturating_sub(began));
        match (failed, &state.coordinator.ledger().failure) {
            (false, Some(error)) => (self.say)(&format!("no new shares, the last ones stay in force: {error}")),
            (true, None) => (self.say)("new shares were found again"),
            _ => {}
        }
        while let Some(shares) = state.coordinator.poll_shares() {
            if let Some(open) = &state.nodes[shares.node].session {
                // An agent that asks later gets them as well.
                open.shares.send_replace(Some(shares));
            }
        }
    }

    /// Writes a line for people.
    pub(crate) fn say(&self, line: &str) {
        (self.say)(line);
    }

    /// Writes a log line about connections, unless there were too many.
    fn line(&self, state: &mut State, line: &str) {
        if let Some(line) = state.lines.limit(line.to_owned(), self.now()) {
            (self.say)(&line);
        }
    }

    /// Returns all data for the page, JSON and metrics.
    pub fn view(&self) -> view::Reserves {
        let state = self.state();
        let now = self.now();
        let ledger = state.coordinator.ledger();
        let seconds_ago = |at: Duration| now.saturating_sub(at).as_secs_f64();
        let nodes = (0..self.policy.cluster.nodes.len()).map(|node| self.node(&state, now, node)).collect();
        let runs = ledger.finished.iter().rev().map(|run| view::Run {
            number: run.number,
            seconds_ago: seconds_ago(run.began),
            cause: run.cause.word().to_owned(),
            node: node_of(run.cause).map(|node| self.policy.cluster.nodes[node].clone()),
            class: class_of(run.cause)
                .and_then(|class| self.policy.cluster.classes.get(class))
                .map(|class| class.name.clone()),
            nodes: run.nodes,
            deviation_percent: run.deviation,
            moved_percent: run.moved,
            solve_seconds: run.took.as_secs_f64(),
        });
        view::Reserves {
            now_seconds: now.as_secs_f64(),
            every_seconds: self.policy.every.map(|every| every.as_secs_f64()),
            on_demand: self.policy.on_demand,
            classes: self
                .policy
                .cluster
                .classes
                .iter()
                .map(|class| view::Promise { name: class.name.clone(), share_percent: class.share })
                .collect(),
            nodes,
            runs: view::Runs {
                done: ledger.runs.by_cause().iter().map(|&(cause, count)| (cause.to_owned(), count)).collect(),
                failed: ledger.runs.failed,
                asked: ledger.runs.asked,
                solve_seconds: ledger.runs.solve_seconds,
            },
            last_runs: runs.collect(),
            failure: ledger.failure.as_ref().map(ToString::to_string),
            refused: state.refused,
        }
    }

    fn node(&self, state: &State, now: Duration, node: usize) -> view::Node {
        let (agent, known) = (&state.nodes[node], &state.coordinator.nodes()[node]);
        let last = known.last();
        let figure = |figures: Option<&[f64]>, class: usize| figures.and_then(|f| f.get(class)).copied();
        let classes = self.policy.cluster.classes.iter().enumerate().filter(|(_, class)| class.is_on(node));
        let classes = classes.map(|(index, class)| view::ClassOnNode {
            name: class.name.clone(),
            share_percent: figure(last.map(|(_, m)| m.allocation.as_slice()), index),
            usage_percent: figure(last.map(|(_, m)| m.usage.as_slice()), index),
            sink: last.and_then(|(_, m)| m.sink.get(index)).copied(),
            allocation_percent: figure(known.given(), index),
        });
        view::Node {
            name: self.policy.cluster.nodes[node].clone(),
            state: match (known.is_connected(), state.coordinator.is_live(now, node)) {
                (false, _) => "down",
                (true, false) => "silent",
                (true, true) => "up",
            }
            .to_owned(),
            address: agent.session.as_ref().and_then(|open| open.peer).map(|peer| peer.to_string()),
            report_age_seconds: last.map(|&(at, _)| now.saturating_sub(at).as_secs_f64()),
            run: last.map(|(_, measured)| measured.run),
            classes: classes.collect(),
            figures: agent.figures,
        }
    }
}

fn node_of(cause: Cause) -> Option<usize> {
    match cause {
        Cause::Periodic => None,
        Cause::Asked { node, .. } | Cause::Joined { node } | Cause::Left { node } => Some(node),
    }
}

fn class_of(cause: Cause) -> Option<usize> {
    match cause {
        Cause::Asked { trigger, .. } => Some(trigger.class()),
        _ => None,
    }
}
