//! The node's side of Cluster Reserves as a whole: measures windows, reports them, and puts shares in force.
//!
//! Source: Aron, Druschel and Zwaenepoel, "Cluster Reserves", Secs. 4 and 5.4. [`weirgate_reserves::Tracker`]
//! makes the decisions. This module adds the clock, the cgroups ([`weirgate_cgroup`]) and the coordinator. The
//! order matters in one place: after shares are set, the counters are read and the window begins. So a report
//! never mixes the usage under two sets of shares. While the coordinator is not reachable, the last shares stay
//! in force.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, error::TrySendError};
use weirgate_cgroup::{self as cgroup, Counter};
use weirgate_clock::{self as clock, Clock};
use weirgate_reserves::{Cluster, Tracker};
use weirgate_tls::LiveTrust;
use weirgate_tls::trust::is_local;
use weirgate_wire::{Active, Measured, NodeReport, NodeShares};

use crate::classes::Classes;
use crate::dial::{Dial, Event};
use crate::monitor::{self, Monitor};
use crate::record::Record;
use crate::source::Source;

/// Interval between checks for added and removed groups.
const LOOK: Duration = Duration::from_secs(1);

/// Interval between requests to the server for its number of active requests.
const ASK: Duration = Duration::from_secs(1);

/// Maximum number of pending connection events. The coordinator sends one set of shares in a window.
const MAX_EVENTS: usize = 4;

/// Maximum excess of a coordinator's shares over 100 % in total, in percentage points, due to rounding in JSON
/// and in sums.
const ROUNDING: f64 = 0.01;

/// Settings of a node's agent.
#[derive(Debug)]
pub struct Settings {
    /// The policy.
    pub cluster: Cluster,
    /// Index of the node.
    pub node: usize,
    /// Number of CPUs of the node. `None` means all CPUs that the agent may use.
    pub cpus: Option<f64>,
    /// Root of the cgroups. See [`cgroup::open`].
    pub root: Option<PathBuf>,
    /// Directory for the record of the original values.
    pub state: PathBuf,
    /// The node's server, if its active requests are to be reported.
    pub source: Option<Source>,
    /// The site's trust. `None` is no TLS, which is allowed for a coordinator on this machine only.
    pub trust: Option<Arc<LiveTrust>>,
}

/// An agent that is ready to run.
pub struct Node {
    classes: Classes,
    cpus: f64,
    /// Counter of the CPU time of the whole machine, if the machine is the node.
    whole: Option<Counter>,
    clock: Clock,
    source: Option<Source>,
    dial: Dial,
    events: mpsc::Receiver<Event>,
    voice: Voice,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("dial", &self.dial).finish_non_exhaustive()
    }
}

impl Node {
    /// Opens the cgroups and the record. `say` is called with the initial state, and later with messages for
    /// people.
    ///
    /// # Errors
    /// The problem and its remedy.
    pub fn start(settings: Settings, say: impl Fn(&str) + 'static) -> Result<Node, String> {
        let Settings { cluster, node, cpus, root, state, source, trust } = settings;
        let name = cluster.nodes.get(node).ok_or("the policy has no such node")?.clone();
        if trust.is_none() && !is_local(&cluster.coordinator) {
            return Err(format!(
                "{} could be anyone and set this node's shares: make certificates with `weirgate pki` and name their \
                 folder with `trust:`",
                cluster.coordinator
            ));
        }
        let cpus_given = cpus;
        let cpus = match cpus_given {
            Some(cpus) => cpus,
            None => monitor::usable_cpus()? as f64,
        };
        let opened = cgroup::open(root.as_deref())?;
        // For a part of a machine, the usage by other parts is not counted.
        let whole = (root.is_none() && cpus_given.is_none()).then(|| opened.cgroups.counter("").ok()).flatten();
        let record = Record::open(&state, &name)?;
        let (classes, problems) = Classes::new(&cluster, node, opened.cgroups, record, monitor::memory())?;
        let mut voice = Voice { say: Box::new(say), said: BTreeSet::new(), away: None };
        opened.about.iter().for_each(|line| (voice.say)(line));
        (voice.say)(&format!("node {name} with {cpus} CPU{}", if cpus == 1.0 { "" } else { "s" }));
        classes.summary().iter().for_each(|line| (voice.say)(line));
        voice.tell(problems);
        let (sender, events) = mpsc::channel(MAX_EVENTS);
        let dial = Dial { coordinator: cluster.coordinator, node: name, trust, events: sender };
        Ok(Node { classes, cpus, whole, clock: Clock::start(), source, dial, events, voice })
    }

    /// Runs until `stop` resolves. Then shares and groups are restored to their state before the first agent
    /// of this node. With `keep` they stay, as they do after an agent is killed. Call it on a
    /// [`tokio::task::LocalSet`].
    ///
    /// # Errors
    /// A value could not be restored.
    pub async fn run(mut self, stop: impl Future, keep: bool) -> Result<(), String> {
        let active = Rc::new(Cell::new(None));
        let asking = self.source.take().map(|source| tokio::task::spawn_local(ask(source, Rc::clone(&active))));
        let coordinator = self.dial.coordinator.clone();
        let dialling = tokio::task::spawn_local(self.dial.keep());
        let (clock, mut classes, mut voice, mut events) = (self.clock, self.classes, self.voice, self.events);
        let (mut monitor, mut sender) = (Monitor::default(), None::<mpsc::Sender<NodeReport>>);
        // Time of the connection, until it has been announced.
        let mut connected = None;
        // Run of the shares in force. 0 means that this agent knows of none.
        let mut in_force = 0;
        let whole = self.whole;
        // CPU time of everything except the classes, from an arbitrary origin.
        let outside = |counters: &[u64]| -> u64 {
            let all = whole.as_ref().and_then(Counter::read).unwrap_or(0);
            all.saturating_sub(counters.iter().sum())
        };
        let counters = classes.counters();
        let mut tracker = Tracker::new(clock.now(), self.cpus, &classes.in_force(), &counters);
        let mut outside_before = outside(&counters);
        let mut look = clock.now() + LOOK;
        let mut stop = std::pin::pin!(stop);
        loop {
            let wake = clock.reach(tracker.due().min(look));
            let event = tokio::select! {
                biased;
                _ = &mut stop => break,
                Some(event) = events.recv() => Some(event),
                () = wake => None,
            };
            match event {
                Some(Event::Up(up)) => {
                    sender = Some(up);
                    connected = Some(clock.now());
                }
                Some(Event::Down(why)) => {
                    voice.down(&coordinator, why);
                    sender = None;
                }
                Some(Event::Shares(NodeShares { run, shares })) => match check(&shares, classes.len()) {
                    Ok(()) => {
                        voice.add(classes.set(&shares));
                        let shares = match classes.is_as_told() {
                            true => {
                                in_force = run;
                                shares
                            }
                            // Report the actual shares to the coordinator.
                            false => classes.in_force(),
                        };
                        let counters = classes.counters();
                        tracker.apply(clock.now(), in_force, &shares, &counters);
                        outside_before = outside(&counters);
                    }
                    Err(why) => {
                        voice.down(&coordinator, why);
                        sender = None;
                    }
                },
                None => {}
            }
            let now = clock.now();
            if now >= tracker.due() {
                let counters = classes.counters();
                let outside_now = outside(&counters);
                tracker.went_elsewhere(outside_now.saturating_sub(outside_before));
                outside_before = outside_now;
                let now = clock.now();
                if let Some(measured) = tracker.measure(now, &counters) {
                    let report = report(measured, &mut monitor, now, active.get());
                    if let Some(open) = &sender
                        && let Err(TrySendError::Full(_)) = open.try_send(report)
                    {
                        voice.down(&coordinator, "the network does not accept reports".to_owned());
                        sender = None;
                    }
                }
            }
            if now >= look {
                voice.tell(classes.look());
                // Not at once, because a coordinator may close the connection after the first report.
                if connected.is_some_and(|since| now >= since + LOOK) && sender.is_some() {
                    voice.up(&coordinator);
                    connected = None;
                }
                look = clock.now() + LOOK;
            }
        }
        dialling.abort();
        asking.iter().for_each(|asking| asking.abort());
        if keep {
            (voice.say)("stopped; the shares stay in force");
            return Ok(());
        }
        match classes.restore().as_slice() {
            [] => {
                (voice.say)("stopped; the cgroups are restored");
                Ok(())
            }
            problems => Err(problems.join("\n")),
        }
    }
}

/// Checks whether `shares` are valid for a node with this many classes.
fn check(shares: &[f64], classes: usize) -> Result<(), String> {
    if shares.len() != classes {
        return Err(format!(
            "it sends shares of {} classes, and this policy has {classes}: give both sides the same policy",
            shares.len()
        ));
    }
    match shares.iter().find(|share| !(0.0..=100.0 + ROUNDING).contains(*share)) {
        Some(share) => Err(format!("it sends a share of {share}, which is not a percentage")),
        None if shares.iter().sum::<f64>() > 100.0 + ROUNDING => {
            Err(format!("it sends shares that sum to {} %", shares.iter().sum::<f64>()))
        }
        None => Ok(()),
    }
}

fn report(measured: Measured, monitor: &mut Monitor, now: Duration, active: Option<Active>) -> NodeReport {
    let mut node = monitor.measure(now);
    node.active_static = active.map(|active| active.static_content.into());
    node.active_dynamic = active.map(|active| active.dynamic_content.into());
    NodeReport { measured, node }
}

/// Repeatedly asks the server for its active requests. Stores `None` while the server does not answer.
async fn ask(source: Source, active: Rc<Cell<Option<Active>>>) {
    loop {
        active.set(source.active().await.ok());
        clock::sleep(ASK).await;
    }
}

/// Messages for people, each of them only once.
struct Voice {
    say: Box<dyn Fn(&str)>,
    /// Problems that were announced and still exist.
    said: BTreeSet<String>,
    /// Why the coordinator is not reachable. `None` if it is.
    away: Option<String>,
}

impl Voice {
    /// Sets the complete list of present problems.
    fn tell(&mut self, problems: Vec<String>) {
        let problems: BTreeSet<String> = problems.into_iter().collect();
        problems.difference(&self.said).for_each(|problem| (self.say)(problem));
        // One line for all of them, because the lines above show which ones they were.
        if problems.is_empty() && !self.said.is_empty() {
            (self.say)("the problems with the cgroups are solved");
        }
        self.said = problems;
    }

    /// Adds problems to the present ones.
    fn add(&mut self, problems: Vec<String>) {
        for problem in problems {
            if !self.said.contains(&problem) {
                (self.say)(&problem);
                self.said.insert(problem);
            }
        }
    }

    fn up(&mut self, coordinator: &str) {
        self.away = None;
        (self.say)(&format!("reports to the coordinator at {coordinator}"));
    }

    fn down(&mut self, coordinator: &str, why: String) {
        if self.away.as_ref() != Some(&why) {
            let mut line = format!("the coordinator at {coordinator} cannot be reached: {why}");
            if self.away.is_none() {
                let _ = write!(line, "; the last shares stay in force");
            }
            (self.say)(&line);
            self.away = Some(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_that_cannot_be_are_refused() {
        assert_eq!(check(&[60.0, 40.000_001], 2), Ok(()));
        for (shares, words) in [
            (&[100.0][..], "shares of 1 classes, and this policy has 2"),
            (&[60.0, 60.0], "sum to 120 %"),
            (&[-1.0, 60.0], "a share of -1"),
            (&[f64::NAN, 60.0], "a share of NaN"),
            (&[0.0, f64::INFINITY], "a share of inf"),
        ] {
            assert!(check(shares, 2).expect_err(words).contains(words), "{shares:?}");
        }
    }

    #[test]
    fn nothing_is_said_twice() {
        let lines: Rc<std::cell::RefCell<Vec<String>>> = Rc::default();
        let heard = Rc::clone(&lines);
        let say = Box::new(move |line: &str| heard.borrow_mut().push(line.to_owned()));
        let mut voice = Voice { say, said: BTreeSet::new(), away: None };
        let mut said = |tell: &mut dyn FnMut(&mut Voice)| {
            tell(&mut voice);
            std::mem::take(&mut *lines.borrow_mut())
        };
        let is = |text: &str| vec![text.to_owned()];
        assert_eq!(said(&mut |v| v.tell(is("a"))), ["a"]);
        assert!(said(&mut |v| v.tell(is("a"))).is_empty());
        assert_eq!(said(&mut |v| v.add(vec!["a".into(), "b".into()])), ["b"]);
        assert_eq!(said(&mut |v| v.tell(Vec::new())), ["the problems with the cgroups are solved"]);
        assert!(said(&mut |v| v.tell(Vec::new())).is_empty());
        assert_eq!(said(&mut |v| v.tell(is("a"))), ["a"], "it is there again");
        let away = said(&mut |v| v.down("m:1", "refused".into()));
        assert_eq!(away, ["the coordinator at m:1 cannot be reached: refused; the last shares stay in force"]);
        assert!(said(&mut |v| v.down("m:1", "refused".into())).is_empty());
        assert_eq!(said(&mut |v| v.up("m:1")), ["reports to the coordinator at m:1"]);
    }
}
