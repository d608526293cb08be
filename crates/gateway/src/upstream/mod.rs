//! Connections to the nodes: one pool per thread and node.
//!
//! The task that uses a connection drives it. An idle connection is not driven, so no task is woken to hand
//! over a request. Whether an idle connection has been closed is checked when it is taken from the pool, and
//! once a second.

mod inbox;
mod link;

pub(crate) use inbox::Inbox;
pub(crate) use link::{Broken, Link, Sending};

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::net::TcpStream;
use weirgate_engine::Time;

use crate::active_config::{ActiveConfig, Endpoint};
use crate::gateway::Counters;

/// Creates a receive buffer for the connections of a thread.
pub(crate) fn inbox() -> Inbox {
    Inbox::new(link::KEPT)
}

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
    /// Returns the most recently used idle connection to `endpoint` that is still open.
    pub(crate) fn take(&self, endpoint: &Endpoint) -> Option<Box<Link>> {
        loop {
            let mut link = self.idle.borrow_mut().get_mut(&endpoint.id)?.pop()?.link;
            if link.is_reusable() {
                return Some(link);
            }
        }
    }

    /// Keeps a connection for the next request, if it can serve one and the pool is not full.
    pub(crate) fn put(&self, endpoint: &Endpoint, link: Box<Link>, now: Time) {
        if endpoint.settings.idle_connections == 0 || !link.is_done() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        let idle = idle.entry(endpoint.id).or_default();
        if idle.len() < endpoint.settings.idle_connections {
            idle.push(Idle { link, since: now });
        }
    }

    /// Closes connections that have been idle for too long, were closed by the node, or lead to a removed
    /// node.
    pub(crate) fn sweep(&self, active_config: &ActiveConfig, now: Time) {
        self.idle.borrow_mut().retain(|id, idle| {
            let Some(endpoint) = active_config.endpoint_with(*id) else { return false };
            idle.retain_mut(|i| now.since(i.since) < endpoint.settings.idle_timeout && i.link.is_reusable());
            !idle.is_empty()
        });
    }

    /// Closes all idle connections.
    pub(crate) fn clear(&self) {
        self.idle.borrow_mut().clear();
    }
}

/// Opens a connection to `endpoint`.
///
/// # Errors
/// The address cannot be resolved or reached.
pub(crate) async fn connect(endpoint: &Arc<Endpoint>, counters: &Counters) -> io::Result<Box<Link>> {
    counters.connects.fetch_add(1, Ordering::Relaxed);
    // An address is parsed at once. A name is resolved on another thread.
    let connected = async {
        let stream = TcpStream::connect(endpoint.address.as_str()).await?;
        stream.set_nodelay(true)?;
        Ok(Link::new(stream))
    };
    connected.await.inspect_err(|_| {
        counters.connect_failures.fetch_add(1, Ordering::Relaxed);
    })
}
