//! What the page costs and what the servers can do, here and now.
//!
//! Rates and limits of the experiment are ratios of these figures, so that it asks the same of a fast and a
//! slow machine.

use std::net::SocketAddr;
use std::time::Duration;

use weirgate_emulator::clock;

use crate::cluster::{Cluster, page};
use crate::fetch::fetch;
use crate::machine::Busy;

/// What one ordinary request is meant to cost: several times what Apache adds to it, and little enough that
/// one core serves hundreds a second, so that percentiles of some seconds mean something.
const COST: Duration = Duration::from_millis(4);

/// Rounds of the loop in a first try; tens of milliseconds, so that a round's time is exact to a percent.
const FIRST_TRY: u64 = 2_000_000;

/// A dear request costs so many ordinary ones.
pub(crate) const DEAR: u32 = 5;

/// Clients at once when the capacity is measured: two per server keep the core busy without a crowd.
const CLIENTS: usize = 8;

/// Figures of the page and the servers.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// Rounds of the page's loop for a request of ordinary cost.
    pub rounds: u64,
    /// The same for a request that costs five times as much.
    pub dear_rounds: u64,
    /// Median response time of an ordinary request when there is no other.
    pub p50: Duration,
    /// The 95th percentile.
    pub p95: Duration,
    /// Median response time of a dear request when there is no other.
    pub dear_p50: Duration,
    /// The 95th percentile.
    pub dear_p95: Duration,
    /// Ordinary requests a second that all servers together complete.
    pub capacity: f64,
}

impl Calibration {
    /// Measures for about three times `span`.
    ///
    /// # Errors
    /// A server does not answer.
    pub(crate) fn measure(cluster: &Cluster, span: Duration) -> Result<Calibration, String> {
        let servers = cluster.addresses();
        let _busy = Busy::start();
        // What Apache and the network add: the least of many times is theirs alone.
        let added = unloaded(servers, 0, span / 5)?.percentile(0);
        // The loop's own: CPU time hardly depends on what else the machine does.
        let tried = servers.iter().map(|server| fetch(*server, &page(FIRST_TRY)).map(|reply| reply.used));
        let tried: Duration = tried.sum::<Result<_, _>>()?;
        let a_round = tried.as_secs_f64() / (FIRST_TRY * servers.len() as u64) as f64;
        let rounds = |cost: Duration| (cost.saturating_sub(added).as_secs_f64() / a_round.max(1e-9)) as u64;
        let (rounds, dear_rounds) = (rounds(COST), rounds(COST * DEAR));
        let ordinary = unloaded(servers, rounds, span)?;
        let dear = unloaded(servers, dear_rounds, span)?;
        let [p50, dear_p50] = [&ordinary, &dear].map(|times| times.percentile(50));
        let [p95, dear_p95] = [&ordinary, &dear].map(|times| times.percentile(95));
        let capacity = capacity(servers, &page(rounds), span)?;
        Ok(Calibration { rounds, dear_rounds, p50, p95, dear_p50, dear_p95, capacity })
    }
}

/// Response times in order, at least one.
struct Times(Vec<Duration>);

impl Times {
    fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() - 1) * percent / 100]
    }
}

/// Response times of one request at a time for `span`.
fn unloaded(servers: &[SocketAddr], rounds: u64, span: Duration) -> Result<Times, String> {
    let (path, end) = (page(rounds), clock::now() + clock::nanos(span));
    let mut times = Vec::new();
    for server in servers.iter().cycle() {
        times.push(fetch(*server, &path)?.took);
        if clock::now() >= end {
            break;
        }
    }
    times.sort();
    Ok(Times(times))
}

/// Requests a second with a few clients that each wait for their replies.
fn capacity(servers: &[SocketAddr], path: &str, span: Duration) -> Result<f64, String> {
    let start = clock::now();
    let end = start + clock::nanos(span);
    let client = |server: SocketAddr| {
        let mut done = 0;
        while clock::now() < end {
            fetch(server, path)?;
            done += 1;
        }
        Ok(done)
    };
    let done: Result<Vec<u64>, String> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            servers.iter().cycle().take(CLIENTS).map(|&server| scope.spawn(move || client(server))).collect();
        let gone = || Err("a client of the calibration has panicked".to_owned());
        clients.into_iter().map(|client| client.join().unwrap_or_else(|_| gone())).collect()
    });
    Ok(done?.iter().sum::<u64>() as f64 * clock::SECOND as f64 / (clock::now() - start) as f64)
}
