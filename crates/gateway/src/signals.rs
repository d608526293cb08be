//! What the operating system asks of the process: `SIGHUP` reloads, `SIGTERM` and `SIGINT` drain.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use crate::edition::{Edition, ReloadError};
use crate::gateway::Gateway;

/// What a signal led to.
#[derive(Debug)]
pub enum Signalled {
    /// Nothing yet: from now on signals are obeyed. Told once, first.
    Obeyed,
    /// A reload, and what came of it.
    Reloaded(Result<Arc<Edition>, ReloadError>),
    /// The gateway drains.
    Draining,
    /// It was told to end once more while it drained: what is left is cut off.
    Cut,
}

impl Gateway {
    /// Obeys signals until the gateway has ended, by a signal or by [`Gateway::drain`]. Blocks. `tell` hears
    /// what each signal led to.
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
