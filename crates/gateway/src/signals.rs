//! Signals of the operating system: `SIGHUP` reloads, `SIGTERM` and `SIGINT` drain.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use crate::active_config::{ActiveConfig, ReloadError};
use crate::gateway::Gateway;

/// Effect of a signal.
#[derive(Debug)]
pub enum Signalled {
    /// No effect yet: from now on signals are handled. Reported once, first.
    Obeyed,
    /// A reload, with its result.
    Reloaded(Result<Arc<ActiveConfig>, ReloadError>),
    /// The gateway drains.
    Draining,
    /// A second request to end during the drain. The remaining requests are aborted.
    Cut,
}

impl Gateway {
    /// Handles signals until the gateway has ended, by a signal or by [`Gateway::drain`]. Blocks. `tell` is
    /// called with the effect of each signal.
    ///
    /// # Errors
    /// Signals cannot be received.
    pub fn run_until_signalled(&self, mut tell: impl FnMut(Signalled)) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut hangup = signal(SignalKind::hangup())?;
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            tell(Signalled::Obeyed);
            let mut draining = false;
            loop {
                tokio::select! {
                    _ = hangup.recv() => {
                        tell(Signalled::Reloaded(self.reload()));
                        continue;
                    }
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                    () = self.ended() => return Ok::<_, io::Error>(()),
                }
                if std::mem::replace(&mut draining, true) {
                    self.cut();
                    tell(Signalled::Cut);
                } else {
                    self.drain();
                    tell(Signalled::Draining);
                }
            }
        })?;
        self.join();
        Ok(())
    }
}
