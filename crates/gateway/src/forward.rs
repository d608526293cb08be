//! Stage *forward*: sends the request to a node, and retries on another one if allowed.
//!
//! Sources: RFC 9110 Sec. 9.2.2 (methods that may be repeated), RFC 9112 Sec. 6.3 and 9.3.1 (ends of
//! messages, retrying on a connection that closed). Departure: the gateway, not the node, answers
//! `Expect: 100-continue`, before it admits the request (`exchange.rs`).

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use http::Method;
use weirgate_engine::Outcome;

use crate::active_config::Endpoint;
use crate::exchange::{Exchange, Served, Stop};
use crate::reply::NodeError;
use crate::request_stream::{Lost, RequestStream};
use crate::stream_state::StreamState;
use crate::transfer::{Answer, Transfer};
use crate::upstream::{self, Link};

/// Why an attempt gave no response.
pub(crate) enum Missed {
    /// The node failed.
    Node(NodeError),
    /// The connection to the node failed before anything was sent.
    Unsent,
    /// A reused connection closed before it answered. This says nothing about the node.
    Stale,
    /// The node has certainly not processed the request.
    Refused,
    /// The node has answered with this status in place of the tunnel that the client asked for.
    Declined(u16),
    /// The client failed.
    Client(Lost),
    /// This gateway has no file descriptor or port left.
    Exhausted,
}

/// Forwards to the node that the engine has chosen, until a node answers or no further attempt is allowed.
pub(crate) async fn forward(exchange: &mut Exchange, stream: &mut impl RequestStream) -> Result<Served, Stop> {
    let conn = Rc::clone(&exchange.conn);
    // A call of gRPC may have a deadline already.
    conn.total.set(conn.total.get().min(conn.now() + exchange.timeouts().total));
    let mut fresh = false;
    loop {
        let missed = match attempt(exchange, stream, fresh).await {
            Ok((mut transfer, Answer::Response)) => {
                exchange.place = None;
                return poll_fn(|cx| transfer.poll_rest(exchange, stream, cx)).await;
            }
            Ok((transfer, Answer::Upgraded)) => {
                // The tunnel holds no slot. Its duration says nothing about the node's load.
                exchange.finish(Outcome::Upgraded);
                exchange.status = if conn.http2.get() { 200 } else { 101 };
                poll_fn(|cx| stream.poll_flush(cx)).await?;
                let Some((node, received)) = transfer.into_transport() else { return Err(Stop::Gone) };
                return Ok(Served::Upgraded(node, received));
            }
            Err(missed) => missed,
        };
        match missed {
            // The engine is told of a reset, and not of a failure.
            Missed::Client(lost) => {
                exchange.finish(Outcome::Reset);
                return Err(lost.into());
            }
            Missed::Exhausted => {
                exchange.permit = None;
                return Err(Stop::Exhausted);
            }
            // It is not the node's fault.
            Missed::Declined(status) => {
                exchange.finish(Outcome::LastByte { status });
                return Err(Stop::Failed(NodeError::Upgrade));
            }
            Missed::Unsent | Missed::Stale => fresh = true,
            Missed::Refused => {
                let again = stream.body().is_whole() && conn.now() < conn.total.get();
                if !exchange.fail(again) {
                    return Err(Stop::Failed(NodeError::Terminated));
                }
                fresh = false;
            }
            Missed::Node(error) => {
                let again = is_repeatable(exchange, stream) && conn.now() < conn.total.get();
                if !exchange.fail(again) {
                    return Err(Stop::Failed(error));
                }
                fresh = false;
            }
        }
    }
}

/// Returns whether the request can be sent again: it is idempotent and none of it has been lost.
fn is_repeatable(exchange: &Exchange, stream: &mut impl RequestStream) -> bool {
    exchange.request.method().is_some_and(Method::is_idempotent)
        && stream.body().is_whole()
        && exchange.request.upgrade().is_none()
}

/// Makes one attempt at the exchange's node, on a reused connection unless `fresh`.
async fn attempt(
    exchange: &mut Exchange,
    stream: &mut impl RequestStream,
    fresh: bool,
) -> Result<(Transfer, Answer), Missed> {
    let conn = Rc::clone(&exchange.conn);
    let Some(endpoint) = exchange.endpoint.clone() else { return Err(Missed::Node(NodeError::Unavailable)) };
    let pooled = if fresh { None } else { conn.pools(&endpoint).take(&endpoint, conn.now()) };
    let link = match pooled {
        Some(link) => link,
        // Rare and large, so it is boxed to keep the future of every request small.
        None => Box::pin(connect(&endpoint, &conn, stream, exchange.timeouts().connect)).await?,
    };
    let (used, before) = (link.is_used(), link.received());
    if used {
        conn.worker.shared.counters.reused.fetch_add(1, Ordering::Relaxed);
    }
    if exchange.request.upgrade().is_some() {
        // Boxed for the same reason.
        Box::pin(settle(&link, &conn, stream, exchange.timeouts().connect)).await?;
    }
    let mut transfer = Transfer::new(link, exchange, stream);
    let missed = match poll_fn(|cx| transfer.poll_answer(exchange, stream, cx)).await {
        Ok(answer) => return Ok((transfer, answer)),
        Err(missed) => missed,
    };
    Err(match missed {
        Missed::Unsent if !used => Missed::Node(NodeError::Terminated),
        Missed::Node(NodeError::Terminated)
            if used && transfer.received() == Some(before) && is_repeatable(exchange, stream) =>
        {
            Missed::Stale
        }
        // Another connection may be sound, for example after a GOAWAY.
        Missed::Refused if used && stream.body().is_whole() => Missed::Stale,
        missed => missed,
    })
}

/// Opens a connection. If no file descriptor is left for it, idle connections are closed first.
async fn connect(
    endpoint: &Arc<Endpoint>,
    conn: &Rc<StreamState>,
    stream: &mut impl RequestStream,
    limit: Duration,
) -> Result<Box<Link>, Missed> {
    conn.begin_phase(limit);
    for last in [false, true] {
        let connecting = pin!(upstream::connect(endpoint, conn));
        return match undisturbed(conn, stream, connecting).await? {
            Some(Ok(link)) => Ok(link),
            None => Err(Missed::Node(NodeError::ConnectTimeout)),
            Some(Err(error)) if is_exhaustion(&error) => {
                conn.worker.make_room();
                if !last {
                    continue;
                }
                Err(Missed::Exhausted)
            }
            Some(Err(error)) => Err(Missed::Node(match (error.kind(), NodeError::of_tls(&error)) {
                (_, Some(error)) => error,
                (io::ErrorKind::ConnectionRefused, _) => NodeError::Refused,
                (io::ErrorKind::TimedOut, _) => NodeError::ConnectTimeout,
                _ if endpoint.has_name() => NodeError::Dns,
                _ => NodeError::Unavailable,
            })),
        };
    }
    Err(Missed::Exhausted)
}

/// Waits until it is known whether the node's protocol has tunnels.
async fn settle(
    link: &Link,
    conn: &StreamState,
    stream: &mut impl RequestStream,
    limit: Duration,
) -> Result<(), Missed> {
    conn.begin_phase(limit);
    let settled = undisturbed(conn, stream, pin!(link.settled())).await?;
    settled.ok_or(Missed::Node(NodeError::ConnectTimeout))
}

/// Waits for `work` within the present phase. Returns `None` if that has taken too long.
async fn undisturbed<T>(
    conn: &StreamState,
    stream: &mut impl RequestStream,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Result<Option<T>, Missed> {
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Ok(Some(result))),
        Poll::Pending if conn.is_late() => Poll::Ready(Ok(None)),
        Poll::Pending => match stream.watch(cx) {
            Ok(()) => Poll::Pending,
            Err(lost) => Poll::Ready(Err(Missed::Client(lost))),
        },
    })
    .await
}

/// Returns whether a connect error is caused by this machine and says nothing about the node.
fn is_exhaustion(error: &io::Error) -> bool {
    /// Linux error numbers of `ENFILE`, `EMFILE`, `ENOMEM`, `EADDRNOTAVAIL` (no port left) and `ENOBUFS`.
    const ERRORS: [i32; 5] = [23, 24, 12, 99, 105];
    error.raw_os_error().is_some_and(|code| ERRORS.contains(&code))
}
