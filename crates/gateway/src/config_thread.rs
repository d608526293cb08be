//! The thread on which configurations are made.
//!
//! A configuration of ten thousand classes has a hundred thousand small pieces of memory, and reading its file needs
//! twice as much for a moment. Allocators give each thread an arena of its own. If each reload ran on the thread that
//! happened to be told, the arenas of all of them would keep pages that are mostly free, and lasting pieces between
//! those of the moment would keep the rest. So configurations live in the arena of one thread, where a new one takes
//! the place of the one before the last. A file is read on a thread of its own, which gives everything back.
//!
//! An allocator may wait with free pages until its thread needs memory again, which here is at the next reload. So the
//! thread asks for them when it rests ([`crate::allocator`]).

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use crate::allocator;

/// Time after a piece of work at which free memory is given back. By then the threads have let go of the configuration
/// before, but for requests in flight.
const REST: Duration = Duration::from_secs(2);

/// A piece of work.
type Job = Box<dyn FnOnce() + Send>;

/// The thread. It ends when this is dropped.
pub(crate) struct ConfigThread {
    jobs: Option<Sender<Job>>,
}

impl ConfigThread {
    /// Starts the thread. If the system has none to spare, work is done on the calling thread. The thread calls
    /// `give_back` whenever it has rested for [`REST`] after a piece of work.
    pub(crate) fn start(give_back: fn()) -> ConfigThread {
        let (jobs, given): (Sender<Job>, Receiver<Job>) = channel();
        let run = move || {
            let mut rested = true;
            loop {
                let next = if rested { given.recv().map_err(RecvTimeoutError::from) } else { given.recv_timeout(REST) };
                rested = match next {
                    Ok(job) => {
                        job();
                        false
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        give_back();
                        true
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
            }
        };
        let thread = thread::Builder::new().name("weirgate-config".to_owned()).spawn(run);
        ConfigThread { jobs: thread.is_ok().then_some(jobs) }
    }

    /// Does `work` on the thread and returns its result. Panics if it does.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (give, take) = sync_channel(1);
        let job: Job = Box::new(move || {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let _ = give.send(done);
        });
        let left = match &self.jobs {
            Some(jobs) => jobs.send(job).err().map(|SendError(job)| job),
            None => Some(job),
        };
        if let Some(job) = left {
            job();
        }
        match take.recv() {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => unreachable!("a job always gives a result"),
        }
    }
}

/// Makes a value on a thread of its own, which ends, and returns a copy that is made on this one.
pub(crate) fn copied<T: Clone + Send + Sync>(make: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let (give, take) = sync_channel(1);
        let (copied, wait) = sync_channel::<()>(0);
        let maker = scope.spawn(move || {
            let made = Arc::new(make());
            let _ = give.send(Arc::clone(&made));
            // The last one to drop it frees its memory, and that is this thread.
            let _ = wait.recv();
            drop(made);
            // Otherwise the next thread may begin in that memory, and keep it.
            allocator::give_back();
        });
        let Ok(made) = take.recv() else {
            let panic = maker.join().expect_err("it ends without a value only if it panics");
            resume_unwind(panic);
        };
        let copy = T::clone(&made);
        drop(made);
        drop(copied);
        copy
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn work_is_done_on_one_thread_and_survives_a_panic() {
        let thread = ConfigThread::start(|| ());
        let id = || thread::current().id();
        let first = thread.run(id);
        assert_ne!(first, id());
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| thread.run(|| panic!("as meant"))));
        assert!(broken.is_err());
        assert_eq!(thread.run(id), first);
    }

    #[test]
    fn memory_is_given_back_when_the_thread_rests() {
        static GIVEN_BACK: AtomicU32 = AtomicU32::new(0);
        let thread = ConfigThread::start(|| {
            GIVEN_BACK.fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..10 {
            thread.run(|| ());
        }
        let given_back = || GIVEN_BACK.load(Ordering::Relaxed);
        assert!(weirgate_clock::becomes_true(10 * REST, || given_back() > 0));
        thread.run(|| ());
        assert_eq!(given_back(), 1, "once for all of them");
    }

    #[test]
    fn a_copy_is_equal_and_a_panic_is_passed_on() {
        assert_eq!(copied(|| vec![1, 2, 3]), [1, 2, 3]);
        assert!(std::panic::catch_unwind(|| copied(|| -> u8 { panic!("as meant") })).is_err());
    }
}
