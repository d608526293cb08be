//! The thread for work that no request waits for: health checks, collectors' reports, looks at certificates, events,
//! and what was learned.
//!
//! A handshake with a node or a snapshot of many classes takes as long as many requests, so it is not done on a thread
//! that serves. Those threads have no timer for it either (`kernel_timer`).

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};

use crate::gateway::{Gateway, Phase, lock};
use crate::polling::Polls;
use crate::{events, learned, tls_files};

/// Starts the thread, and returns when it follows the configuration. It ends when the threads that serve have ended.
///
/// # Errors
/// The system has no thread or no file descriptor left.
pub(crate) fn start(gateway: &Gateway) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (gateway, handles) = (gateway.clone(), &gateway.shared.handles);
    let (ready, follows) = sync_channel(1);
    let run = move || {
        LocalSet::new().block_on(&runtime, watch(&gateway, &ready));
        // A name server that does not answer must not keep the process from ending.
        runtime.shutdown_background();
    };
    lock(handles).push(std::thread::Builder::new().name("weirgate-watch".to_owned()).spawn(run)?);
    follows.recv().map_err(io::Error::other)
}

async fn watch(gateway: &Gateway, ready: &SyncSender<()>) {
    let shared = &gateway.shared;
    let tasks = [
        spawn_local(events::watch(Arc::clone(shared))),
        spawn_local(tls_files::watch(Arc::clone(shared))),
        spawn_local(learned::watch(Arc::clone(shared))),
    ];
    let mut polls = Polls::default();
    loop {
        match gateway.phase() {
            Phase::Starting | Phase::Ready => polls.follow(&gateway.active_config(), shared),
            Phase::Draining => {}
            Phase::Stopped => break,
        }
        // There is room for the first one only, for which `start` waits.
        let _ = ready.try_send(());
        shared.watch.notified().await;
    }
    polls.stop();
    tasks.iter().for_each(|task| task.abort());
}
