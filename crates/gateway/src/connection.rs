//! Task of one client connection: hyper, the socket, the buffer for a slow client, and deadlines.
//!
//! All work of a connection happens in this one task: hyper's server, the request being served, the
//! connection to the node and the response that is read ahead. Nothing is handed to another task and no other
//! task is woken. The code is generic over the transport. TLS can be added by wrapping the transport, and
//! HTTP/2 would be another caller of `exchange::serve`.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use weirgate_engine::Time;
use weirgate_http1::Limits;

use crate::checked_stream::{CheckedStream, Handle};
use crate::client_conn::ClientConn;
use crate::exchange;
use crate::refusal::Refusal;
use crate::reply;
use crate::worker::Worker;

/// Size of hyper's buffers beyond a head of the maximum size, in bytes.
const SLACK: usize = 4 * 1024;

/// Maximum time and number of bytes for which input is read and discarded after the last response. A client
/// that is still sending can then read the response and does not receive a reset (RFC 9112 Sec. 9.6).
const LINGER: (Duration, usize) = (Duration::from_secs(1), 512 * 1024);

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Ended regularly, possibly by becoming a tunnel.
    Done,
    /// The client left, broke off or was too slow. Nothing more is sent.
    Gone,
    /// A panic. With `silent`, the client has not yet received any response to its request.
    Panicked { silent: bool },
}

/// Serves one connection to its end.
pub(crate) async fn drive<T>(worker: Rc<Worker>, io: T, peer: SocketAddr, listener: SocketAddr, port: u16)
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let conn = ClientConn::new(&worker, peer, listener, port);
    let _guard = worker.guard(&conn);
    let limits = worker.active_config().site.limits;
    let heads = Limits { head_bytes: limits.head_bytes, fields: limits.headers };
    let checked_stream = Rc::new(RefCell::new(CheckedStream::new(io, &conn, heads)));
    let end = {
        let mut builder = http1::Builder::new();
        builder.header_read_timeout(None).half_close(false).max_buf_size(limits.head_bytes.max(8 * 1024) + SLACK);
        if limits.headers > 100 {
            // With up to 100 headers, hyper's default, its parser needs no allocation.
            builder.max_headers(limits.headers);
        }
        let service = service_fn(|request| exchange::serve(Rc::clone(&conn), request));
        let mut server = builder.serve_connection(Handle(Rc::clone(&checked_stream)), service);
        let mut told = false;
        poll_fn(|cx| {
            let hyper = |cx: &mut Context<'_>| {
                if conn.closing.get() && !std::mem::replace(&mut told, true) {
                    Pin::new(&mut server).graceful_shutdown();
                }
                Pin::new(&mut server).poll(cx)
            };
            turn(&conn, &checked_stream, hyper, cx)
        })
        .await
    };
    // hyper, the current request and its permit have been dropped. Only this function uses the transport now.
    drop(conn.finished.take());
    let Some(checked_stream) = Rc::into_inner(checked_stream) else { return };
    let mut checked_stream = checked_stream.into_inner();
    match end {
        End::Gone => {}
        End::Panicked { silent } => {
            worker.shared.counters.panics.fetch_add(1, Ordering::Relaxed);
            if silent
                && weirgate_clock::within(LINGER.0, checked_stream.io().write_all(reply::PANICKED)).await.is_some()
            {
                linger(checked_stream.io()).await;
            }
        }
        End::Done => {
            let tunnel = conn.tunnel.take();
            match tunnel {
                Some(tunnel) => {
                    let (io, first) = checked_stream.tunnel();
                    tunnel.run(io, first.freeze(), &conn).await;
                }
                None if checked_stream.ended() => {}
                None if checked_stream.expects_more() => linger(checked_stream.io()).await,
                // Nothing is being sent or received. Closing sends the remaining bytes and an orderly end.
                None => drop(weirgate_clock::within(LINGER.0, checked_stream.io().shutdown()).await),
            }
        }
    }
}

/// Runs one turn of the task: first `hyper`, then the work that hyper does not do.
fn turn<T, E>(
    conn: &Rc<ClientConn>,
    checked_stream: &RefCell<CheckedStream<T>>,
    mut hyper: impl FnMut(&mut Context<'_>) -> Poll<Result<(), E>>,
    cx: &mut Context<'_>,
) -> Poll<End>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut resumed = false;
    loop {
        let pump = conn.pump.borrow().clone();
        if let Some(pump) = pump {
            pump.borrow_mut().begin_turn();
        }
        match catch_unwind(AssertUnwindSafe(|| hyper(cx))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(Ok(()))) => return Poll::Ready(End::Done),
            Ok(Poll::Ready(Err(_))) => return Poll::Ready(End::Gone),
            Err(_) => return Poll::Ready(End::Panicked { silent: conn.calls.get() > 0 && !conn.answered.get() }),
        }
        let pump = conn.pump.borrow().clone();
        if let Some(pump) = pump {
            pump.borrow_mut().end_turn(cx);
        }
        let mut checked_stream = checked_stream.borrow_mut();
        if checked_stream.blocked_since().is_none() {
            drop(conn.finished.take());
        }
        if conn.declined.get() && !std::mem::replace(&mut resumed, true) {
            // Input was held back in case of a tunnel. It is HTTP after all, and an earlier read by hyper
            // returned nothing.
            continue;
        }
        if conn.busy.get() && conn.refused.get().is_none() {
            let more = checked_stream.read_ahead(cx);
            if checked_stream.ended() {
                return Poll::Ready(End::Gone);
            }
            if more {
                continue;
            }
        }
        let now = conn.now();
        let site = &conn.worker.active_config().site;
        let mut due = conn.phase.get().min(conn.total.get());
        if let Some(since) = checked_stream.blocked_since() {
            let stuck = since + conn.progress.get();
            if now >= stuck {
                return Poll::Ready(End::Gone);
            }
            due = due.min(stuck);
        }
        if !conn.busy.get() {
            match conn.head_since.get() {
                Some(since) => {
                    let late = since + site.timeouts.header;
                    if now >= late {
                        checked_stream
                            .refuse(Refusal::with(StatusCode::REQUEST_TIMEOUT, "the request head came too slowly"));
                        continue;
                    }
                    due = due.min(late);
                }
                None => {
                    // The first head is due from the acceptance on, so that a silent client does not stay for long.
                    let first = conn.calls.get() == 0;
                    let idle = if first { site.timeouts.idle.min(site.timeouts.header) } else { site.timeouts.idle };
                    let late = conn.idle_since.get() + idle;
                    if now >= late && conn.refused.get().is_none() {
                        return Poll::Ready(End::Done);
                    }
                    due = due.min(late);
                }
            }
        }
        if due == Time::NEVER {
            due = now + Duration::from_secs(60);
        }
        conn.worker.timers.set(&conn.alarm, due, cx.waker());
        return Poll::Pending;
    }
}

/// Closes the connection in such a way that the last response arrives.
async fn linger<T: AsyncRead + AsyncWrite + Unpin>(io: &mut T) {
    let drain = async {
        if io.shutdown().await.is_err() {
            return;
        }
        // On the heap, because on the stack it would dominate the size of every connection's task.
        let mut scratch = vec![0; 4096];
        let mut read = 0;
        while read < LINGER.1 {
            match io.read(&mut scratch).await {
                Ok(bytes) if bytes > 0 => read += bytes,
                _ => return,
            }
        }
    };
    let _ = weirgate_clock::within(LINGER.0, drain).await;
}
