//! The load generator: the traffic of an experiment over real sockets, against one address.
//!
//! It plays the same [`weirgate_experiment::traffic::Stream`]s with the same seeds as the simulator:
//! open-loop clients, traces, users with think time, patience, retries. Requests leave at their intended
//! instants whatever the outcome of earlier ones, and all times count from the *intended* instant. A slow
//! server or a slow generator therefore makes neither the load lighter nor the response times better (Tene,
//! *How NOT to Measure Latency*, 2013, calls the opposite coordinated omission). The lateness of requests
//! is a result of its own, [`Sent::lateness`].
//!
//! One thread does everything, over `connections`. [`template`] defines the
//! form of a request, `play` is the loop, and [`sent`] holds the results. The clock is
//! [`weirgate_emulator::clock`], as for nodes and samples, so that all share one time axis.

mod connections;
mod exchange;
mod play;
pub mod sent;
pub mod template;
mod text;
mod thread;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use self::thread::Thread;
use hdrhistogram::Histogram;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weirgate_emulator::clock;
use weirgate_experiment::Experiment;

pub(crate) use self::sent::histogram;
pub use self::sent::{Answer, Ended, Id, Sent, StreamSent};
pub use self::template::Template;

use self::play::Play;
use self::sent::Ledger;
use crate::process;

/// Maximum number of attempts in one run: 128 million, as in the simulator, with about 7 GB of records.
pub const MAX_REQUESTS: u64 = 1 << 27;

/// Descriptors in addition to the load's connections: logs, pipes, sockets of nodes and admin in the same process.
const DESCRIPTORS: u64 = 256;

/// The load to send, and its target.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The experiment with the traffic.
    pub experiment: &'a Experiment,
    /// Seed of every random draw.
    pub seed: u64,
    /// Address of the gateway.
    pub target: SocketAddr,
    /// Form of the requests, one for each of [`Experiment::traffic`].
    pub templates: &'a [Template],
    /// Instant 0 of the run on [`clock::now`], in nanoseconds. It lies slightly in the future, so that all
    /// parts are ready by then.
    pub start: u64,
    /// The CPU to which the load is pinned.
    pub cpu: Option<usize>,
    /// Maximum number of concurrent connections for each traffic source. A request that finds none free
    /// waits for one. It counts as [`StreamSent::delayed`], and the wait is part of its response time.
    pub connections: usize,
    /// Number of attempts after which sending ends, at most [`MAX_REQUESTS`].
    pub max_requests: u64,
}

/// Progress of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since its start, or zero before it.
    pub elapsed: Duration,
    /// Counts of each traffic source of the experiment.
    pub traffic: Vec<Counts>,
}

/// Attempts of one traffic source so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Attempts begun so far.
    pub sent: u64,
    /// Served attempts.
    pub served: u64,
    /// Attempts that the gateway shed or refused.
    pub shed: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Attempts that their clients gave up.
    pub left: u64,
}

impl Counts {
    /// Returns the number of attempts without an outcome so far.
    pub fn under_way(&self) -> u64 {
        self.sent.saturating_sub(self.served + self.shed + self.failed + self.left)
    }
}

/// A running load. Dropping it stops the run.
#[derive(Debug)]
pub struct Running {
    start: u64,
    ledger: Arc<[Ledger]>,
    thread: Thread<Sent>,
}

/// Starts to send on a separate thread. The run ends after the experiment's last phase, once every reply
/// has arrived or the grace period is over.
///
/// # Errors
/// A template cannot be sent or is missing for a traffic source, a number is out of range, the CPU is not available
/// to this process ([`io::ErrorKind::InvalidInput`]), or the system has too few descriptors or no thread left.
pub fn start(plan: &Plan) -> io::Result<Running> {
    let traffic = &plan.experiment.traffic;
    if plan.templates.len() != traffic.len() {
        return Err(invalid(format!("{} templates for {} traffics", plan.templates.len(), traffic.len())));
    }
    if plan.connections == 0 || plan.max_requests == 0 || plan.max_requests > MAX_REQUESTS {
        return Err(invalid(format!("connections must be at least 1, requests 1 to {MAX_REQUESTS}")));
    }
    if let Some(cpu) = plan.cpu
        && !process::cpus()?.contains(&cpu)
    {
        return Err(invalid(format!("the load generator cannot be pinned to CPU {cpu}: this process may not use it")));
    }
    let connections = (plan.connections as u64).saturating_mul(traffic.len() as u64);
    allow_descriptors(connections.saturating_add(DESCRIPTORS))?;
    let heads = plan.templates.iter().map(Template::head).collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    let ledger: Arc<[Ledger]> = traffic.iter().map(|_| Ledger::new()).collect();
    let (waker, run) = Play::prepare(plan, heads, Arc::clone(&ledger))?;
    let (experiment, seed, cpu) = (plan.experiment.clone(), plan.seed, plan.cpu);
    let thread = Thread::start("lab-load", waker, move |stop| {
        cpu.map_or(Ok(()), process::pin)?;
        Play::new(&experiment, seed, run).play(stop)
    })?;
    Ok(Running { start: plan.start, ledger, thread })
}

impl Running {
    /// Returns the progress of the run.
    pub fn progress(&self) -> Progress {
        let elapsed = Duration::from_nanos(clock::now().saturating_sub(self.start));
        Progress { elapsed, traffic: self.ledger.iter().map(Ledger::counts).collect() }
    }

    /// Returns the response times, in microseconds, of the attempts of each traffic source that were served
    /// since the last call.
    pub fn take_responses(&self) -> Vec<Histogram<u32>> {
        self.ledger.iter().map(Ledger::take_responses).collect()
    }

    /// Returns whether the run has ended, so that [`Running::join`] returns at once.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the run now. Attempts in flight are cut off.
    pub fn stop(&self) {
        self.thread.stop();
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// This machine ran out of descriptors or ports, so that the load was not as planned, or one of the
    /// system's poll and timer calls failed.
    pub fn join(self) -> io::Result<Sent> {
        self.thread.join()
    }
}

/// Raises the limit on open files to `max`, if it is lower and may be raised.
fn allow_descriptors(max: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= max) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < max) {
        let maximum = limit.maximum.unwrap_or(u64::MAX);
        return Err(invalid(format!(
            "the load generator needs {max} open files, and {maximum} are allowed: plan fewer connections, or `ulimit \
             -n {max}`"
        )));
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(max), maximum: limit.maximum })?)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
