//! A loop on a thread of its own. Its owner can ask it to end, and wait for its result.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use mio::Waker;

/// A running loop with a result `T`. Dropping it asks the loop to end and waits for the end.
#[derive(Debug)]
pub struct Thread<T> {
    stop: Arc<AtomicBool>,
    waker: Waker,
    handle: Option<JoinHandle<io::Result<T>>>,
}

impl<T: Send + 'static> Thread<T> {
    /// Starts `run` on a thread called `name`. `run` has to end soon after its argument becomes true. `waker` then
    /// wakes its poll.
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
    /// Whether the loop has ended, so that [`Thread::join`] returns at once.
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks the loop to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // Waking fails only if the counter of wake-ups is full. The poll then wakes anyway.
        let _ = self.waker.wake();
    }

    /// Waits for the end of the loop and returns its result.
    ///
    /// # Errors
    /// The error of the loop, or a panic of its thread.
    pub fn join(mut self) -> io::Result<T> {
        let result = self.handle.take().map(JoinHandle::join);
        result.and_then(Result::ok).unwrap_or_else(|| Err(io::Error::other("the thread of the clients has panicked")))
    }
}

impl<T> Drop for Thread<T> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.stop();
            // No owner is left for the result.
            let _ = handle.join();
        }
    }
}
