//! Task of one client connection: one request after the other, until the connection ends.
//!
//! All work of a connection happens in this one task: reading the client, the request being served, the connection to
//! the node and the response on its way back. Nothing is handed to another task and no other task is woken. A client
//! that speaks HTTP/2 is served by `http2` from its first bytes on.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead as _, ReadBuf};
use weirgate_http1::Limits;

use crate::client_conn::ClientConn;
use crate::client_stream::{ClientStream, Next};
use crate::io::Io;
use crate::socket::Socket;
use crate::stream_state::StreamState;
use crate::tunnel::Tunnel;
use crate::worker::ConnectionGuard;
use crate::{exchange, handshake, http2, proxy_protocol, reply};

/// How a connection ends, or what follows a request.
pub(crate) enum End {
    /// Another request may follow.
    Kept,
    /// All has been sent and received.
    Done,
    /// The last response has been sent. The client may still be sending.
    Linger,
    /// The client left, broke off or was too slow, or a response broke off. Nothing more is sent.
    Gone,
    /// The client speaks HTTP/2.
    Http2,
    /// Another protocol follows.
    Tunnel(Box<Tunnel>),
    /// A panic.
    Panicked,
}

/// Serves one connection to its end. While its client is silent, the connection has little more than its socket.
pub(crate) async fn drive(client: Rc<ClientConn>, mut io: Socket) {
    let guard = client.worker.guard(&client);
    let due = client.first_due();
    let first = poll_fn(|cx| match poll_first(&client, &mut io, cx) {
        Poll::Pending if client.now() < due && !client.closing.get() => {
            client.worker.timers.set(&client.alarm, due, cx.waker());
            Poll::Pending
        }
        Poll::Pending => Poll::Ready(BytesMut::new()),
        first => first,
    })
    .await;
    if io.is_lost() {
        client.worker.make_room();
        return;
    }
    Box::pin(begin(guard, client, io, first)).await;
}

/// Waits until the client has sent something, and takes it if the connection begins with a request. A header of the
/// PROXY protocol and a handshake stay in the socket.
fn poll_first(client: &ClientConn, io: &mut Socket, cx: &mut Context<'_>) -> Poll<BytesMut> {
    let (worker, listener) = (&client.worker, &client.listener);
    let is_headed = worker.active_config().site.expects_header(listener, client.peer.ip());
    if is_headed || worker.shared.tls.listeners.of(listener).is_some() {
        return io.poll_readable(cx).map(|_| BytesMut::new());
    }
    let mut scratch = worker.scratch.borrow_mut();
    let mut buffer = ReadBuf::new(&mut scratch);
    // The next read finds an end again. After an error it finds an end.
    let _ = ready!(Pin::new(io).poll_read(cx, &mut buffer));
    Poll::Ready(BytesMut::from(buffer.filled()))
}

/// Serves a connection whose client has sent something, of which `first` has been taken, or whose first byte is
/// overdue.
async fn begin(mut guard: ConnectionGuard, mut client: Rc<ClientConn>, mut io: Socket, first: BytesMut) {
    // A reload may have changed the listener since. What has been taken counts as it was sent.
    let begins = !first.is_empty();
    if !begins && client.worker.active_config().site.expects_header(&client.listener, client.peer.ip()) {
        // Boxed like a handshake.
        match Box::pin(identify(&mut guard, &client, &mut io)).await {
            Some(named) => client = named,
            None => return,
        }
    }
    let conn = StreamState::new(&client, Rc::clone(&client.alarm));
    let io = match client.worker.shared.tls.listeners.of(&client.listener).filter(|_| !begins) {
        None => Io::Plain(io),
        // Boxed, because a handshake needs more memory than the connection afterwards.
        Some(server) => match Box::pin(handshake::accept(&conn, io, server)).await {
            Some(io) => io,
            None => return,
        },
    };
    if io.has_agreed_on_http2() {
        return Box::pin(http2::serve(&client, io, Bytes::new())).await;
    }
    let limits = client.worker.active_config().site.limits;
    let heads = Limits { head_bytes: limits.head_bytes, fields: limits.headers };
    let mut stream = ClientStream::new(io, &conn, heads, first);
    let end = {
        let mut serving = pin!(serve(&conn, &mut stream));
        poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| conn.turn(serving.as_mut(), cx))) {
            Ok(Poll::Ready(end)) => Poll::Ready(end),
            Ok(Poll::Pending) => {
                conn.arm(cx.waker());
                Poll::Pending
            }
            Err(_) => Poll::Ready(End::Panicked),
        })
        .await
    };
    // Boxed like requests, so that a connection does not hold the memory that only its end needs.
    match end {
        End::Gone => {}
        End::Kept | End::Done if stream.closes_when_dropped() => {}
        end => Box::pin(conclude(end, &client, conn, stream)).await,
    }
}

/// Receives the header of the PROXY protocol. Returns the connection of the client that it names. Returns `None` if the
/// connection is to be closed, which is counted.
async fn identify(guard: &mut ConnectionGuard, client: &Rc<ClientConn>, io: &mut Socket) -> Option<Rc<ClientConn>> {
    let worker = &client.worker;
    let state = StreamState::new(client, Rc::clone(&client.alarm));
    let header = match proxy_protocol::receive(&state, io).await {
        Ok(header) => header,
        Err(failure) => {
            worker.shared.counters.header_failures.count(failure);
            return None;
        }
    };
    let Some(ends) = header.ends else { return Some(Rc::clone(client)) };
    let place = worker.place(ends.client.ip(), true)?;
    let named = client.continues(ends, place);
    if let Some(tls) = header.tls.filter(|_| worker.shared.tls.listeners.of(&client.listener).is_none()) {
        let _ = named.tls.set(Box::new(tls));
    }
    guard.replace(&named);
    Some(named)
}

/// Ends a connection.
async fn conclude(end: End, client: &Rc<ClientConn>, conn: Rc<StreamState>, mut stream: ClientStream) {
    match end {
        End::Gone => {}
        End::Kept | End::Done => stream.close().await,
        End::Linger => stream.linger().await,
        End::Http2 => {
            let (io, first) = stream.into_tunnel();
            http2::serve(client, io, first).await;
        }
        End::Tunnel(tunnel) => {
            let (io, first) = stream.into_tunnel();
            tunnel.run(Box::new(io), first, &conn).await;
        }
        End::Panicked => {
            conn.worker.shared.counters.panics.fetch_add(1, Ordering::Relaxed);
            // No state but the socket is trusted now.
            if !conn.answered.get() && stream.send_last(reply::PANICKED).await {
                stream.linger().await;
            }
        }
    }
}

async fn serve(conn: &Rc<StreamState>, stream: &mut ClientStream) -> End {
    loop {
        // The future of a request is boxed, so that an idle connection does not hold its memory.
        let end = match poll_fn(|cx| stream.poll_request(cx)).await {
            Next::Head(bytes) => {
                let request = stream.begin(bytes);
                Box::pin(exchange::serve(conn, stream, request)).await
            }
            Next::Refused(refusal) => {
                conn.begin();
                Box::pin(exchange::refuse(conn, stream, refusal)).await
            }
            Next::Http2 => End::Http2,
            Next::Idle => End::Done,
            Next::Gone => End::Gone,
        };
        match end {
            End::Kept => {}
            end => return end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    fn size_of_first<T: Future>(_: impl FnOnce(Rc<ClientConn>, Socket) -> T) -> usize {
        size_of::<T>()
    }

    fn size<T: Future>(_: impl FnOnce(ConnectionGuard, Rc<ClientConn>, Socket, BytesMut) -> T) -> usize {
        size_of::<T>()
    }

    /// The state of one silent connection of tens of thousands. Its place among those of its peer is part of it.
    #[test]
    fn the_state_of_a_silent_connection_is_small() {
        let bytes = size_of_first(drive) + size_of::<ClientConn>();
        assert!(bytes <= 400, "{bytes} bytes");
    }

    /// The state of one idle connection: about a kilobyte, without buffers.
    #[test]
    fn the_state_of_an_idle_connection_is_small() {
        let bytes = size_of_first(drive) + size_of::<ClientConn>() + size(begin) + size_of::<StreamState>();
        assert!(bytes <= 1248, "{bytes} bytes");
    }

    /// The largest size that the allocator serves from its lists of free memory of one size. A larger one takes ten
    /// times as long.
    #[test]
    fn the_state_of_a_request_is_small() {
        fn size<'a, T: Future>(_: impl FnOnce(&'a Rc<StreamState>, &'a mut ClientStream, Request) -> T) -> usize {
            size_of::<T>()
        }
        let bytes = size(exchange::serve);
        assert!(bytes <= 1024, "{bytes} bytes");
    }
}
