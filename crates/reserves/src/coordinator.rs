//! The coordinator's side: knows which nodes are up, decides when to compute new shares, and hands them out.
//!
//! Source: Cluster Reserves, Sec. 4 (the resource coordinator) and Secs. 5.3 and 5.4 (when it runs). Departures:
//!
//! - A run needs from every live node a report on a window that began after the last change of shares. The
//!   paper waits for 250 ms. Requiring such a report has the same effect, and also covers a node that is slow
//!   to set its shares.
//! - A node that joins or leaves causes a run, just as a node that asks for one, because the promises refer
//!   to the nodes that are up.
//! - The reports contain the shares in force, so a coordinator that has just started continues from them. It
//!   first waits for the nodes to connect, because a missing node would count as down.
//! - A node that repeats a question about a class within [`MEMORY`] is ignored. The optimiser gives a class
//!   that uses less than its share exactly its use, which makes the class a sink. Step 2 then gives it more,
//!   or less than elsewhere, and it is no longer a sink. Without this rule the cycle could keep a quiet
//!   cluster running for ever. The next periodic run finds any change that this rule ignores.
//! - A class may be limited to some nodes. On other nodes it uses nothing and cannot use anything, so the
//!   optimiser gives it the minimum share of 1 % there. That share, and anything that step 3 adds to it, goes
//!   to the classes that are on the node. Of the promise to such a class, up to 1 % of each node without it
//!   is therefore counted as given although it is not.
//!
//! Sans-IO: time is passed in as time since some beginning, and the caller solves the problem.
//! [`Coordinator::poll_run`] returns a problem, [`Coordinator::solved`] takes the shares, and
//! [`Coordinator::poll_shares`] hands them out.

mod ledger;
mod node;

use std::collections::VecDeque;
use std::time::Duration;

use node::{on_node, percentages, row};

use crate::problem::{Error, Problem, Solution};
use weirgate_wire::{Measured, Trigger};

pub use ledger::{Finished, Ledger, MAX_FINISHED, Runs};
pub use node::{MEMORY, Node};

/// A node that sends nothing for this long is down. It is the time of four reports.
pub const SILENCE: Duration = Duration::from_secs(1);

/// How long a new coordinator waits for all nodes before its first run. Nodes that are still missing then count
/// as down. Agents reconnect within a second, and their first report follows one window later.
pub const GATHERING: Duration = Duration::from_secs(2);

/// How long a node may take to set the shares of the last run. After that it is assumed to be unable to, and
/// its reports are used as they are. Setting shares takes milliseconds, and the window is 250 ms.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pause after a failed run before the next attempt. The reason for the run remains, and the cause of the
/// failure may remain too.
const REST: Duration = Duration::from_secs(1);

/// The promises, the placement of the classes, and the reasons for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Promise to each class, in percent of the cluster. The sum is at most 100.
    pub desired: Vec<f64>,
    /// Per node and class, whether the node has the class.
    pub placed: Vec<Vec<bool>>,
    /// Time between two runs without another reason, or `None` for no periodic runs.
    pub every: Option<Duration>,
    /// Whether a node that asks, joins or leaves causes a run.
    pub on_demand: bool,
}

/// Reason for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The period had passed.
    Periodic,
    /// A node asked for new shares.
    Asked {
        /// Index of the node.
        node: usize,
        /// The reason that the node gave.
        trigger: Trigger,
    },
    /// A node came up.
    Joined {
        /// Index of the node.
        node: usize,
    },
    /// A node went down.
    Left {
        /// Index of the node.
        node: usize,
    },
}

/// Shares that a node has to set.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// Index of the node.
    pub node: usize,
    /// Number of the run that computed them.
    pub run: u64,
    /// Share of each class, in percent of the node. The sum is at most 100.
    pub shares: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Run {
    number: u64,
    cause: Cause,
    began: Duration,
    /// The nodes of the problem, in its order.
    nodes: Vec<Member>,
    /// The shares that were in force, per node and class.
    before: Vec<Vec<f64>>,
}

/// A node's index and the number of its connection.
type Member = (usize, u64);

/// Connects the nodes of a cluster with the optimiser.
#[derive(Clone, Debug)]
pub struct Coordinator {
    settings: Settings,
    began: Duration,
    nodes: Vec<Node>,
    /// The nodes of the last run, in their order.
    members: Vec<Member>,
    running: Option<Run>,
    asked: Option<(usize, Trigger)>,
    /// Highest run number seen, from this coordinator or from a report.
    last_run: u64,
    /// When shares were last handed out, or when a run last failed.
    changed: Option<Duration>,
    /// When the next periodic run is due.
    due: Option<Duration>,
    /// No run starts before this time.
    rest_until: Duration,
    out: VecDeque<Shares>,
    ledger: Ledger,
}

impl Coordinator {
    /// Starts at `now` with no node connected.
    pub fn new(now: Duration, settings: Settings) -> Coordinator {
        Coordinator {
            began: now,
            nodes: vec![Node::default(); settings.placed.len()],
            members: Vec::new(),
            running: None,
            asked: None,
            last_run: 0,
            changed: None,
            due: settings.every.map(|_| now),
            rest_until: now,
            out: VecDeque::new(),
            ledger: Ledger::default(),
            settings,
        }
    }

    /// Records a new connection to `node`, which replaces an earlier one.
    pub fn connected(&mut self, node: usize) {
        self.begin(node, true);
    }

    /// Records that the connection to `node` is gone.
    pub fn disconnected(&mut self, node: usize) {
        self.begin(node, false);
    }

    /// Forgets the state of a node that connected or disconnected. Shares sent to it before may be lost.
    fn begin(&mut self, node: usize, connected: bool) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        *state = Node { connected, connection: state.connection + 1, ..Node::default() };
        self.out.retain(|shares| shares.node != node);
    }

    /// Takes the measurements of `node`, received at `now`. A missing figure counts as 0.
    pub fn reported(&mut self, now: Duration, node: usize, measured: Measured) {
        let Some(state) = self.nodes.get_mut(node).filter(|state| state.connected) else { return };
        self.last_run = self.last_run.max(measured.run);
        if let Some(trigger) = measured.wants {
            self.ledger.runs.asked += 1;
            if self.settings.on_demand && state.is_news(now, &measured, trigger) {
                self.asked.get_or_insert((node, trigger));
            }
        }
        state.last = Some((now, measured));
    }

    /// Starts a run if there is a reason for one at `now` and every live node has sent a usable report. No
    /// other run starts until [`Self::solved`].
    pub fn poll_run(&mut self, now: Duration) -> Option<Problem> {
        if self.running.is_some() || now < self.rest_until {
            return None;
        }
        let live: Vec<usize> = (0..self.nodes.len()).filter(|&node| self.is_live(now, node)).collect();
        let gathering = self.members.is_empty() && now < self.began + GATHERING;
        if live.is_empty() || (gathering && live.len() < self.nodes.len()) {
            return None;
        }
        let cause = self.cause(now, &live)?;
        let mut problem = Problem { desired: self.settings.desired.clone(), usage: Vec::new(), sink: Vec::new() };
        let mut before = Vec::with_capacity(live.len());
        for &node in &live {
            let measured = self.fresh(node)?;
            let placed = &self.settings.placed[node];
            let (usage, sink) = row(measured, placed);
            problem.usage.push(usage);
            problem.sink.push(sink);
            before.push(percentages(&measured.allocation, placed.len()));
        }
        self.last_run = self.last_run.saturating_add(1);
        let nodes = live.iter().map(|&node| (node, self.nodes[node].connection)).collect();
        self.running = Some(Run { number: self.last_run, cause, began: now, nodes, before });
        // Questions from now on concern the time after this run.
        self.asked = None;
        self.due = self.settings.every.map(|every| now + every);
        Some(problem)
    }

    /// Takes the solution of the problem of the current run at `now`. Solving it took `took`.
    pub fn solved(&mut self, now: Duration, solution: Result<Solution, Error>, took: Duration) {
        let Some(run) = self.running.take() else { return };
        self.changed = Some(now);
        let solution = match solution {
            Ok(solution) => solution,
            Err(error) => {
                if let Cause::Asked { node, trigger } = run.cause {
                    self.asked.get_or_insert((node, trigger));
                }
                self.rest_until = now + REST;
                self.ledger.failed(error, took);
                return;
            }
        };
        let mut moved = 0.0;
        self.nodes.iter_mut().for_each(|node| node.member = false);
        for ((&(node, connection), shares), before) in run.nodes.iter().zip(solution.allocation).zip(&run.before) {
            let shares = on_node(shares, &self.settings.placed[node]);
            moved += shares.iter().zip(before).map(|(new, old)| (new - old).max(0.0)).sum::<f64>();
            let state = &mut self.nodes[node];
            // A node that connected in the meantime was not in the problem. It causes the next run.
            if state.connection == connection {
                state.handed = Some((run.number, now));
                state.given = Some(shares.clone());
                state.member = true;
                self.out.push_back(Shares { node, run: run.number, shares });
            }
        }
        self.ledger.finished(Finished {
            number: run.number,
            began: run.began,
            cause: run.cause,
            nodes: run.nodes.len(),
            deviation: solution.deviation,
            moved,
            took,
        });
        self.members = run.nodes;
    }

    /// Returns the next shares to send.
    pub fn poll_shares(&mut self) -> Option<Shares> {
        self.out.pop_front()
    }

    /// Returns the latest time after `now` at which [`Self::poll_run`] must be called again if nothing else
    /// happens.
    pub fn next_timeout(&self, now: Duration) -> Option<Duration> {
        let silent = self.nodes.iter().filter_map(|node| node.last.as_ref().map(|&(at, _)| at + SILENCE));
        let timers = [self.began + GATHERING, self.rest_until];
        silent.chain(timers).chain(self.due).filter(|&at| at > now).min()
    }

    /// Returns whether `node` is up at `now`: it is connected and has reported within [`SILENCE`].
    pub fn is_live(&self, now: Duration, node: usize) -> bool {
        let last = self.nodes.get(node).and_then(|node| node.last.as_ref());
        last.is_some_and(|&(at, _)| now < at + SILENCE)
    }

    /// Returns the state of the nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the record of past runs.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the reason for a run at `now`, if there is one.
    fn cause(&self, now: Duration, live: &[usize]) -> Option<Cause> {
        if let Some((node, trigger)) = self.asked {
            return Some(Cause::Asked { node, trigger });
        }
        if self.settings.on_demand {
            if let Some(&node) = live.iter().find(|&&node| !self.nodes[node].member) {
                return Some(Cause::Joined { node });
            }
            if let Some(&(node, _)) = self.members.iter().find(|&&(node, _)| !self.is_live(now, node)) {
                return Some(Cause::Left { node });
            }
        }
        self.due.is_some_and(|due| now >= due).then_some(Cause::Periodic)
    }

    /// Returns a report of `node` on a window after the last change of shares, if there is one.
    fn fresh(&self, node: usize) -> Option<&Measured> {
        let state = self.nodes.get(node)?;
        let (at, measured) = state.last.as_ref()?;
        let set = state.handed.is_none_or(|(run, handed)| measured.run >= run || *at >= handed + PATIENCE);
        (set && self.changed.is_none_or(|changed| *at > changed)).then_some(measured)
    }
}

#[cfg(test)]
#[path = "coordinator/tests.rs"]
mod tests;
