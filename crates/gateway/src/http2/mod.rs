//! A client connection that speaks HTTP/2: a stream for each request, each in a task of its own.
//!
//! Source: RFC 9113. The library `h2` reads and writes frames, compresses heads and keeps the windows. This module
//! accepts streams, bounds their number, and ends the connection: when it is idle, when it is to be closed (with a
//! GOAWAY that lets requests on their way through), when a client takes nothing or sends a head too slowly, and when it
//! floods (with ENHANCE_YOUR_CALM). A stream passes the same stages as a request over HTTP/1.1.
//!
//! Clients begin with the preface, without a negotiation (Sec. 3.3), or agree on `h2` in the handshake of TLS. A
//! stream may become a tunnel (RFC 8441).
//! Departures: there is no upgrade from HTTP/1.1 (deprecated by RFC 9113), and nothing is pushed.

mod frames;
pub(crate) mod head;
mod stream;
mod transport;
mod tunnel_stream;

pub(crate) use tunnel_stream::TunnelStream;

use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::request::Parts;
use tokio::io::{AsyncRead, AsyncWrite};
use weirgate_config::Site;
use weirgate_engine::Time;
use weirgate_http1::{Limits, Requests};

use crate::client_conn::ClientConn;
use crate::connection::End;
use crate::received_body::AHEAD;
use crate::request_stream::RequestStream as _;
use crate::stream_state::StreamState;
use crate::timer::Alarm;
use crate::{client_stream, exchange, reply};
use stream::{Http2Stream, PIECE};
use transport::{Passing, Transport};

/// First bytes of a connection (RFC 9113 Sec. 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Time that a client without requests has to answer a GOAWAY, and that the last frames have to leave.
const PATIENCE: Duration = Duration::from_secs(1);

/// Size of a field in SETTINGS_MAX_HEADER_LIST_SIZE, in addition to its name and value (RFC 9113 Sec. 6.5.2).
const FIELD_OVERHEAD: usize = 32;

type Incoming = (http::Request<RecvStream>, SendResponse<Bytes>);

/// State of serving a connection.
struct Serving<T> {
    conn: Rc<ClientConn>,
    connection: Connection<Transport<T>, Bytes>,
    passing: Rc<Passing>,
    /// Maximum number of streams, including those with a task that has yet to end.
    streams: u32,
    heads: Limits,
    /// Time at which a GOAWAY was sent.
    closing: Option<Time>,
    /// Whether the client has to leave at once.
    calmed: bool,
}

/// Serves a connection to its end. `first` has the bytes that have been read, from the first one on.
pub(crate) async fn serve<T>(conn: &Rc<ClientConn>, io: T, first: Bytes)
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    conn.http2.set(true);
    conn.worker.shared.counters.http2_connections.fetch_add(1, Ordering::Relaxed);
    let active_config = conn.worker.active_config();
    let site = &active_config.site;
    let io = Rc::new(RefCell::new(io));
    let passing = Passing::new(conn, site.limits.http2_overhead_frames);
    let transport = Transport::new(&io, first, &passing);
    if let Some(connection) = handshake(conn, &passing, builder(site).handshake(transport)).await {
        converse(conn, connection, passing, site).await;
    }
    if let Ok(io) = Rc::try_unwrap(io) {
        client_stream::linger(&conn.worker.timers, io.into_inner()).await;
    }
}

/// Waits for the preface and exchanges settings. Returns `None` if the client breaks off or is too slow.
async fn handshake<T>(
    conn: &Rc<ClientConn>,
    passing: &Passing,
    handshake: Handshake<Transport<T>, Bytes>,
) -> Option<Connection<Transport<T>, Bytes>>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let due = conn.idle_since.get() + conn.worker.active_config().site.timeouts.header;
    let mut handshake = pin!(handshake);
    let connection = poll_fn(|cx| {
        passing.begin_turn();
        match handshake.as_mut().poll(cx) {
            Poll::Ready(connection) => Poll::Ready(connection.ok()),
            Poll::Pending if conn.now() >= due || conn.closing.get() => Poll::Ready(None),
            Poll::Pending => {
                conn.worker.timers.set(&conn.alarm, due, cx.waker());
                Poll::Pending
            }
        }
    });
    connection.await
}

/// Serves the streams of a connection to its end.
async fn converse<T>(
    conn: &Rc<ClientConn>,
    connection: Connection<Transport<T>, Bytes>,
    passing: Rc<Passing>,
    site: &Site,
) where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let heads = Limits { head_bytes: site.limits.head_bytes, fields: site.limits.headers };
    let mut serving = Serving {
        conn: Rc::clone(conn),
        connection,
        passing,
        streams: site.limits.http2_streams,
        heads,
        closing: None,
        calmed: false,
    };
    poll_fn(|cx| serving.poll(cx)).await;
    // The streams that are still served learn from it that the client is gone.
    drop(serving);
    poll_fn(|cx| {
        conn.worker.timers.set(&conn.alarm, Time::NEVER, cx.waker());
        if conn.busy.get() == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn builder(site: &Site) -> Builder {
    let limits = &site.limits;
    let streams = limits.http2_streams;
    let window = AHEAD as u32;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(streams)
        .initial_window_size(window)
        // No stream can use up the window of others.
        .initial_connection_window_size(window.saturating_mul(streams).min((1 << 31) - 1))
        .max_send_buffer_size(PIECE)
        // Heads that exceed the policy's limits are to be answered and logged like those of HTTP/1.1.
        .max_header_list_size((2 * (limits.head_bytes + limits.headers * FIELD_OVERHEAD)) as u32)
        // Streams that end before they are accepted are as many as streams. The budget for frames bounds their rate.
        .max_pending_accept_reset_streams(streams as usize)
        .max_local_error_reset_streams(None)
        .enable_connect_protocol();
    builder
}

impl<T: AsyncRead + AsyncWrite + Unpin> Serving<T> {
    /// Drives the connection. Ready at its end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.passing.begin_turn();
        let now = self.conn.now();
        if !self.calmed && (self.passing.is_flooded() || self.is_head_late(now)) {
            self.calm(now);
        }
        if self.conn.closing.get() && self.closing.is_none() {
            self.close(now);
        }
        while !self.calmed && self.conn.busy.get() < self.streams {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok(incoming))) => self.begin(incoming),
                Poll::Ready(Some(Err(error))) => {
                    self.failed(&error);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        // At the limit, and after the last frame, nothing is accepted, but frames move.
        if (self.calmed || self.conn.busy.get() >= self.streams)
            && let Poll::Ready(closed) = self.connection.poll_closed(cx)
        {
            if let Err(error) = closed {
                self.failed(&error);
            }
            return Poll::Ready(());
        }
        if self.passing.is_flooded() && !self.calmed {
            cx.waker().wake_by_ref();
        }
        let due = self.due();
        if now >= due {
            if self.closing.is_some() || self.is_stuck(now) {
                return Poll::Ready(());
            }
            self.close(now);
            cx.waker().wake_by_ref();
        }
        self.conn.worker.timers.set(&self.conn.alarm, due, cx.waker());
        Poll::Pending
    }

    /// Returns the time at which the connection has to be looked at.
    fn due(&self) -> Time {
        let timeouts = &self.conn.worker.active_config().site.timeouts;
        let idle = match (self.closing, self.conn.busy.get()) {
            (Some(since), _) if self.calmed => since + PATIENCE,
            (Some(since), 0) => self.conn.idle_since.get().max(since) + PATIENCE,
            (None, 0) => self.conn.idle_since.get() + timeouts.idle,
            _ => Time::NEVER,
        };
        let head = self.conn.head_since.get().map_or(Time::NEVER, |since| since + timeouts.header);
        let stuck = self.passing.stuck_since().map_or(Time::NEVER, |since| since + timeouts.idle);
        idle.min(head).min(stuck)
    }

    fn is_stuck(&self, now: Time) -> bool {
        let idle = self.conn.worker.active_config().site.timeouts.idle;
        self.passing.stuck_since().is_some_and(|since| now >= since + idle)
    }

    fn is_head_late(&self, now: Time) -> bool {
        let header = self.conn.worker.active_config().site.timeouts.header;
        self.conn.head_since.get().is_some_and(|since| now >= since + header)
    }

    /// Ends the connection at once.
    fn calm(&mut self, now: Time) {
        self.conn.worker.shared.counters.http2_floods.fetch_add(1, Ordering::Relaxed);
        self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        (self.closing, self.calmed) = (Some(now), true);
    }

    /// Ends the connection after its streams.
    fn close(&mut self, now: Time) {
        self.connection.graceful_shutdown();
        self.closing = Some(now);
    }

    /// Counts a connection that the library has ended because of a flood.
    fn failed(&self, error: &h2::Error) {
        if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
            self.conn.worker.shared.counters.http2_floods.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins a stream.
    fn begin(&self, (request, respond): Incoming) {
        let state = StreamState::new(&self.conn, Alarm::new());
        state.begin();
        self.conn.worker.shared.counters.http2_requests.fetch_add(1, Ordering::Relaxed);
        let (parts, incoming) = request.into_parts();
        let stream = Http2Stream::new(&state, Requests::new(self.heads), incoming, respond);
        // A stream limits its turns itself, in bytes. The runtime's own limit counts calls.
        tokio::task::spawn_local(tokio::task::unconstrained(drive(Rc::clone(&self.conn), state, stream, parts)));
    }
}

/// Serves one stream.
async fn drive(conn: Rc<ClientConn>, state: Rc<StreamState>, mut stream: Http2Stream, parts: Parts) {
    let end = {
        let mut serving = pin!(async {
            match stream.read_head(&parts) {
                Ok(request) => exchange::serve(&state, &mut stream, request).await,
                Err(refusal) => exchange::refuse(&state, &mut stream, refusal).await,
            }
        });
        poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| state.turn(serving.as_mut(), cx))) {
            Ok(Poll::Ready(end)) => Poll::Ready(end),
            Ok(Poll::Pending) => {
                state.arm(cx.waker());
                Poll::Pending
            }
            Err(_) => Poll::Ready(End::Panicked),
        })
        .await
    };
    match end {
        End::Tunnel(tunnel) => {
            if let Some(client) = stream.into_tunnel() {
                // Boxed, because every stream would have its memory.
                Box::pin(tunnel.run(Box::new(client), Bytes::new(), &state)).await;
            }
        }
        End::Panicked => {
            state.worker.shared.counters.panics.fetch_add(1, Ordering::Relaxed);
            if !state.answered.get() {
                poll_fn(|cx| {
                    let head = reply::PANICKED.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
                    stream.begin_message(head);
                    stream.end_message(b"", true);
                    stream.send(cx, reply::PANICKED, b"");
                    Poll::Ready(())
                })
                .await;
            }
            stream.abort();
        }
        End::Kept | End::Done | End::Linger | End::Gone | End::Http2 => stream.abort(),
    }
    // The connection may accept another stream, or end.
    conn.alarm.wake();
}
