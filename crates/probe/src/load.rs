//! Concurrent requests for one page, and the resource use of the server meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use weirgate_clock::{self as clock, Clock};

use crate::client::{Connection, Target};
use crate::monitor::{Idle, Monitor, Used, between};

/// Duration of requests before the use counts as sustained. By then the buckets of limiters and the caches
/// are stable.
const SETTLING: Duration = Duration::from_millis(500);

/// Duration of a measurement of sustained use: thirty periods of a CPU quota or a disk throttle (100 ms), so
/// that one period more or less does not matter.
const WINDOW: Duration = Duration::from_secs(3);

/// Duration of a measurement of the idle server between rounds, if its use matters. It is as long as a batch.
const MOMENT: Duration = Duration::from_millis(250);

/// Fraction of failed requests from which a server counts as overloaded and not only saturated.
const MAX_FAILED: f64 = 0.1;

/// Minimum status of a failed request.
const FAILED: u16 = 400;

/// Connections to one node, and its monitor.
pub(crate) struct Load {
    target: Target,
    monitor: Monitor,
    idle: Idle,
    /// Connections that are not in use.
    connections: Vec<Connection>,
}

/// Result of a batch of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) requests: u32,
    /// Without the use by the idle server.
    pub(crate) used: Used,
    pub(crate) seconds: f64,
}

/// Result of a worker's requests.
struct Done {
    connection: Connection,
    requests: u32,
    failed: u32,
    /// Reason for the first failure.
    why: Option<String>,
}

impl Load {
    pub(crate) fn new(target: Target, monitor: Monitor) -> Load {
        Load { target, monitor, idle: Idle::default(), connections: Vec::new() }
    }

    /// Returns a connection for a single request.
    pub(crate) fn connection(&mut self) -> Connection {
        self.connections.pop().unwrap_or_else(|| Connection::new(self.target.clone()))
    }

    pub(crate) fn give_back(&mut self, connection: Connection) {
        self.connections.push(connection);
    }

    /// Measures the use without requests, which is subtracted from now on.
    pub(crate) async fn learn_idle(&mut self, questions: u32, wait: Duration) -> Result<Idle, String> {
        let clock = Clock::start();
        let first = self.monitor.read().await?;
        let mut asked = first;
        for _ in 0..questions {
            asked = self.monitor.read().await?;
        }
        let began = clock.now();
        clock::sleep(wait).await;
        let waited = self.monitor.read().await?;
        let seconds = (clock.now() - began).as_secs_f64();
        self.idle = Idle::of(questions, between(&first, &asked)?, seconds, between(&asked, &waited)?);
        Ok(self.idle)
    }

    /// Called after a round of batches. Measures the idle server again if its use is a significant part of
    /// the round's use, for a resource that `matters`.
    ///
    /// # Errors
    /// The monitor does not answer.
    pub(crate) async fn watch_again(&mut self, used: Used, seconds: f64, matters: [bool; 3]) -> Result<(), String> {
        let large = self.idle.matters(used, seconds);
        if !(0..3).any(|at| matters[at] && large[at]) {
            return Ok(());
        }
        let before = self.monitor.read().await?;
        let clock = Clock::start();
        clock::sleep(MOMENT).await;
        let after = self.monitor.read().await?;
        self.idle.watched_again(clock.now().as_secs_f64(), between(&before, &after)?);
        Ok(())
    }

    /// Runs `at_once` workers that each make `each` consecutive requests for `path`.
    ///
    /// # Errors
    /// A request failed, or the monitor does not answer.
    pub(crate) async fn batch(&mut self, path: &str, at_once: u32, each: u32) -> Result<Batch, String> {
        let before = self.monitor.read().await?;
        let clock = Clock::start();
        let mut workers = self.start(path, at_once, each, &Arc::default());
        let (requests, failed, why) = self.finish(&mut workers).await?;
        let seconds = clock.now().as_secs_f64();
        let after = self.monitor.read().await?;
        match why {
            Some(why) => Err(format!("{failed} of {requests} requests failed: {why}")),
            None => Ok(Batch { requests, used: self.idle.taken_from(between(&before, &after)?, seconds), seconds }),
        }
    }

    /// Returns the use per second while `at_once` workers request `path`, and the number of CPUs that the
    /// prober uses.
    ///
    /// # Errors
    /// Too many requests failed, or the monitor does not answer.
    pub(crate) async fn sustained(&mut self, path: &str, at_once: u32) -> Result<(Used, f64), String> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = self.start(path, at_once, u32::MAX, &stop);
        clock::sleep(SETTLING).await;
        let measured = async {
            let before = self.monitor.read().await?;
            let (clock, own) = (Clock::start(), own_cpu());
            clock::sleep(WINDOW).await;
            let after = self.monitor.read().await?;
            let (seconds, own) = (clock.now().as_secs_f64(), own_cpu() - own);
            let used = self.idle.taken_from(between(&before, &after)?, seconds);
            Ok::<_, String>((used.map(|used| used.max(0.0) / seconds), own / seconds))
        };
        let measured = measured.await;
        stop.store(true, Ordering::Relaxed);
        let (requests, failed, why) = self.finish(&mut workers).await?;
        match why {
            Some(why) if f64::from(failed) > MAX_FAILED * f64::from(requests) => {
                Err(format!("{failed} of {requests} requests failed with {at_once} at once: {why}"))
            }
            _ => measured,
        }
    }

    fn start(&mut self, path: &str, at_once: u32, each: u32, stop: &Arc<AtomicBool>) -> JoinSet<Done> {
        let mut workers = JoinSet::new();
        for _ in 0..at_once {
            let (connection, path, stop) = (self.connection(), path.to_owned(), Arc::clone(stop));
            workers.spawn(work(connection, path, each, stop));
        }
        workers
    }

    async fn finish(&mut self, workers: &mut JoinSet<Done>) -> Result<(u32, u32, Option<String>), String> {
        let (mut requests, mut failed, mut why) = (0u32, 0u32, None);
        while let Some(done) = workers.join_next().await {
            let done = done.map_err(|error| error.to_string())?;
            requests = requests.saturating_add(done.requests);
            failed = failed.saturating_add(done.failed);
            why = why.or(done.why);
            self.connections.push(done.connection);
        }
        Ok((requests, failed, why))
    }
}

/// Returns the CPU time that this process has used, in seconds.
fn own_cpu() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

async fn work(mut connection: Connection, path: String, each: u32, stop: Arc<AtomicBool>) -> Done {
    let (mut requests, mut failed, mut why) = (0, 0, None);
    while requests < each && !stop.load(Ordering::Relaxed) {
        requests += 1;
        let problem = match connection.get(&path, false).await {
            Ok(answer) if answer.status < FAILED => continue,
            Ok(answer) => format!("answered {}", answer.status),
            Err(error) => error,
        };
        failed += 1;
        why.get_or_insert(problem);
        // Without a pause, a server that refuses at once would be flooded with requests.
        if each < u32::MAX {
            break;
        }
        clock::sleep(REST).await;
    }
    Done { connection, requests, failed, why }
}

/// Pause of a worker after a failure.
const REST: Duration = Duration::from_millis(20);
