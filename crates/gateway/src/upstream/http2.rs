//! Connections to nodes that speak HTTP/2: a stream that takes a request as HTTP/1.1 has it, and returns its response
//! in the same form.
//!
//! Sources: RFC 9113 Sec. 8 (messages), Sec. 6.8 and 8.7 (streams that were certainly not processed). The rest of the
//! gateway writes and reads HTTP/1.1, with chunks for bodies of unknown length. One converter at the socket's place
//! keeps that code free of a second protocol. A stream reads no further than the client takes, and its window opens by
//! the bytes that have been read. A request that asks for WebSocket is an extended CONNECT if the node takes them (RFC
//! 8441), and an ordinary request to another node. Departure: an interim response 101 is dropped, because HTTP/2 has
//! none.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use tokio::io::ReadBuf;
use tokio::sync::Mutex;

use weirgate_engine::Time;
use weirgate_http1::{Event, Head, Limits, Name, Requests, write};

use crate::active_config::{ActiveConfig, Endpoint};
use crate::http2::{TunnelStream, head};
use crate::io::Io;
use crate::websocket;

/// Window of a stream: as much as is read ahead of a client at once.
const WINDOW: u32 = 64 * 1024;

/// Window of a connection. It has room for the windows of 1,000 streams, more than nodes allow, so that a client that
/// does not read holds no other one.
const CONNECTION_WINDOW: u32 = 1000 * WINDOW;

/// Maximum size of the head of a response, as over HTTP/1.1.
const HEAD: u32 = super::link::KEPT as u32;

/// Maximum number of bytes that the library keeps of a stream's body.
const PIECE: usize = 64 * 1024;

/// Limits for the requests that are converted. The gateway has written them, so theirs are those of clients.
const LIMITS: Limits = Limits { head_bytes: usize::MAX, fields: usize::MAX };

/// The connections of one thread.
#[derive(Debug, Default)]
pub(super) struct Connections {
    nodes: RefCell<BTreeMap<u64, Vec<Connection>>>,
}

#[derive(Debug)]
struct Connection {
    send: SendRequest<Bytes>,
    state: Rc<State>,
}

/// State of a connection that its streams share.
#[derive(Debug)]
struct State {
    /// Number of open streams.
    open: Cell<usize>,
    /// Time at which a stream was opened last.
    used: Cell<Time>,
    /// Whether it has ended, or takes no further stream.
    ended: Cell<bool>,
    /// Scheme of its requests: `https` over TLS (RFC 9113 Sec. 8.3.1).
    scheme: &'static str,
    /// Whether the settings of the node have arrived, as far as is known.
    settled: Cell<bool>,
    /// Asks for them.
    pings: Mutex<Option<PingPong>>,
}

impl State {
    /// Waits until the settings of the node have arrived. They are the first frame that it sends, so they are there
    /// when it answers a ping.
    async fn settle(&self) {
        let mut pings = self.pings.lock().await;
        if let Some(pings) = pings.as_mut().filter(|_| !self.settled.get()) {
            // A ping may be on its way already, if the request that sent it has been given up.
            let _ = pings.send_ping(Ping::opaque());
            let _ = poll_fn(|cx| pings.poll_pong(cx)).await;
        }
        self.settled.set(true);
    }
}

/// Counts an open stream of a connection for its lifetime.
#[derive(Debug)]
pub(crate) struct OpenStream(Rc<State>);

impl OpenStream {
    fn new(state: &Rc<State>) -> OpenStream {
        state.open.set(state.open.get() + 1);
        OpenStream(Rc::clone(state))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get().saturating_sub(1));
    }
}

impl Connections {
    /// Returns a stream of a connection to `endpoint`, if one has room for it.
    pub(super) fn take(&self, endpoint: &Endpoint, now: Time) -> Option<Box<NodeStream>> {
        let mut nodes = self.nodes.borrow_mut();
        let connections = nodes.get_mut(&endpoint.id)?;
        connections.retain(|connection| !connection.state.ended.get());
        let with_room = |c: &&Connection| c.state.open.get() < c.send.current_max_send_streams();
        let connection = connections.iter().find(with_room)?;
        connection.state.used.set(now);
        Some(NodeStream::new(connection))
    }

    /// Begins a connection over `socket`. Returns its first stream.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) async fn begin(&self, endpoint: &Endpoint, socket: Io, now: Time) -> io::Result<Box<NodeStream>> {
        let scheme = if socket.is_tls() { "https" } else { "http" };
        let (send, mut driver) = Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEAD)
            .max_send_buffer_size(PIECE)
            .enable_push(false)
            .handshake(socket)
            .await
            .map_err(io::Error::other)?;
        let state = Rc::new(State {
            open: Cell::new(0),
            used: Cell::new(now),
            ended: Cell::new(false),
            scheme,
            settled: Cell::new(false),
            pings: Mutex::new(driver.ping_pong()),
        });
        let ended = Rc::clone(&state);
        tokio::task::spawn_local(async move {
            // Its streams report the error.
            let _ = driver.await;
            ended.ended.set(true);
        });
        let connection = Connection { send, state };
        let stream = NodeStream::new(&connection);
        self.nodes.borrow_mut().entry(endpoint.id).or_default().push(connection);
        Ok(stream)
    }

    /// Closes connections that have had no stream for too long, have ended, or lead to a removed node. Streams that are
    /// open keep theirs.
    pub(super) fn sweep(&self, active_config: &ActiveConfig, now: Time) {
        self.nodes.borrow_mut().retain(|id, connections| {
            let Some(endpoint) = active_config.endpoint_with(*id) else { return false };
            connections.retain(|Connection { state, .. }| {
                let is_used = state.open.get() > 0 || now.since(state.used.get()) < endpoint.settings.idle_timeout;
                is_used && !state.ended.get()
            });
            !connections.is_empty()
        });
    }

    /// Closes all connections without a stream.
    pub(super) fn clear(&self) {
        for connections in self.nodes.borrow_mut().values_mut() {
            connections.retain(|connection| connection.state.open.get() > 0);
        }
    }
}

/// One stream: bytes of a request in, bytes of its response out.
#[derive(Debug)]
pub(crate) struct NodeStream {
    send: SendRequest<Bytes>,
    open: OpenStream,
    requests: Requests,
    /// Bytes of the request that have not been examined.
    input: BytesMut,
    /// Bytes of the request's body that the node's window does not admit.
    unsent: BytesMut,
    /// The trailers of the request, once its end is known.
    end: Option<HeaderMap>,
    outgoing: Option<SendStream<Bytes>>,
    /// The `Sec-WebSocket-Accept` of an answer that opens a tunnel, if the request asks for one.
    tunnel: Option<String>,
    to_head: bool,
    response: Option<ResponseFuture>,
    incoming: Option<RecvStream>,
    /// Whether the response's body is written in chunks.
    chunked: bool,
    /// Bytes of the response that have not been read.
    output: BytesMut,
    /// Whether the whole response is in `output`.
    complete: bool,
    refused: bool,
}

impl NodeStream {
    fn new(connection: &Connection) -> Box<NodeStream> {
        Box::new(NodeStream {
            send: connection.send.clone(),
            open: OpenStream::new(&connection.state),
            requests: Requests::new(LIMITS),
            input: BytesMut::new(),
            unsent: BytesMut::new(),
            end: None,
            outgoing: None,
            tunnel: None,
            to_head: false,
            response: None,
            incoming: None,
            chunked: false,
            output: BytesMut::new(),
            complete: false,
            refused: false,
        })
    }

    /// Whether the node has certainly not processed the request (RFC 9113 Sec. 8.7).
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Waits until it is known whether the node takes an extended CONNECT (RFC 8441 Sec. 3).
    pub(super) fn settled(&self) -> impl Future<Output = ()> + use<> {
        let (known, state) = (self.send.is_extended_connect_protocol_enabled(), Rc::clone(&self.open.0));
        async move {
            if !known {
                state.settle().await;
            }
        }
    }

    /// Returns the stream as the node's side of a tunnel. `None` if the node has ended it.
    pub(super) fn into_tunnel(self) -> Option<TunnelStream> {
        Some(TunnelStream::new(self.incoming?, self.outgoing?, Some(self.open)))
    }

    /// Takes bytes of the request.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.push_or_stop(cx);
        if !self.unsent.is_empty() {
            return Poll::Pending;
        }
        self.input.extend_from_slice(bytes);
        self.convert()?;
        self.push_or_stop(cx);
        Poll::Ready(Ok(bytes.len()))
    }

    /// Sends as much of the body as the node's window admits. A node that answers early may read no further, so a
    /// failure only ends the sending.
    fn push_or_stop(&mut self, cx: &mut Context<'_>) {
        if self.push(cx).is_err() {
            self.outgoing = None;
        }
    }

    /// Converts the request as far as it has been written.
    fn convert(&mut self) -> io::Result<()> {
        loop {
            let event = self.requests.receive(&self.input).map_err(|fault| io::Error::other(fault.text()))?;
            match event {
                Event::More | Event::Hold => return Ok(()),
                Event::Skip(bytes) => self.input.advance(bytes),
                Event::Data { skip, data } => {
                    self.input.advance(skip);
                    self.unsent.extend_from_slice(&self.input.split_to(data));
                }
                Event::End(bytes) => {
                    self.input.advance(bytes);
                    self.end = Some(head::fields(self.requests.trailers())).filter(|_| self.tunnel.is_none());
                    return Ok(());
                }
                Event::Head(bytes) => {
                    let lines = self.input.split_to(bytes);
                    let fields = self.requests.take_head();
                    self.to_head = fields.method(&lines) == b"HEAD";
                    let tunnels = self.send.is_extended_connect_protocol_enabled();
                    let (request, tunnel) = request(&fields, &lines, self.open.0.scheme, tunnels)?;
                    self.tunnel = tunnel;
                    let ended = self.requests.length() == weirgate_http1::Length::Known(0) && self.tunnel.is_none();
                    let sent = self.send.send_request(request, ended);
                    // The connection takes no further stream.
                    let (response, outgoing) = sent.map_err(|error| {
                        self.open.0.ended.set(true);
                        io::Error::other(error)
                    })?;
                    self.response = Some(response);
                    self.outgoing = Some(outgoing).filter(|_| !ended);
                }
            }
        }
    }

    fn push(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(outgoing) = &mut self.outgoing else {
            // Bytes of a body that the node does not want.
            self.unsent.clear();
            return Ok(());
        };
        while !self.unsent.is_empty() {
            outgoing.reserve_capacity(self.unsent.len().min(PIECE));
            let capacity = match outgoing.capacity() {
                0 => match outgoing.poll_capacity(cx) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Some(Ok(_))) => continue,
                    Poll::Ready(Some(Err(error))) => return Err(io::Error::other(error)),
                    Poll::Ready(None) => return Err(io::ErrorKind::BrokenPipe.into()),
                },
                capacity => capacity,
            };
            let piece = self.unsent.split_to(capacity.min(self.unsent.len())).freeze();
            outgoing.send_data(piece, false).map_err(io::Error::other)?;
        }
        if let Some(trailers) = self.end.take() {
            let sent = match trailers.is_empty() {
                true => outgoing.send_data(Bytes::new(), true),
                false => outgoing.send_trailers(trailers),
            };
            sent.map_err(io::Error::other)?;
            self.outgoing = None;
        }
        Ok(())
    }

    /// Returns bytes of the response.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Nothing else continues what the node's window has stopped.
        self.push_or_stop(cx);
        while self.output.is_empty() && !self.complete {
            if let Err(error) = ready!(self.poll_receive(cx)) {
                let unprocessed = error.is_remote() && error.is_go_away();
                self.refused = unprocessed || error.reason() == Some(Reason::REFUSED_STREAM);
                return Poll::Ready(Err(io::Error::other(error)));
            }
        }
        let bytes = self.output.len().min(buffer.remaining());
        buffer.put_slice(&self.output.split_to(bytes));
        Poll::Ready(Ok(()))
    }

    /// Receives the next part of the response.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if let Some(incoming) = &mut self.incoming {
            match ready!(incoming.poll_data(cx)) {
                Some(piece) => {
                    let piece = piece?;
                    incoming.flow_control().release_capacity(piece.len())?;
                    self.append(&piece);
                }
                None => {
                    let trailers = ready!(incoming.poll_trailers(cx))?;
                    self.finish(trailers.as_ref());
                }
            }
            return Poll::Ready(Ok(()));
        }
        let Some(response) = &mut self.response else { return Poll::Pending };
        if let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
            let interim = interim?;
            if interim.status() != 101 {
                self.write_head(&interim);
                self.output.extend_from_slice(b"\r\n");
            }
            return Poll::Ready(Ok(()));
        }
        let (head, incoming) = ready!(Pin::new(response).poll(cx))?.into_parts();
        let mut head = Response::from_parts(head, ());
        if let Some(accept) = self.tunnel.take_if(|_| head.status().is_success()) {
            switch_protocols(&mut head, &accept);
            self.write_head(&head);
            self.output.extend_from_slice(b"\r\n");
            (self.response, self.incoming) = (None, Some(incoming));
            return Poll::Ready(Ok(()));
        }
        self.write_head(&head);
        let bodiless = self.to_head || matches!(head.status().as_u16(), 204 | 304);
        self.chunked = !bodiless && !head.headers().contains_key(CONTENT_LENGTH);
        if self.chunked {
            self.output.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        self.output.extend_from_slice(b"\r\n");
        self.response = None;
        if incoming.is_end_stream() {
            self.finish(None);
        }
        self.incoming = Some(incoming);
        Poll::Ready(Ok(()))
    }

    fn write_head(&mut self, head: &Response<()>) {
        let mut out = Vec::new();
        let status = head.status();
        write::status_line(&mut out, status.as_u16(), status.canonical_reason().unwrap_or_default().as_bytes());
        for (name, value) in head.headers() {
            write::field(&mut out, name.as_str().as_bytes(), value.as_bytes());
        }
        self.output.extend_from_slice(&out);
    }

    fn append(&mut self, piece: &[u8]) {
        if self.chunked && !piece.is_empty() {
            let mut size = Vec::new();
            write::chunk(&mut size, piece.len());
            self.output.extend_from_slice(&size);
            self.output.extend_from_slice(piece);
            self.output.extend_from_slice(write::CHUNK_END);
        } else {
            self.output.extend_from_slice(piece);
        }
    }

    fn finish(&mut self, trailers: Option<&HeaderMap>) {
        if self.chunked {
            let mut lines = Vec::new();
            for (name, value) in trailers.into_iter().flatten() {
                write::field(&mut lines, name.as_str().as_bytes(), value.as_bytes());
            }
            let mut end = Vec::new();
            write::last_chunk(&mut end, &lines);
            self.output.extend_from_slice(&end);
        }
        self.complete = true;
    }
}

/// Makes an answer that opens a tunnel a 101 of HTTP/1.1.
fn switch_protocols(head: &mut Response<()>, accept: &str) {
    *head.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = head.headers_mut();
    fields.remove(CONTENT_LENGTH);
    for (name, value) in [(CONNECTION, "upgrade"), (UPGRADE, websocket::PROTOCOL), (SEC_WEBSOCKET_ACCEPT, accept)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            fields.insert(name, value);
        }
    }
}

/// Returns the request with the head of `lines`, which the gateway has written for a node. One that asks for WebSocket
/// asks for a tunnel if the node has `tunnels`. Then its `Sec-WebSocket-Accept` is returned, too.
fn request(head: &Head, lines: &[u8], scheme: &str, tunnels: bool) -> io::Result<(Request<()>, Option<String>)> {
    let host = head.get(lines, Name::Host).unwrap_or_default();
    let target = head.target(lines);
    let with = |authority: Option<&[u8]>| {
        let uri = Uri::builder().path_and_query(target);
        match authority {
            Some(authority) => uri.scheme(scheme).authority(authority).build(),
            None => uri.build(),
        }
    };
    let method = Method::from_bytes(head.method(lines)).map_err(io::Error::other)?;
    // A name that is no authority for the library passes as `Host`.
    let uri = with(Some(host)).or_else(|_| with(None)).map_err(io::Error::other)?;
    let has_authority = uri.authority().is_some();
    let mut request =
        Request::builder().method(method).uri(uri).version(Version::HTTP_2).body(()).map_err(io::Error::other)?;
    let first = lines.iter().position(|&b| b == b'\n').map_or(lines.len(), |at| at + 1);
    let mut fields = head::fields(lines.get(first..).unwrap_or_default());
    let upgrade = fields
        .remove(UPGRADE)
        .filter(|protocol| protocol.as_bytes().eq_ignore_ascii_case(websocket::PROTOCOL.as_bytes()));
    for name in [CONNECTION, TRANSFER_ENCODING] {
        fields.remove(name);
    }
    if has_authority {
        fields.remove(HOST);
    }
    if fields.get(TE).is_some_and(|te| te != "trailers") {
        fields.remove(TE);
    }
    let mut accept = None;
    if upgrade.is_some()
        && tunnels
        && has_authority
        && let Some(key) = fields.remove(SEC_WEBSOCKET_KEY)
    {
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(Protocol::from_static(websocket::PROTOCOL));
        accept = Some(websocket::accept(key.as_bytes()));
    }
    *request.headers_mut() = fields;
    Ok((request, accept))
}
