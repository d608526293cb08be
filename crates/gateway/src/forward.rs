//! Stage *forward*: sends the request to a node, and retries on another one if allowed.
//!
//! Sources: RFC 9110 Sec. 9.2.2 (methods that may be repeated), RFC 9112 Sec. 6.3 and 9.3.1 (ends of
//! messages, retrying on a connection that closed). Departures: the gateway, not the node, answers
//! `Expect: 100-continue` when it forwards the request, and interim responses (103) are not passed on.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::{HOST, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body;
use weirgate_config::NodeTimeouts;
use weirgate_engine::{Outcome, Time};

use crate::active_config::Endpoint;
use crate::client_conn::ClientConn;
use crate::exchange::Exchange;
use crate::hops;
use crate::permit::Permit;
use crate::pump::{Pump, ReplyBody};
use crate::refusal::Refusal;
use crate::reply::NodeError;
use crate::trace::TraceId;
use crate::tunnel::Tunnel;
use crate::upstream::{self, Answer, Link, Progress, RequestBody};

/// A request being forwarded to the nodes.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) method: Method,
    /// Headers as the client sent them, without those named by `Connection`. `None` after they have been
    /// sent.
    pub(crate) headers: Option<HeaderMap>,
    /// Sequence number of the request on its connection.
    pub(crate) number: u64,
    pub(crate) target: PathAndQuery,
    pub(crate) authority: HeaderValue,
    /// Whether the peer is trusted to state the origin of requests.
    pub(crate) trusted: bool,
    /// Protocol that the client asks for.
    pub(crate) upgrade: Option<HeaderValue>,
    pub(crate) trace: Option<TraceId>,
    pub(crate) body: RequestBody,
    /// Progress of the upload, if the body is streamed.
    pub(crate) progress: Option<Rc<Progress>>,
    pub(crate) timeouts: NodeTimeouts,
    /// Maximum number of response bytes that may be read ahead.
    pub(crate) buffer: usize,
}

impl Forward {
    /// Returns whether the request can be sent again: it is idempotent and none of it has been lost.
    fn is_repeatable(&self, conn: &ClientConn) -> bool {
        self.method.is_idempotent()
            && !matches!(self.body, RequestBody::Stream(_))
            && self.progress.is_none()
            && self.upgrade.is_none()
            && (self.headers.is_some() || conn.head.borrow().is(self.number))
    }

    /// Builds the message for a node. Returns `None` if it has been sent before and its headers are no longer
    /// available.
    fn message(&mut self, conn: &ClientConn, endpoint: &Endpoint) -> Option<Request<RequestBody>> {
        let mut headers = match self.headers.take() {
            Some(headers) => headers,
            None => {
                let mut headers = conn.head.borrow().headers(self.number)?;
                hops::drop_named(&mut headers);
                conn.worker.traces.continue_with(self.trace, &mut headers);
                headers
            }
        };
        let peer = conn.peer.ip().to_canonical();
        let way = hops::Way { peer, trusted: self.trusted, authority: &self.authority, upgrade: self.upgrade.as_ref() };
        hops::to_node(&mut headers, &way, &mut conn.stamps.borrow_mut());
        let host = if self.authority.is_empty() {
            HeaderValue::from_str(&endpoint.address).unwrap_or(HeaderValue::from_static("node"))
        } else {
            self.authority.clone()
        };
        headers.insert(HOST, host);
        if self.body.size_hint().exact().is_none() {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let body = match &self.body {
            RequestBody::Whole(bytes) => RequestBody::Whole(bytes.clone()),
            _ => std::mem::replace(&mut self.body, RequestBody::Empty),
        };
        let mut message = Request::new(body);
        *message.method_mut() = self.method.clone();
        *message.uri_mut() = Uri::from(self.target.clone());
        *message.headers_mut() = headers;
        Some(message)
    }
}

/// Why an attempt gave no response.
enum Missed {
    /// The node failed.
    Node(NodeError),
    /// A reused connection closed before it answered. This says nothing about the node.
    Stale,
    /// The client failed.
    Client(Refusal),
    /// This gateway has no file descriptor or port left.
    Exhausted,
}

/// Forwards until a node answers or no further attempt is allowed.
pub(crate) async fn forward(
    request: &mut Forward,
    mut permit: Permit,
    mut endpoint: Arc<Endpoint>,
    mut exchange: Box<Exchange>,
) -> Response<ReplyBody> {
    let conn = Rc::clone(&exchange.conn);
    conn.total.set(conn.now() + request.timeouts.total);
    let mut fresh = false;
    loop {
        let missed = match attempt(request, fresh, &endpoint, &conn).await {
            Ok((link, response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                return upgrade(link, response, permit, &endpoint, exchange, request.timeouts);
            }
            Ok((link, response)) => match answer(link, response, request, permit, &endpoint, exchange) {
                Ok(response) => return response,
                Err((error, back, still)) => {
                    (permit, exchange) = (back, still);
                    Missed::Node(error)
                }
            },
            Err(missed) => missed,
        };
        match missed {
            // The permit is dropped, so the engine records a reset and not a failure.
            Missed::Client(refusal) => return exchange.refuse(refusal),
            Missed::Exhausted => return exchange.exhausted(),
            Missed::Stale => fresh = true,
            Missed::Node(error) => {
                let again = request.is_repeatable(&conn) && conn.now() < conn.total.get();
                let (at, next) = permit.fail(again);
                match next {
                    Some(next) => {
                        exchange.retries = exchange.retries.saturating_add(1);
                        exchange.endpoint = Some(Arc::clone(&next));
                        (endpoint, fresh) = (next, false);
                    }
                    None => {
                        exchange.node_ended(Ok(at));
                        return exchange.fail(error);
                    }
                }
            }
        }
    }
}

/// Makes one attempt at one node, on a reused connection unless `fresh`.
async fn attempt(
    request: &mut Forward,
    mut fresh: bool,
    endpoint: &Arc<Endpoint>,
    conn: &Rc<ClientConn>,
) -> Result<(Box<Link>, Response<()>), Missed> {
    let mut unsent = None;
    loop {
        let pooled = if fresh { None } else { conn.worker.pools.take(endpoint) };
        let mut link = match pooled {
            Some(link) => link,
            // Rare and large, so it is boxed to keep the future of every request small.
            None => Box::pin(connect(endpoint, conn, request.timeouts.connect)).await?,
        };
        let (used, before) = (link.is_used(), link.received());
        if used {
            let reused = &conn.worker.shared.counters.reused;
            reused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        let message = unsent.take().or_else(|| request.message(conn, endpoint));
        let Some(message) = message else { return Err(Missed::Node(NodeError::Terminated)) };
        let streamed = request.progress.is_some();
        conn.begin_phase(if streamed { request.timeouts.body_progress } else { request.timeouts.first_byte });
        let broken = match link.exchange(message, &conn.worker, || conn.is_late()).await {
            Answer::Head(response) => return Ok((link, response)),
            Answer::Unsent(back) if used => {
                (unsent, fresh) = (Some(*back), true);
                continue;
            }
            Answer::Unsent(_) => NodeError::Terminated,
            Answer::Malformed => NodeError::Protocol,
            Answer::Broken if used && link.received() == before && request.is_repeatable(conn) => {
                return Err(Missed::Stale);
            }
            Answer::Broken => NodeError::Terminated,
            Answer::Late => NodeError::ResponseTimeout,
        };
        return Err(match (conn.body_refusal(), &request.progress) {
            (Some(refusal), _) => Missed::Client(refusal),
            (None, Some(progress)) if broken == NodeError::ResponseTimeout && progress.awaits_client.get() => {
                Missed::Client(upstream::TOO_SLOW)
            }
            _ => Missed::Node(broken),
        });
    }
}

/// Opens a connection. If no file descriptor is left for it, idle connections are closed first.
async fn connect(endpoint: &Arc<Endpoint>, conn: &Rc<ClientConn>, limit: Duration) -> Result<Box<Link>, Missed> {
    conn.begin_phase(limit);
    for last in [false, true] {
        let mut connecting = std::pin::pin!(upstream::connect(endpoint, &conn.worker.shared.counters));
        let connected = poll_fn(|cx| match connecting.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending if conn.is_late() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        return match connected.await {
            Some(Ok(link)) => Ok(link),
            None => Err(Missed::Node(NodeError::ConnectTimeout)),
            Some(Err(error)) if is_exhaustion(&error) => {
                conn.worker.make_room();
                if !last {
                    continue;
                }
                Err(Missed::Exhausted)
            }
            Some(Err(error)) => Err(Missed::Node(match error.kind() {
                io::ErrorKind::ConnectionRefused => NodeError::Refused,
                io::ErrorKind::TimedOut => NodeError::ConnectTimeout,
                _ if endpoint.address.parse::<std::net::SocketAddr>().is_err() => NodeError::Dns,
                _ => NodeError::Unavailable,
            })),
        };
    }
    Err(Missed::Exhausted)
}

/// Returns whether a connect error is caused by this machine and says nothing about the node.
fn is_exhaustion(error: &io::Error) -> bool {
    /// Linux error numbers of `ENFILE`, `EMFILE`, `ENOMEM`, `EADDRNOTAVAIL` (no port left) and `ENOBUFS`.
    const ERRORS: [i32; 5] = [23, 24, 12, 99, 105];
    error.raw_os_error().is_some_and(|code| ERRORS.contains(&code))
}

/// Handles the response: checks the head, reads the data that is available, and leaves the rest to a pump. If
/// the response breaks off before its head has been sent downstream, the permit and the exchange are
/// returned.
fn answer(
    link: Box<Link>,
    response: Response<()>,
    request: &Forward,
    permit: Permit,
    endpoint: &Arc<Endpoint>,
    mut exchange: Box<Exchange>,
) -> Result<Response<ReplyBody>, (NodeError, Permit, Box<Exchange>)> {
    let (mut head, ()) = response.into_parts();
    let conn = Rc::clone(&exchange.conn);
    let length = link.length();
    conn.begin_phase(request.timeouts.body_progress);
    let mut pump = Pump::new(&conn, Arc::clone(endpoint), link, permit, head.status.as_u16(), request.buffer);
    // hyper or the connection's task continues to read and registers its own waker.
    pump.burst(&mut Context::from_waker(Waker::noop()));
    exchange.status = head.status.as_u16();
    exchange.answered();
    hops::to_client(&mut head.headers, false);
    head.version = Version::HTTP_11;
    let body = match pump.ended() {
        Some(Err(error)) => {
            exchange.status = 0;
            return Err((error, pump.into_permit(), exchange));
        }
        Some(Ok(at)) => {
            exchange.node_ended(Ok(at));
            ReplyBody::frames(pump.take_queue(), exchange)
        }
        None => ReplyBody::pumped(pump.share(), length, exchange),
    };
    Ok(Response::from_parts(head, body))
}

/// Handles a change of protocol by the node.
fn upgrade(
    link: Box<Link>,
    response: Response<()>,
    mut permit: Permit,
    endpoint: &Arc<Endpoint>,
    mut exchange: Box<Exchange>,
    timeouts: NodeTimeouts,
) -> Response<ReplyBody> {
    let (mut head, ()) = response.into_parts();
    if !exchange.may_upgrade() {
        permit.fail(false);
        return exchange.fail(NodeError::Upgrade);
    }
    // The tunnel holds no slot. Its duration says nothing about the node's load.
    let at = permit.finish(Outcome::Upgraded);
    exchange.node_ended(Ok(at));
    exchange.status = 101;
    exchange.endpoint = Some(Arc::clone(endpoint));
    hops::to_client(&mut head.headers, true);
    let conn = Rc::clone(&exchange.conn);
    conn.phase.set(Time::NEVER);
    conn.total.set(Time::NEVER);
    let idle = exchange.active_config.site.timeouts.idle.max(timeouts.body_progress);
    let (stream, received) = link.into_transport();
    conn.tunnel.replace(Some(Tunnel::new(stream, received, idle, exchange)));
    let mut response = Response::new(ReplyBody::none());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = head.headers;
    response
}
