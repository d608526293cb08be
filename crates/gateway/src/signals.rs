//! Signals of the operating system: `SIGHUP` reloads, `SIGUSR2` hands over to a new process, `SIGTERM` and `SIGINT`
//! drain.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::active_config::{ActiveConfig, ReloadError};
use crate::gateway::Gateway;

/// Signals that this process handles.
#[derive(Debug)]
pub struct Signals {
    runtime: tokio::runtime::Runtime,
    hangup: Signal,
    user2: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// Effect of a signal.
#[derive(Debug)]
pub enum Signalled {
    /// A reload begins.
    Reloading,
    /// A reload, with its result.
    Reloaded(Result<Arc<ActiveConfig>, ReloadError>),
    /// A new process is being started.
    HandingOver,
    /// The new process with this id accepts connections and the gateway drains, or the reason why the gateway serves as
    /// before.
    HandedOver(Result<u32, String>),
    /// The gateway drains.
    Draining,
    /// A second request to end during the drain. The remaining requests are aborted.
    Cut,
}

/// Starts a process that takes over.
pub trait Succession: Send + Sync {
    /// Starts the process, hands over to it and returns its id. Blocks.
    ///
    /// # Errors
    /// The reason why the gateway serves as before.
    fn hand_over(&self) -> Result<u32, String>;

    /// Ends the process that is being started, if there is one.
    fn abandon(&self);
}

impl Signals {
    /// Handles signals from now on. Until then they end the process.
    ///
    /// # Errors
    /// Signals cannot be received.
    pub fn handle() -> io::Result<Signals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let hangup = signal(SignalKind::hangup())?;
        let user2 = signal(SignalKind::user_defined2())?;
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        drop(entered);
        Ok(Signals { runtime, hangup, user2, terminate, interrupt })
    }

    /// Follows signals until `gateway` has ended, by a signal or by [`Gateway::drain`]. Blocks. `tell` is called with
    /// the effect of each signal.
    pub fn follow(self, gateway: &Gateway, succession: &Arc<dyn Succession>, mut tell: impl FnMut(Signalled)) {
        let Signals { runtime, mut hangup, mut user2, mut terminate, mut interrupt } = self;
        runtime.block_on(async {
            let mut stopping = false;
            loop {
                tokio::select! {
                    _ = hangup.recv() => {
                        tell(Signalled::Reloading);
                        tell(Signalled::Reloaded(gateway.reload()));
                        continue;
                    }
                    _ = user2.recv() => {
                        tell(Signalled::HandingOver);
                        let told_to_stop = async {
                            tokio::select! {
                                _ = terminate.recv() => {}
                                _ = interrupt.recv() => {}
                            }
                        };
                        let (ended, stop) = hand_over(gateway, succession, told_to_stop).await;
                        tell(Signalled::HandedOver(ended));
                        if !stop {
                            continue;
                        }
                    }
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                    () = gateway.ended() => return,
                }
                if std::mem::replace(&mut stopping, true) {
                    gateway.cut();
                    tell(Signalled::Cut);
                } else {
                    gateway.drain();
                    tell(Signalled::Draining);
                }
            }
        });
        gateway.join();
    }
}

/// Hands over. If `told_to_stop` resolves, the gateway drains and the new process is ended. Returns the result, and
/// whether that happened.
async fn hand_over(
    gateway: &Gateway,
    succession: &Arc<dyn Succession>,
    told_to_stop: impl Future<Output = ()>,
) -> (Result<u32, String>, bool) {
    let successor = Arc::clone(succession);
    let mut attempt = tokio::task::spawn_blocking(move || successor.hand_over());
    let (ended, stop) = tokio::select! {
        ended = &mut attempt => (ended, false),
        () = told_to_stop => {
            gateway.drain();
            succession.abandon();
            (attempt.await, true)
        }
    };
    (ended.unwrap_or_else(|error| Err(format!("the hand-over broke off: {error}"))), stop)
}
