//! State shared by all connections: the coordinator behind a lock, and a channel to each agent.
//!
//! The lock is held for microseconds per report, and for a millisecond while a page of a large cluster is
//! made. The channel to an agent holds only the newest shares, so that an agent that does not read uses no
//! more memory.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use weirgate_clock::Clock;
use weirgate_config::Reserves;
use weirgate_reserves as reserves;
use weirgate_reserves::{Cause, Coordinator, Measured, Problem, Settings, Shares, Solution};
use weirgate_wire::{NodeFigures, NodeReport, Trigger, reserves_admin as view};

use crate::agents::Agents;

/// Maximum rate of log lines about connections, per second, and the size of a burst. Unauthenticated peers
/// must not fill the log. Suppressed lines are counted.
const LINES_PER_SECOND: f64 = 10.0;

/// Maximum sleep. Without a connection there is nothing to wake up for.
const LONGEST: Duration = Duration::from_secs(3_600);

/// State of the coordinator, shared by its parts.
pub struct SharedState {
    clock: Clock,
    policy: Reserves,
    agents: Agents,
    state: Mutex<State>,
    changed: Notify,
    say: Box<dyn Fn(&str) + Send + Sync>,
}

struct State {
    coordinator: Coordinator,
    nodes: Vec<Agent>,
    /// Number of log lines still allowed, and the time at which it was computed.
    lines: (f64, Duration),
    left_out: u64,
    refused: u64,
}

#[derive(Default)]
struct Agent {
    connection: u64,
    peer: Option<SocketAddr>,
    /// Channel for shares. Dropping it ends the connection.
    shares: Option<watch::Sender<Option<Shares>>>,
    figures: NodeFigures,
}

/// A connection that represents a node.
pub(crate) struct Attachment {
    pub(crate) connection: u64,
    /// The newest shares. The channel closes when another connection takes over the node.
    pub(crate) shares: watch::Receiver<Option<Shares>>,
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("agents", &self.agents).finish_non_exhaustive()
    }
}

impl SharedState {
    pub(crate) fn new(policy: &Reserves, agents: Agents, say: Box<dyn Fn(&str) + Send + Sync>) -> SharedState {
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
            lines: (LINES_PER_SECOND, now),
            left_out: 0,
            refused: 0,
        };
        SharedState { clock, policy: policy.clone(), agents, state: Mutex::new(state), changed: Notify::new(), say }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Returns the nodes and the tokens of their agents.
    pub(crate) fn agents(&self) -> &Agents {
        &self.agents
    }

    /// Returns the number of nodes with agents that prove nothing, because they have no token.
    #[must_use]
    pub fn without_token(&self) -> usize {
        self.agents.without_token()
    }

    /// Waits until something has changed since [`Self::poll`].
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until `time`, or for an hour if there is none.
    pub(crate) async fn reach(&self, time: Option<Duration>) {
        self.clock.reach(time.unwrap_or_else(|| self.now() + LONGEST)).await;
    }

    /// Registers a connection that has proven that it represents `node`. Ends an earlier one.
    pub(crate) fn attach(&self, node: usize, peer: SocketAddr) -> Attachment {
        let (sender, shares) = watch::channel(None);
        let mut state = self.state();
        state.coordinator.connected(node);
        let agent = &mut state.nodes[node];
        agent.connection += 1;
        agent.peer = Some(peer);
        agent.figures = NodeFigures::default();
        let connection = agent.connection;
        let again = agent.shares.replace(sender).is_some();
        let how = if again { ", in place of an earlier connection" } else { "" };
        self.line(&mut state, &format!("node {}: connected from {peer}{how}", self.policy.cluster.nodes[node].name));
        drop(state);
        self.changed.notify_one();
        Attachment { connection, shares }
    }

    /// Notes that a connection has ended, with the reason.
    pub(crate) fn detach(&self, node: usize, connection: u64, why: &str) {
        let mut state = self.state();
        let name = &self.policy.cluster.nodes[node].name;
        let agent = &mut state.nodes[node];
        if agent.connection == connection {
            (agent.shares, agent.peer) = (None, None);
            state.coordinator.disconnected(node);
            self.line(&mut state, &format!("node {name}: disconnected: {why}"));
        } else {
            self.line(&mut state, &format!("node {name}: an earlier connection ended: {why}"));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Notes that a peer was refused, with the reason.
    pub(crate) fn refused(&self, peer: SocketAddr, why: &str) {
        let mut state = self.state();
        state.refused += 1;
        self.line(&mut state, &format!("refused {peer}: {why}"));
    }

    /// Handles a report of `node` that arrived on `connection`.
    ///
    /// # Errors
    /// The report is invalid, or another connection represents the node.
    pub(crate) fn report(&self, node: usize, connection: u64, report: NodeReport) -> Result<(), String> {
        report.check(self.policy.cluster.classes.len())?;
        let mut state = self.state();
        if state.nodes[node].connection != connection {
            return Err("another connection speaks for this node".to_owned());
        }
        state.nodes[node].figures = report.node;
        let measured = Measured {
            run: report.run,
            seconds: report.seconds,
            allocation: report.allocation,
            usage: report.usage,
            sink: report.sink,
            wants: report.wants.map(asked),
        };
        // Under the lock, so that the coordinator's time never runs backwards.
        state.coordinator.reported(self.now(), node, measured);
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
            if let Some(sender) = &state.nodes[shares.node].shares {
                // A connection that is about to end does not receive them.
                let _ = sender.send(Some(shares));
            }
        }
    }

    /// Writes a log line about connections, unless there were too many.
    fn line(&self, state: &mut State, line: &str) {
        let now = self.now();
        let (left, at) = state.lines;
        let left = (left + LINES_PER_SECOND * now.saturating_sub(at).as_secs_f64()).min(LINES_PER_SECOND);
        if left < 1.0 {
            state.lines = (left, now);
            state.left_out += 1;
            return;
        }
        state.lines = (left - 1.0, now);
        match std::mem::take(&mut state.left_out) {
            0 => (self.say)(line),
            more => (self.say)(&format!("{line} ({more} lines before it were left out)")),
        }
    }

    /// Returns all data for the page, JSON and metrics.
    #[must_use]
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
            node: node_of(run.cause).map(|node| self.policy.cluster.nodes[node].name.clone()),
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
            name: self.policy.cluster.nodes[node].name.clone(),
            state: match (known.is_connected(), state.coordinator.is_live(now, node)) {
                (false, _) => "down",
                (true, false) => "silent",
                (true, true) => "up",
            }
            .to_owned(),
            address: agent.peer.map(|peer| peer.to_string()),
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
    use reserves::Trigger::{Fell, SinkBegan, SinkEnded};
    match cause {
        Cause::Asked { trigger: SinkBegan { class } | SinkEnded { class } | Fell { class }, .. } => Some(class),
        _ => None,
    }
}

/// Converts the trigger of a request to the coordinator's type.
fn asked(trigger: Trigger) -> reserves::Trigger {
    match trigger {
        Trigger::SinkBegan { class } => reserves::Trigger::SinkBegan { class },
        Trigger::SinkEnded { class } => reserves::Trigger::SinkEnded { class },
        Trigger::Fell { class } => reserves::Trigger::Fell { class },
    }
}
