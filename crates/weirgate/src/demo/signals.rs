//! Signals that end the demo. The demo then judges the part that was played.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// Whether the demo is asked to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns a flag that SIGINT, SIGTERM and SIGHUP set. The thread that waits for them ends with the process.
    ///
    /// # Errors
    /// The system refuses a thread or a handler.
    pub(crate) fn on_signals() -> io::Result<Stop> {
        let stop = Stop::default();
        let set = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let signals = runtime.block_on(async {
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            kinds.map(signal).into_iter().collect::<io::Result<Vec<_>>>()
        })?;
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                let Ok([mut interrupt, mut terminate, mut hangup]) = <[_; 3]>::try_from(signals) else { return };
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                set.ask();
            });
        })?;
        Ok(stop)
    }

    /// Asks the demo to end.
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the demo is asked to end.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
