//! Connections to the nodes: one pool per thread and node. Connections that serve one client belong to its
//! connection.
//!
//! Several processes or servers may share an address, and a connection stays with the one that accepted it. So a
//! request takes the idle connection whose last answer came soonest: its process has room. A failure counts as the
//! slowest answer, since fast failures must not attract requests.
//!
//! Source: our own. Departure: gateways mostly take the connection that was used last. Under load that is the one whose
//! answer has just come, so the same few connections carry all requests, however unevenly the processes share them.
//! On a gunicorn of four processes, eleven requests in flight were answered no faster than five.
//!
//! The task that uses a connection drives it. An idle connection is not driven, so no task is woken to hand
//! over a request. Whether an idle connection has been closed is checked when it is taken from the pool, and
//! once a second.

mod dial;
mod http2;
mod inbox;
mod link;

pub(crate) use http2::OpenStream;
pub(crate) use inbox::Inbox;
pub(crate) use link::{Broken, Link, Sending};

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::AsyncWriteExt as _;
use tokio_rustls::{TlsConnector, rustls};
use weirgate_engine::Time;

use self::dial::dial;
use crate::active_config::{ActiveConfig, Endpoint};
use crate::client_conn::ClientConn;
use crate::io::Io;
use crate::proxy_protocol;
use crate::tls_files::TlsFiles;

/// Creates a receive buffer for the connections of a thread.
pub(crate) fn inbox() -> Inbox {
    Inbox::new(link::KEPT)
}

/// Idle connections of one thread.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// Connections by node id, in ascending order. New nodes have higher ids. Those of a node are in the order of their
    /// last answers, the slowest first.
    idle: RefCell<Vec<(u64, Vec<Idle>)>>,
    http2: http2::Connections,
}

#[derive(Debug)]
struct Idle {
    link: Box<Link>,
    since: Time,
}

impl Pools {
    /// Returns the idle connection to `endpoint` whose last answer came soonest and that is still open, or a stream of
    /// one that speaks HTTP/2.
    pub(crate) fn take(&self, endpoint: &Endpoint, now: Time) -> Option<Box<Link>> {
        if endpoint.settings.http2 {
            return self.http2.take(endpoint, now).map(|stream| Link::over_http2(stream, true));
        }
        loop {
            let mut link = self.pop(endpoint)?;
            if link.is_reusable() {
                return Some(link);
            }
        }
    }

    fn pop(&self, endpoint: &Endpoint) -> Option<Box<Link>> {
        let mut idle = self.idle.borrow_mut();
        let at = place(&idle, endpoint).ok()?;
        let (_, idle) = idle.get_mut(at)?;
        idle.pop().map(|idle| idle.link)
    }

    /// Keeps a connection for the next request, if it can serve one and the pool is not full.
    pub(crate) fn put(&self, endpoint: &Endpoint, link: Box<Link>, now: Time) {
        if endpoint.settings.idle_connections == 0 || !link.is_done() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        let at = place(&idle, endpoint).unwrap_or_else(|at| {
            idle.insert(at, (endpoint.id, Vec::new()));
            at
        });
        if let Some((_, idle)) = idle.get_mut(at)
            && idle.len() < endpoint.settings.idle_connections
        {
            let at = idle.partition_point(|slower| slower.link.answer_time() >= link.answer_time());
            idle.insert(at, Idle { link, since: now });
        }
    }

    /// Closes connections that have been idle for too long, were closed by the node, or lead to a removed
    /// node.
    pub(crate) fn sweep(&self, active_config: &ActiveConfig, now: Time) {
        self.http2.sweep(active_config, now);
        self.idle.borrow_mut().retain_mut(|(id, idle)| {
            let Some(endpoint) = active_config.endpoint_with(*id) else { return false };
            idle.retain_mut(|i| now.since(i.since) < endpoint.settings.idle_timeout && i.link.is_reusable());
            !idle.is_empty()
        });
    }

    /// Closes all idle connections.
    pub(crate) fn clear(&self) {
        self.http2.clear();
        self.idle.borrow_mut().clear();
    }
}

/// Place of the connections to `endpoint`, or the one where they belong. The ids of a policy's nodes follow one
/// another, so the search begins where they are if all nodes before have connections.
fn place(idle: &[(u64, Vec<Idle>)], endpoint: &Endpoint) -> Result<usize, usize> {
    let first = idle.first().map_or(endpoint.id, |(id, _)| *id);
    let expected = usize::try_from(endpoint.id.saturating_sub(first)).unwrap_or(usize::MAX);
    match idle.get(expected) {
        Some((id, _)) if *id == endpoint.id => Ok(expected),
        _ => idle.binary_search_by_key(&endpoint.id, |(id, _)| *id),
    }
}

/// Opens a connection to `endpoint` for a client. One that speaks HTTP/2 is kept for further streams.
///
/// # Errors
/// The address cannot be resolved or reached.
pub(crate) async fn connect(endpoint: &Arc<Endpoint>, conn: &ClientConn) -> io::Result<Box<Link>> {
    let shared = &conn.worker.shared;
    shared.counters.connects.fetch_add(1, Ordering::Relaxed);
    let http2 = endpoint.settings.http2;
    let connected = async {
        let io = open(endpoint, &shared.tls, http2, Some(conn)).await?;
        match http2 {
            false => Ok(Link::new(io)),
            true => Ok(Link::over_http2(conn.pools(endpoint).http2.begin(endpoint, io, conn.now()).await?, false)),
        }
    };
    connected.await.inspect_err(|_| {
        shared.counters.connect_failures.fetch_add(1, Ordering::Relaxed);
    })
}

/// Opens a transport to `endpoint`, with TLS if its upstream has it. With TLS, HTTP/2 is offered if `http2`, as
/// servers demand it (RFC 9113 Sec. 3.2), and the node has to agree on it. If the upstream has the PROXY protocol, the
/// connection names `client`, or this gateway itself.
///
/// # Errors
/// The address cannot be resolved or reached, or TLS failed. A node that does not agree on HTTP/2 is such a failure: it
/// would read the frames as a broken request.
pub(crate) async fn open(
    endpoint: &Endpoint,
    tls: &TlsFiles,
    http2: bool,
    client: Option<&ClientConn>,
) -> io::Result<Io> {
    let mut stream = dial(endpoint, client).await?;
    if let Some(version) = endpoint.settings.proxy_protocol {
        let mut header = Vec::new();
        match client {
            Some(client) => proxy_protocol::write(&mut header, version, client.ends()),
            None => proxy_protocol::write_local(&mut header, version),
        }
        stream.write_all(&header).await?;
    }
    let Some(settings) = &endpoint.settings.tls else { return Ok(Io::Plain(stream)) };
    let odd = || io::Error::new(io::ErrorKind::InvalidInput, "the node has no name for TLS");
    // A reload may have removed them while a request of the previous configuration is under way.
    let client = tls.nodes.of(settings).ok_or_else(odd)?;
    let name = client.server_name(endpoint.authority()).ok_or_else(odd)?;
    let offered = if http2 { vec![b"h2".to_vec()] } else { Vec::new() };
    let connector = TlsConnector::from(Arc::clone(&client.config));
    let stream = connector.with_alpn(offered).connect(name, stream).await?;
    if http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(io::Error::new(io::ErrorKind::InvalidData, rustls::Error::NoApplicationProtocol));
    }
    Ok(Io::Tls(Box::new(stream.into())))
}
