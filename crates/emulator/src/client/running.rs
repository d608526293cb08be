//! The handle on a run.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::plan::Plan;
use super::report::{Point, Report};
use super::run::Run;
use super::thread::Thread;

/// A run under way. Dropped, it is stopped.
#[derive(Debug)]
pub struct Running {
    points: Arc<Points>,
    thread: Thread<Report>,
}

/// The points so far, which the thread of the run and its owner share.
#[derive(Debug, Default)]
pub(super) struct Points(Mutex<Vec<Point>>);

impl Points {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Point>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    pub(super) fn start(plan: Plan) -> io::Result<Running> {
        let points = Arc::new(Points::default());
        let (run, waker) = Run::new(plan, Arc::clone(&points))?;
        let thread = Thread::start("open-loop-clients", waker, move |stop| run.run(stop))?;
        Ok(Running { points, thread })
    }

    /// The points from number `from` on.
    #[must_use]
    pub fn points(&self, from: usize) -> Vec<Point> {
        self.points.lock().get(from..).unwrap_or_default().to_vec()
    }

    /// Nothing more will come: [`Running::join`] returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the run now. What is under way is cut off and counted so.
    pub fn stop(&self) {
        self.thread.stop();
    }

    /// Waits for the end of the run and the last replies, at most a time-out after it.
    ///
    /// # Errors
    /// Those of the system's poll and timer calls.
    pub fn join(self) -> io::Result<Report> {
        self.thread.join()
    }
}
