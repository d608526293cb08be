//! Clients that do not wait for one another: requests leave at random times, and each may be answered within a second.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::task::{LocalSet, spawn_local};
use weirgate_clock::{Clock, sleep};
use weirgate_emulator::random::Random;
use weirgate_http_client::{Address, Connection, Error, Limits, Request};

/// Time for an answer. Weirgate judges a class without a guaranteed response time by it.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);

/// The same for clients that nothing is guaranteed to. They are patient, so that the work of the node for them counts.
pub(crate) const PATIENT: Duration = Duration::from_secs(4);

/// Longest time between two looks at the rate.
const LOOK: Duration = Duration::from_millis(10);

/// Maximum number of requests under way to one gateway and class. A gateway that is stopped answers none.
const MAX_UNDER_WAY: usize = 1_000;

/// The clients of one class at one gateway.
#[derive(Debug)]
pub(crate) struct Stream {
    to: SocketAddr,
    path: String,
    limit: Duration,
    /// Requests a second, as the bits of a floating-point number.
    per_second: AtomicU64,
    sent: AtomicU64,
    good: AtomicU64,
    /// Requests whose connection ended before the whole answer.
    lost: AtomicU64,
    /// Sum of the times by which requests were sent late, because the machine is busy, in microseconds.
    late: AtomicU64,
    /// When each request was sent, on the clock of the load, and the time of its answer with 200.
    asked: Mutex<Vec<(Duration, Option<Duration>)>>,
}

impl Stream {
    pub(crate) fn new(to: SocketAddr, path: String, limit: Duration) -> Arc<Stream> {
        let (per_second, sent, good, lost, late, asked) = Default::default();
        Arc::new(Stream { to, path, limit, per_second, sent, good, lost, late, asked })
    }

    /// Sends so many requests a second from now on.
    pub(crate) fn load(&self, per_second: f64) {
        self.per_second.store(per_second.to_bits(), Ordering::Relaxed);
    }

    /// Number of requests sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// When each request so far was sent, and the time of its answer. Requests without an end are not among them.
    pub(crate) fn asked(&self) -> Vec<(Duration, Option<Duration>)> {
        self.asked.lock().expect("no panic").clone()
    }

    /// Sum of the times by which requests were sent late so far.
    pub(crate) fn late(&self) -> Duration {
        Duration::from_micros(self.late.load(Ordering::Relaxed))
    }

    /// Number of requests so far whose connection ended before the whole answer. Refused and late ones are not among
    /// them.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Number of requests that were answered with 200 in time so far.
    pub(crate) fn good(&self) -> u64 {
        self.good.load(Ordering::Relaxed)
    }
}

/// The thread of all clients. It ends with this handle.
pub(crate) struct Load {
    pub(crate) clock: Clock,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(streams: Vec<Arc<Stream>>) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (ends, clock) = (Arc::clone(&stop), Clock::start());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            LocalSet::new().block_on(&runtime, async {
                for (seed, stream) in (1..).zip(streams) {
                    spawn_local(play(stream, seed, clock));
                }
                while !ends.load(Ordering::Relaxed) {
                    sleep(LOOK).await;
                }
            });
        });
        Load { clock, stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Sends the requests of a stream, for ever.
async fn play(stream: Arc<Stream>, seed: u64, clock: Clock) {
    let mut random = Random::new(seed);
    let idle: Rc<RefCell<Vec<Connection>>> = Rc::default();
    let under_way = Rc::new(());
    // The time that has been looked at, and the load until the next request.
    let (mut until, mut left) = (Duration::ZERO, random.exponential());
    loop {
        let rate = f64::from_bits(stream.per_second.load(Ordering::Relaxed));
        let next = Duration::from_secs_f64((left / rate.max(1e-3)).min(1e3));
        if next > LOOK {
            left -= LOOK.as_secs_f64() * rate;
            until += LOOK;
        } else {
            left = random.exponential();
            until += next;
        }
        clock.reach(until).await;
        if next > LOOK || Rc::strong_count(&under_way) > MAX_UNDER_WAY {
            continue;
        }
        let connection = idle.borrow_mut().pop();
        let connection = connection.unwrap_or_else(|| Connection::new(Address::Tcp(stream.to.to_string())));
        stream.sent.fetch_add(1, Ordering::Relaxed);
        let late = clock.now().saturating_sub(until);
        stream.late.fetch_add(u64::try_from(late.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        spawn_local(ask(Arc::clone(&stream), connection, Rc::clone(&idle), Rc::clone(&under_way), clock));
    }
}

async fn ask(
    stream: Arc<Stream>,
    mut connection: Connection,
    idle: Rc<RefCell<Vec<Connection>>>,
    under_way: Rc<()>,
    clock: Clock,
) {
    let since = clock.now();
    let answer = connection.send(&Request::get("a.test", &stream.path), &Limits::new(stream.limit, 1 << 16)).await;
    if matches!(answer, Err(Error::Lost(_) | Error::CutHead | Error::CutBody)) {
        stream.lost.fetch_add(1, Ordering::Relaxed);
    }
    let is_good = answer.is_ok_and(|answer| answer.status == 200);
    if is_good {
        stream.good.fetch_add(1, Ordering::Relaxed);
    }
    stream.asked.lock().expect("no panic").push((since, is_good.then(|| clock.now() - since)));
    idle.borrow_mut().push(connection);
    drop(under_way);
}
