//! The handle on a run.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use mio::{Poll, Token, Waker};

use super::plan::Plan;
use super::report::{Point, Report};
use super::run::{ALARM, Run};
use crate::clock::Alarm;

/// Wakes the loop of the run when its owner wants something.
const WAKER: Token = Token(0);

/// A run under way. Dropped, it is stopped.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<io::Result<Report>>>,
}

/// What the thread of the run and its owner share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    stop: AtomicBool,
    points: Mutex<Vec<Point>>,
}

impl Shared {
    /// The points so far.
    pub(super) fn points(&self) -> MutexGuard<'_, Vec<Point>> {
        self.points.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has its owner asked for the end?
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Running {
    pub(super) fn start(plan: Plan) -> io::Result<Running> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let alarm = Alarm::new(&poll, ALARM)?;
        let shared = Arc::new(Shared::default());
        let run = Run::new(plan, poll, alarm, shared.clone());
        let thread = std::thread::Builder::new().name("open-loop-clients".into()).spawn(move || run.run())?;
        Ok(Running { shared, waker, thread: Some(thread) })
    }

    /// The points from number `from` on.
    #[must_use]
    pub fn points(&self, from: usize) -> Vec<Point> {
        let points = self.shared.points();
        points.get(from..).unwrap_or_default().to_vec()
    }

    /// Nothing more will come: [`Running::join`] returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the run now. What is under way is cut off and counted so.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // The only failure is a full counter of wake-ups, and then it wakes anyway.
        let _ = self.waker.wake();
    }

    /// Waits for the end of the run and the last replies, at most a time-out after it.
    ///
    /// # Errors
    /// Those of the system's poll and timer calls.
    pub fn join(mut self) -> io::Result<Report> {
        let thread = self.thread.take();
        let result = thread.map(JoinHandle::join);
        result.and_then(Result::ok).unwrap_or_else(|| Err(io::Error::other("the thread of the clients has panicked")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop();
            // Nobody is there to read the report.
            let _ = thread.join();
        }
    }
}
