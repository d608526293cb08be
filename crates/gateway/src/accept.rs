//! Accepting connections, within the limits of the process and of each peer.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weirgate_config::ListenerName;

use crate::listener::{self, Acceptor};
use crate::memory::Pressure;
use crate::threads::Accepted;
use crate::worker::{PAUSE, Worker};

/// Accepts connections until the task is aborted, and serves them or, if `deal`, deals them out to all threads.
pub(crate) async fn accept(worker: Rc<Worker>, sockets: Acceptor, named: Arc<ListenerName>, deal: bool) {
    let bound = sockets.bound();
    let port = bound.port();
    let counters = &worker.shared.counters;
    loop {
        match sockets.accept().await {
            Ok((stream, peer)) => {
                counters.accepted.fetch_add(1, Ordering::Relaxed);
                let active_config = worker.active_config();
                // Those of a balancer are counted for the clients that it names.
                let is_balancer = active_config.site.expects_header(&named, peer.ip());
                let how = active_config.site.listener(&named).and_then(|listener| listener.transparent);
                let destination = listener::destination(&stream, bound, how);
                let Some(place) = worker.place(peer.ip(), !is_balancer) else { continue };
                let named = Arc::clone(&named);
                let accepted = Accepted { stream, peer, place, named, port, destination };
                if open_conn(&worker) {
                    begin(&worker, accepted, deal);
                } else {
                    // At the limit, this connection waits unread, and further ones wait in the kernel. It waits in a
                    // task of its own, so that a drain does not lose it.
                    let waiting = wait_for_room(Rc::clone(&worker), accepted, deal);
                    let _ = tokio::task::spawn_local(waiting).await;
                }
            }
            // The client left before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => {
                counters.accept_pauses.fetch_add(1, Ordering::Relaxed);
                worker.make_room();
                worker.timers.sleep(PAUSE).await;
            }
        }
    }
}

/// Serves a connection that has been counted, on this thread or on the next one in turn.
fn begin(worker: &Rc<Worker>, accepted: Accepted, deal: bool) {
    let own = if deal { worker.shared.threads.deal(worker.index, accepted) } else { Some(accepted) };
    if let Some(accepted) = own {
        worker.serve(accepted);
    }
}

/// Begins to serve a connection when there is room for it, unless its client has left by then.
async fn wait_for_room(worker: Rc<Worker>, accepted: Accepted, deal: bool) {
    let waiting = WaitingConn::new(&worker.shared.waiting_conns);
    while !open_conn(&worker) {
        worker.close_idle(1);
        let _ = worker.timers.within(PAUSE, worker.left.notified()).await;
        if accepted.stream.has_left() {
            return;
        }
    }
    drop(waiting);
    begin(&worker, accepted, deal);
}

/// Counts a connection that waits for capacity, until it gets it or its listener is closed.
struct WaitingConn<'a>(&'a AtomicUsize);

impl<'a> WaitingConn<'a> {
    fn new(count: &'a AtomicUsize) -> WaitingConn<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        WaitingConn(count)
    }
}

impl Drop for WaitingConn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts one more connection, if the limit allows it. Returns whether it does.
fn open_conn(worker: &Worker) -> bool {
    if worker.shared.memory.pressure() >= Pressure::Accept {
        return false;
    }
    let max = worker.shared.connections.load(Ordering::Relaxed);
    let one_more = |open| (open < max).then_some(open + 1);
    worker.shared.counters.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
}
