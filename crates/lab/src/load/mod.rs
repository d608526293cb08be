//! The load generator: the traffic of an experiment over real sockets, against one address.
//!
//! It plays the same [`weirgate_experiment::traffic::Stream`]s with the same seeds as the simulator: open-loop clients,
//! traces, users who think, patience, retries. Requests leave at their intended instants whatever became of earlier
//! ones, and everything counts from the *intended* instant, so that neither a slow server nor a slow generator makes
//! the load lighter or the response times better (Tene, *How NOT to Measure Latency*, 2013, calls the opposite
//! coordinated omission). How late requests left is a result of its own, [`Sent::lateness`].
//!
//! One thread does everything, over [`weirgate_emulator::client::connections`]: [`template`] says what a request looks
//! like, `play` is the loop, [`sent`] what it leaves behind. The clock is [`weirgate_emulator::clock`], which nodes and
//! samples use as well: one time axis.

mod play;
pub mod sent;
pub mod template;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weirgate_emulator::client::Thread;
use weirgate_emulator::clock;
use weirgate_experiment::Experiment;

pub(crate) use self::sent::histogram;
pub use self::sent::{Answer, Ended, Id, Sent, StreamSent};
pub use self::template::Template;

use self::play::Play;
use self::sent::Books;
use crate::process;

/// Most attempts of one run: 128 million, as in the simulator; some 7 GB of records.
pub const MOST_REQUESTS: u64 = 1 << 27;

/// Descriptors beside those of the load's connections: logs, pipes, sockets of nodes and admin in the same process.
const DESCRIPTORS: u64 = 256;

/// What to send, and where to.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Whose traffic.
    pub experiment: &'a Experiment,
    /// Names every random draw.
    pub seed: u64,
    /// Where the gateway listens.
    pub target: SocketAddr,
    /// What the requests look like, one for each of [`Experiment::traffic`].
    pub templates: &'a [Template],
    /// Instant 0 of the run on [`clock::now`], in nanoseconds. A little ahead, so that everybody is ready by then.
    pub start: u64,
    /// The CPU that the load must stay on.
    pub cpu: Option<usize>,
    /// Most connections at once for each traffic. A request that finds none free waits for one, which counts as
    /// [`StreamSent::delayed`] and in its response time.
    pub connections: usize,
    /// Sending ends after so many attempts; at most [`MOST_REQUESTS`].
    pub most_requests: u64,
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Since its start; nothing before it.
    pub elapsed: Duration,
    /// Per traffic of the experiment.
    pub traffic: Vec<Counts>,
}

/// Attempts of one traffic so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Begun.
    pub sent: u64,
    /// Served.
    pub served: u64,
    /// Turned away by the gateway.
    pub shed: u64,
    /// Failed.
    pub failed: u64,
    /// Given up by their clients.
    pub left: u64,
}

impl Counts {
    /// Attempts without an end so far.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.sent.saturating_sub(self.served + self.shed + self.failed + self.left)
    }
}

/// A run under way. Dropped, it is stopped.
#[derive(Debug)]
pub struct Running {
    start: u64,
    books: Arc<[Books]>,
    thread: Thread<Sent>,
}

/// Starts to send, on a thread of its own. It ends after the experiment's last phase, once every reply is here or the
/// grace is over.
///
/// # Errors
/// A template cannot be sent or there is not one for each traffic, a figure is out of its range, the CPU is not ours
/// ([`io::ErrorKind::InvalidInput`]), or the system has not so many descriptors or no thread left.
pub fn start(plan: &Plan) -> io::Result<Running> {
    let traffic = &plan.experiment.traffic;
    if plan.templates.len() != traffic.len() {
        return Err(invalid(format!("{} templates for {} traffics", plan.templates.len(), traffic.len())));
    }
    if plan.connections == 0 || plan.most_requests == 0 || plan.most_requests > MOST_REQUESTS {
        return Err(invalid(format!("connections must be at least 1, requests 1 to {MOST_REQUESTS}")));
    }
    if let Some(cpu) = plan.cpu
        && !process::cpus()?.contains(&cpu)
    {
        return Err(invalid(format!("the load cannot be pinned to CPU {cpu}: it is not among this process's")));
    }
    let connections = (plan.connections as u64).saturating_mul(traffic.len() as u64);
    allow_descriptors(connections.saturating_add(DESCRIPTORS))?;
    let heads = plan.templates.iter().map(Template::head).collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    let books: Arc<[Books]> = traffic.iter().map(|_| Books::default()).collect();
    let (waker, run) = Play::prepare(plan, heads, Arc::clone(&books))?;
    let (experiment, seed, cpu) = (plan.experiment.clone(), plan.seed, plan.cpu);
    let thread = Thread::start("lab-load", waker, move |stop| {
        cpu.map_or(Ok(()), process::pin)?;
        Play::new(&experiment, seed, run).play(stop)
    })?;
    Ok(Running { start: plan.start, books, thread })
}

impl Running {
    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let elapsed = Duration::from_nanos(clock::now().saturating_sub(self.start));
        Progress { elapsed, traffic: self.books.iter().map(Books::counts).collect() }
    }

    /// Nothing more will come: [`Running::join`] returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the run now. What is under way is cut.
    pub fn stop(&self) {
        self.thread.stop();
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// This machine ran out of descriptors or ports, so that the load was not what it should be; or what the system's
    /// poll and timer calls say.
    pub fn join(self) -> io::Result<Sent> {
        self.thread.join()
    }
}

/// Raises the limit on open files to `most`, if it is lower and may be raised.
fn allow_descriptors(most: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= most) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < most) {
        let maximum = limit.maximum.unwrap_or(u64::MAX);
        return Err(invalid(format!(
            "the load needs {most} open files, and {maximum} are allowed: plan fewer connections, or `ulimit -n {most}`"
        )));
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum })?)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
