//! The manager's side: who is up, when shares are found anew, and who gets which.
//!
//! Source: Cluster Reserves, Sec. 4 (the resource manager) and Secs. 5.3 and 5.4 (when it runs). Departures:
//!
//! - A run needs a report of every live node whose window lies wholly after the last change of shares. The paper waits
//!   for 250 ms; asking for evidence instead says the same of a node that is slow to set its shares.
//! - A node that comes or goes is a reason to run, as one that asks is: the promises are of the nodes that are up.
//! - The shares in force come with the reports, so that a manager which has just started carries on with what there
//!   is. It lets nodes gather first: each that is missing would count as down.
//! - A node that asks about a class as it has asked within the last [`MEMORY`] is not heard. The optimiser gives a
//!   class that uses less than its share what it uses, which makes a sink of it; then step 2 gives it more, or less
//!   than elsewhere, which makes none of it, and so on: without this a quiet cluster could be run for ever. What is
//!   missed by it the next periodic run finds.
//! - A class may be limited to some nodes. Elsewhere it uses nothing and can use nothing, which leaves it the least
//!   share of the optimiser, 1 %; that and what step 3 may have added go to the classes that are there. So of what such
//!   a class is promised up to 1 % of each node without it counts as given and is not.
//!
//! Sans-IO: time is passed in as time since some beginning, and somebody else solves: [`Coordinator::poll_run`] gives a
//! problem, [`Coordinator::solved`] takes the shares, [`Coordinator::poll_shares`] hands them out.

mod books;
mod node;

use std::collections::VecDeque;
use std::time::Duration;

use crate::problem::{Error, Problem, Solution};
use crate::tracker::{Measured, Trigger};

use node::{on_node, percentages, row};

pub use books::{Books, Finished, MOST_FINISHED, Runs};
pub use node::{MEMORY, Node};

/// A node that says nothing for so long is down: four reports.
pub const SILENCE: Duration = Duration::from_secs(1);

/// How long a new manager waits for all nodes before its first run: after that it takes those that are missing for
/// down. Agents dial again within a second, and their first report comes a window later.
pub const GATHERING: Duration = Duration::from_secs(2);

/// A node that has not set the shares of the last run by then cannot: what it reports is how things are. Setting takes
/// milliseconds and the window 250 ms.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long after a run that came to nothing the next is tried: its reason still stands, and so may the failure's.
const REST: Duration = Duration::from_secs(1);

/// What is promised, where, and when to look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Per class what it is promised, in percent of the cluster; 100 at most in all.
    pub desired: Vec<f64>,
    /// Per node and class: the node has the class.
    pub placed: Vec<Vec<bool>>,
    /// Time between two runs without another reason; `None` is never.
    pub every: Option<Duration>,
    /// Nodes that ask, come or go are a reason to run.
    pub on_demand: bool,
}

/// Why a run is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was time.
    Periodic,
    /// A node asked.
    Asked {
        /// Which.
        node: usize,
        /// Why.
        trigger: Trigger,
    },
    /// A node came up.
    Joined {
        /// Which.
        node: usize,
    },
    /// A node went down.
    Left {
        /// Which.
        node: usize,
    },
}

/// Shares for one node to set.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// Which.
    pub node: usize,
    /// The run that they come from.
    pub run: u64,
    /// Per class, in percent of the node; 100 at most in all.
    pub shares: Vec<f64>,
}

/// A run under way.
#[derive(Clone, Debug)]
struct Run {
    number: u64,
    cause: Cause,
    began: Duration,
    /// The nodes of the problem, in its order.
    nodes: Vec<Member>,
    /// The shares that were in force.
    before: Vec<Vec<f64>>,
}

/// A node during one connection.
type Member = (usize, u64);

/// Brings the nodes of a cluster and the optimiser together.
#[derive(Clone, Debug)]
pub struct Coordinator {
    settings: Settings,
    began: Duration,
    nodes: Vec<Node>,
    /// The nodes of the last run, in their order.
    members: Vec<Member>,
    running: Option<Run>,
    asked: Option<(usize, Trigger)>,
    /// The last run that anybody knows of.
    last_run: u64,
    /// When shares were handed out last, or could not be found.
    changed: Option<Duration>,
    /// When it is time without another reason.
    due: Option<Duration>,
    /// Before that no run is made.
    rest_until: Duration,
    out: VecDeque<Shares>,
    books: Books,
}

impl Coordinator {
    /// Begins at `now`, with no node connected.
    #[must_use]
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
            books: Books::default(),
            settings,
        }
    }

    /// A connection to `node` is there. It takes the place of an earlier one.
    pub fn connected(&mut self, node: usize) {
        self.begin(node, true);
    }

    /// The connection to `node` is gone.
    pub fn disconnected(&mut self, node: usize) {
        self.begin(node, false);
    }

    /// Nothing is known of a node that came or went: what was sent to it may be lost.
    fn begin(&mut self, node: usize, connected: bool) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        *state = Node { connected, connection: state.connection + 1, ..Node::default() };
        self.out.retain(|shares| shares.node != node);
    }

    /// What `node` measured came in at `now`. A figure that is missing counts as 0.
    pub fn reported(&mut self, now: Duration, node: usize, measured: Measured) {
        let Some(state) = self.nodes.get_mut(node).filter(|state| state.connected) else { return };
        self.last_run = self.last_run.max(measured.run);
        if let Some(trigger) = measured.wants {
            self.books.runs.asked += 1;
            if self.settings.on_demand && state.is_news(now, &measured, trigger) {
                self.asked.get_or_insert((node, trigger));
            }
        }
        state.last = Some((now, measured));
    }

    /// Begins a run if there is a reason for one at `now` and everything for it is there. Until [`Self::solved`] there
    /// is no other.
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
        // What is asked from now on is about the time after this run.
        self.asked = None;
        self.due = self.settings.every.map(|every| now + every);
        Some(problem)
    }

    /// The answer to the problem of the run under way came at `now`; finding it took `took`.
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
                self.books.failed(error, took);
                return;
            }
        };
        let mut moved = 0.0;
        self.nodes.iter_mut().for_each(|node| node.member = false);
        for ((&(node, connection), shares), before) in run.nodes.iter().zip(solution.allocation).zip(&run.before) {
            let shares = on_node(shares, &self.settings.placed[node]);
            moved += shares.iter().zip(before).map(|(new, old)| (new - old).max(0.0)).sum::<f64>();
            let state = &mut self.nodes[node];
            // Whoever connected meanwhile was not in the problem and is a reason for the next run.
            if state.connection == connection {
                state.handed = Some((run.number, now));
                state.given = Some(shares.clone());
                state.member = true;
                self.out.push_back(Shares { node, run: run.number, shares });
            }
        }
        self.books.finished(Finished {
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

    /// The next shares to send.
    pub fn poll_shares(&mut self) -> Option<Shares> {
        self.out.pop_front()
    }

    /// When [`Self::poll_run`] must be called again at the latest if nothing else is; after `now`, when it was called.
    #[must_use]
    pub fn next_timeout(&self, now: Duration) -> Option<Duration> {
        let silent = self.nodes.iter().filter_map(|node| node.last.as_ref().map(|&(at, _)| at + SILENCE));
        let timers = [self.began + GATHERING, self.rest_until];
        silent.chain(timers).chain(self.due).filter(|&at| at > now).min()
    }

    /// Whether `node` is up at `now`: it is connected and has reported within [`SILENCE`].
    #[must_use]
    pub fn is_live(&self, now: Duration, node: usize) -> bool {
        let last = self.nodes.get(node).and_then(|node| node.last.as_ref());
        last.is_some_and(|&(at, _)| now < at + SILENCE)
    }

    /// What is known of the nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// What was promised, where.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What happened so far.
    #[must_use]
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The reason for a run at `now`, if there is one.
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

    /// What `node` measured since shares changed last, if it has.
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
