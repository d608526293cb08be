//! A loop on a thread of its own: its owner can ask it to end and wait for what it brings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use mio::Waker;

/// A loop under way that brings a `T`. Dropped, it is asked to end and waited for.
#[derive(Debug)]
pub struct Thread<T> {
    stop: Arc<AtomicBool>,
    waker: Waker,
    handle: Option<JoinHandle<io::Result<T>>>,
}

impl<T: Send + 'static> Thread<T> {
    /// Starts `run` on a thread called `name`. When what it is given becomes true it has to end soon; `waker` wakes
    /// its poll for that.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(
        name: &str,
        waker: Waker,
        run: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Thread<T>> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let handle = std::thread::Builder::new().name(name.into()).spawn(move || run(&asked))?;
        Ok(Thread { stop, waker, handle: Some(handle) })
    }
}

impl<T> Thread<T> {
    /// Nothing more will come: [`Thread::join`] returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks it to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // The only failure is a full counter of wake-ups, and then it wakes anyway.
        let _ = self.waker.wake();
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Those of the loop; it has panicked.
    pub fn join(mut self) -> io::Result<T> {
        let result = self.handle.take().map(JoinHandle::join);
        result.and_then(Result::ok).unwrap_or_else(|| Err(io::Error::other("the thread of the clients has panicked")))
    }
}

impl<T> Drop for Thread<T> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.stop();
            // Nobody is there to take what it brings.
            let _ = handle.join();
        }
    }
}
