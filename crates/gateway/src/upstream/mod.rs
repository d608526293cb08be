//! Connections to the nodes: one pool per thread and node.
//!
//! The task that uses a connection drives it. An idle connection is not driven, so no task is woken to hand
//! over a request. Whether an idle connection has been closed is checked when it is taken from the pool, and
//! once a second.

mod body;
mod link;

pub(crate) use body::{Progress, RequestBody, TOO_LARGE, Upload, account};
pub(crate) use link::{Answer, Link};

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::net::TcpStream;
use weirgate_engine::Time;

use crate::edition::{Edition, Target};
use crate::gateway::Counters;

/// Idle connections of one thread.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// Connections by node id. A tree, because there are few nodes and hashing an id would cost more than the
    /// search.
    idle: RefCell<BTreeMap<u64, Vec<Idle>>>,
}

#[derive(Debug)]
struct Idle {
    link: Box<Link>,
    since: Time,
}

impl Pools {
    /// Returns the most recently used idle connection to `target` that is still open.
    pub(crate) fn take(&self, target: &Target) -> Option<Box<Link>> {
        loop {
            let mut link = self.idle.borrow_mut().get_mut(&target.id)?.pop()?.link;
            if link.is_reusable() {
                return Some(link);
            }
        }
    }

    /// Keeps a connection for the next request, if it can serve one and the pool is not full.
    pub(crate) fn put(&self, target: &Target, mut link: Box<Link>, now: Time) {
        if target.settings.idle_connections == 0 || !link.is_done() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        let idle = idle.entry(target.id).or_default();
        if idle.len() < target.settings.idle_connections {
            idle.push(Idle { link, since: now });
        }
    }

    /// Closes connections that have been idle for too long, were closed by the node, or lead to a removed
    /// node.
    pub(crate) fn sweep(&self, edition: &Edition, now: Time) {
        self.idle.borrow_mut().retain(|id, idle| {
            let Some(target) = edition.nodes.iter().find(|t| t.id == *id) else { return false };
            idle.retain_mut(|i| now.since(i.since) < target.settings.idle_timeout && i.link.is_reusable());
            !idle.is_empty()
        });
    }

    /// Closes all idle connections.
    pub(crate) fn clear(&self) {
        self.idle.borrow_mut().clear();
    }
}

/// Opens a connection to `target`.
///
/// # Errors
/// The address cannot be resolved or reached.
pub(crate) async fn connect(target: &Arc<Target>, counters: &Counters) -> io::Result<Box<Link>> {
    counters.connects.fetch_add(1, Ordering::Relaxed);
    // An address is parsed at once. A name is resolved on another thread.
    let connected = async {
        let stream = TcpStream::connect(target.address.as_str()).await?;
        stream.set_nodelay(true)?;
        Link::open(stream).await
    };
    connected.await.inspect_err(|_| {
        counters.connect_failures.fetch_add(1, Ordering::Relaxed);
    })
}
