//! Stage *forward*, between two sockets: one request to a node and its response to the client.
//!
//! Both directions run in the connection's task, and a response that has arrived is read, edited and sent on in one
//! turn. The node's last byte frees the slot, however slowly the client reads: the response is read ahead, up to a
//! limit per request and one for the whole process. When a limit is reached, the node has to wait, and its timeouts are
//! suspended. A response that stalls in this way gives its slot back: the node does nothing for it but keep a
//! connection open. The number of such responses per node is limited. A client may read the rest fast after all, which
//! is work that the window does not see, and some servers have few connections. In a class with `long_responses` a
//! response also gives its slot back if it goes on for longer than the policy says.
//!
//! The head of a response is sent when no more of the response has arrived, or a good part of it. A response that
//! breaks off before can be replaced by that of another node.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use weirgate_config::LongResponses;
use weirgate_engine::{Outcome, Time};
use weirgate_http1::{Event, write};

use crate::exchange::{Exchange, Served, Stop};
use crate::forward::Missed;
use crate::hops::{self, Frame, Stamp, Way};
use crate::places::Place;
use crate::record::{Ending, Protocol};
use crate::reply::NodeError;
use crate::request_stream::{Lost, RequestStream};
use crate::stream_state::StreamState;
use crate::tunnel::Side;
use crate::upstream::{Broken, Inbox, Link, Sending};

/// Maximum number of bytes read after a head before the head is sent on.
const BURST: usize = 64 * 1024;

/// Maximum number of heads that are examined in one turn. Nodes send one or two interim responses. A node that sends
/// them without end would fill a read of 64 KiB with a thousand, and each is sent on by a system call of its own.
const HEADS: u32 = 8;

/// Maximum number of pieces that are passed on in one turn: about a megabyte. So a fast node with a fast client leaves
/// turns for the other connections of the thread.
const TURN: u32 = 16;

/// Maximum size of a piece that is copied, to be sent together with others. Describing two pieces to the kernel costs
/// more than copying a few bytes.
const SMALL: usize = 4 * 1024;

/// Time for which a response may stall before it gives its slot back. A client that takes a burst of 64 KiB within
/// it reads more than half a megabit per second, so the node may have work to do for it at any time.
const STALLED: Duration = Duration::from_secs(1);

/// Time after which a long response of a class with too many of them asks again for a place. A second more or less of a
/// held slot does not matter to a response that has held one for seconds.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A request at a node.
pub(crate) struct Transfer {
    conn: Rc<StreamState>,
    /// `None` after the response has ended.
    link: Option<Box<Link>>,
    /// State of sending at the last turn. `None` before the first.
    sending: Option<Sending>,
    /// Status of the response.
    status: u16,
    /// Frame of the response's body. `None` before its head.
    frame: Option<Frame>,
    /// Whether the response's head keeps the client's connection.
    kept: bool,
    ended: Option<Result<(), NodeError>>,
    /// Number of unsent bytes that are counted in the budget of the process.
    counted: usize,
    /// Time since which the budget has been used up, and the total limit of the request at that time.
    stalled: Option<(Time, Time)>,
    /// The place among the node's stalled responses, after the slot was given back and before the last byte.
    place: Option<Place>,
}

/// The node's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The head of a response has been sent, with as much of its body as was there.
    Response,
    /// The node changes the protocol, and the client has been told.
    Upgraded,
}

impl Transfer {
    pub(crate) fn new(mut link: Box<Link>, exchange: &Exchange, stream: &mut impl RequestStream) -> Transfer {
        link.begin(exchange.request.method().map_or("", http::Method::as_str), exchange.conn.now());
        stream.body().rewind();
        Transfer {
            conn: Rc::clone(&exchange.conn),
            link: Some(link),
            sending: None,
            status: 0,
            frame: None,
            kept: false,
            ended: None,
            counted: 0,
            stalled: None,
            place: None,
        }
    }

    /// Number of bytes received on the connection, or `None` after the response has ended.
    pub(crate) fn received(&self) -> Option<u64> {
        self.link.as_ref().map(|link| link.received())
    }

    /// Takes the transport after a change of protocol, with the bytes received after the head.
    pub(crate) fn into_transport(mut self) -> Option<(Side, Bytes)> {
        self.link.take().and_then(Link::into_transport)
    }

    /// Sends the request and waits for the head of the response, which is then sent to the client.
    pub(crate) fn poll_answer(
        &mut self,
        exchange: &mut Exchange,
        stream: &mut impl RequestStream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Answer, Missed>> {
        self.send(exchange, stream, cx)?;
        let worker = Rc::clone(&self.conn.worker);
        let (mut inbox, mut out) = (worker.inbox.borrow_mut(), worker.out.borrow_mut());
        if let Some(link) = &mut self.link {
            link.begin_turn(&mut inbox);
        }
        let answer = self.poll_head(exchange, stream, (&mut inbox, &mut out), cx);
        if let Some(link) = &mut self.link {
            link.end_turn(&mut inbox);
        }
        if let Poll::Ready(Ok(_)) = answer {
            stream.send(cx, &out, b"");
        }
        out.clear();
        answer
    }

    /// Sends the request as far as possible, and reads on from the client.
    fn send(
        &mut self,
        exchange: &Exchange,
        stream: &mut impl RequestStream,
        cx: &mut Context<'_>,
    ) -> Result<(), Missed> {
        stream.watch(cx).map_err(Missed::Client)?;
        let Some(link) = &mut self.link else { return Ok(()) };
        if self.sending == Some(Sending::Done) {
            return Ok(());
        }
        let worker = &self.conn.worker;
        let mut out = worker.out.borrow_mut();
        if self.sending.is_none()
            && let (Some(endpoint), Some(trace)) = (&exchange.endpoint, exchange.trace)
        {
            let (request, protocol) = (&exchange.request, exchange.protocol());
            let (peer, trusted) = (self.conn.address_text(), exchange.origin.listed);
            let (forward, scheme) = (exchange.active_config.site.forward, self.conn.scheme());
            let (address, edits) = (endpoint.authority(), exchange.request_edits());
            let hidden_cookie = exchange.hidden_cookie();
            hops::to_node(
                &mut out,
                &Way { request, protocol, peer, scheme, trusted, trace, forward, hidden_cookie, address, edits },
            );
        }
        for turn in 0.. {
            let before = stream.body().len();
            let sending = link.send(&mut out, stream.upload(), cx);
            let moved = stream.body().len() != before;
            if self.frame.is_none() && (moved || self.sending != Some(sending)) {
                // While the client has to send, its own deadlines count and not the node's.
                match sending {
                    Sending::Done => self.conn.begin_phase(exchange.timeouts().first_byte),
                    Sending::Node => self.conn.begin_phase(self.conn.progress.get()),
                    Sending::Client => self.conn.phase.set(Time::NEVER),
                    Sending::Unsent => return Err(Missed::Unsent),
                }
            }
            self.sending = Some(sending);
            if !moved || sending == Sending::Done {
                break;
            }
            if turn == TURN {
                cx.waker().wake_by_ref();
                break;
            }
            // There is room for more.
            stream.watch(cx).map_err(Missed::Client)?;
        }
        Ok(())
    }

    fn poll_head(
        &mut self,
        exchange: &mut Exchange,
        stream: &mut impl RequestStream,
        (inbox, out): (&mut Inbox, &mut Vec<u8>),
        cx: &mut Context<'_>,
    ) -> Poll<Result<Answer, Missed>> {
        let missed = |error| Poll::Ready(Err(Missed::Node(error)));
        // A 100 or an interim response may be unsent. The client's departure is noticed when it is watched.
        let _ = stream.poll_flush(cx);
        for heads in 0.. {
            let Some(link) = &mut self.link else { return missed(NodeError::Terminated) };
            let event = if heads < HEADS {
                link.poll_event(inbox, cx)
            } else {
                cx.waker().wake_by_ref();
                Poll::Pending
            };
            let bytes = match event {
                Poll::Pending if self.conn.is_late() => return missed(NodeError::ResponseTimeout),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Event::Head(bytes))) => bytes,
                Poll::Ready(Err(Broken::Refused)) => return Poll::Ready(Err(Missed::Refused)),
                Poll::Ready(Err(Broken::Malformed)) => return missed(NodeError::Protocol),
                Poll::Ready(Ok(_) | Err(Broken::Closed)) => return missed(NodeError::Terminated),
            };
            let head = (link.head(), inbox.rest());
            let protocol = exchange.protocol();
            let via = exchange.active_config.site.forward.via;
            let edits = exchange.response_edits();
            match head.0.status() {
                101 if !exchange.is_answered_by(head) => return missed(NodeError::Upgrade),
                101 => {
                    hops::interim(out, head, via, &edits);
                    stream.begin_message(out.len());
                    inbox.take(bytes);
                    return Poll::Ready(Ok(Answer::Upgraded));
                }
                status @ 100..=199 => {
                    // The gateway has answered an expectation itself. An old client knows no interim responses
                    // (RFC 9110 Sec. 15.2), and one that does not read gets no further ones.
                    if status != 100 && protocol != Protocol::Http10 && stream.unsent() == 0 {
                        hops::interim(out, head, via, &edits);
                        stream.begin_message(out.len());
                        stream.send(cx, out, b"");
                        out.clear();
                    }
                    inbox.take(bytes);
                }
                // The client would take it for the start of a tunnel (RFC 8441 Sec. 4).
                status @ 200..=299 if protocol == Protocol::Http2 && exchange.request.upgrade().is_some() => {
                    return Poll::Ready(Err(Missed::Declined(status)));
                }
                status => {
                    let frame = Frame::of(link.length(), protocol);
                    let mut connection = exchange.connection(stream);
                    connection.kept &= frame != Frame::UntilClose;
                    let date = self.conn.worker.date.borrow();
                    hops::to_client(
                        out,
                        head,
                        frame,
                        connection,
                        &Stamp { date: date.as_bytes(), via, reception: exchange.reception(), edits },
                    );
                    drop(date);
                    link.answered(self.conn.now(), status);
                    stream.begin_message(out.len());
                    inbox.take(bytes);
                    (self.status, self.frame, self.kept) = (status, Some(frame), connection.kept);
                    if let Err(error) = self.burst(exchange, stream, (inbox, out), cx) {
                        return missed(error);
                    }
                    exchange.answered(status);
                    if let Some(long) = long_responses(exchange) {
                        self.conn.slot_due.set(self.conn.now() + long.after);
                    }
                    return Poll::Ready(Ok(Answer::Response));
                }
            }
        }
        Poll::Pending
    }

    /// Appends the part of the body that has arrived to `out`.
    fn burst(
        &mut self,
        exchange: &mut Exchange,
        stream: &mut impl RequestStream,
        (inbox, out): (&mut Inbox, &mut Vec<u8>),
        cx: &mut Context<'_>,
    ) -> Result<(), NodeError> {
        self.conn.begin_phase(self.conn.progress.get());
        exchange.bytes_out = 0;
        while out.len() < BURST {
            let Some(link) = &mut self.link else { break };
            match link.poll_event(inbox, cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(Event::Data { skip, data })) => {
                    inbox.take(skip);
                    let piece = inbox.take(data);
                    exchange.bytes_out += data as u64;
                    self.append(out, inbox.get(piece));
                }
                Poll::Ready(Ok(Event::End(bytes))) => {
                    inbox.take(bytes);
                    self.finish(exchange, stream, (inbox, out));
                }
                Poll::Ready(Ok(_) | Err(_)) => return Err(NodeError::Incomplete),
            }
        }
        Ok(())
    }

    /// Passes the rest of the response on.
    pub(crate) fn poll_rest(
        &mut self,
        exchange: &mut Exchange,
        stream: &mut impl RequestStream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Served, Stop>> {
        for _ in 0..TURN {
            let flushed = match stream.poll_flush(cx) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(lost)) => return Poll::Ready(Err(lost.into())),
                Poll::Pending => false,
            };
            self.count(stream.unsent());
            if self.conn.slot_due.get() <= self.conn.now() {
                self.give_back(exchange);
            }
            match self.ended {
                Some(Ok(())) if flushed => return Poll::Ready(Ok(Served::Response { kept: self.kept })),
                Some(Err(_)) => return Poll::Ready(Ok(Served::BrokenOff)),
                _ => {}
            }
            match self.send(exchange, stream, cx) {
                Ok(()) => {}
                Err(Missed::Client(Lost::Refused(refusal))) => {
                    exchange.ending = Ending::Refused(refusal.text());
                    return Poll::Ready(Ok(Served::BrokenOff));
                }
                Err(_) => return Poll::Ready(Err(Stop::Gone)),
            }
            if self.ended.is_some() {
                return Poll::Pending;
            }
            if !flushed && !self.has_room(exchange, stream) {
                self.stall(exchange);
                return Poll::Pending;
            }
            self.resume();
            if self.pass(exchange, stream, cx).is_pending() {
                if !self.conn.is_late() {
                    return Poll::Pending;
                }
                self.break_off(exchange, NodeError::ResponseTimeout);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes on the bytes that have arrived. Ready when there were any.
    fn pass(&mut self, exchange: &mut Exchange, stream: &mut impl RequestStream, cx: &mut Context<'_>) -> Poll<()> {
        let worker = Rc::clone(&self.conn.worker);
        let (mut inbox, mut out) = (worker.inbox.borrow_mut(), worker.out.borrow_mut());
        if let Some(link) = &mut self.link {
            link.begin_turn(&mut inbox);
        }
        let passed = self.poll_piece(exchange, stream, (&mut inbox, &mut out), cx);
        if let Some(link) = &mut self.link {
            link.end_turn(&mut inbox);
        }
        if out.is_empty() {
            return passed;
        }
        stream.send(cx, &out, b"");
        out.clear();
        Poll::Ready(())
    }

    /// Takes small pieces together, and sends a larger one from the place where it is. Ready after that, or when the
    /// response has ended.
    fn poll_piece(
        &mut self,
        exchange: &mut Exchange,
        stream: &mut impl RequestStream,
        (inbox, out): (&mut Inbox, &mut Vec<u8>),
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        while out.len() < BURST {
            let Some(link) = &mut self.link else { break };
            match ready!(link.poll_event(inbox, cx)) {
                Ok(Event::Data { skip, data }) => {
                    self.conn.begin_phase(self.conn.progress.get());
                    exchange.bytes_out += data as u64;
                    inbox.take(skip);
                    let piece = inbox.take(data);
                    let copied = self.frame != Some(Frame::Plain) || data <= SMALL;
                    let ended = link.look_ahead(inbox);
                    if copied {
                        self.append(out, inbox.get(piece.clone()));
                    }
                    if ended {
                        self.finish(exchange, stream, (inbox, out));
                    }
                    if !copied {
                        stream.send(cx, out, inbox.get(piece));
                        out.clear();
                        break;
                    }
                }
                Ok(Event::End(bytes)) => {
                    inbox.take(bytes);
                    self.finish(exchange, stream, (inbox, out));
                }
                Ok(_) | Err(_) => self.break_off(exchange, NodeError::Incomplete),
            }
        }
        Poll::Ready(())
    }

    /// Appends a piece of the body.
    fn append(&self, out: &mut Vec<u8>, piece: &[u8]) {
        if self.frame == Some(Frame::Chunked) {
            write::chunk(out, piece.len());
            out.extend_from_slice(piece);
            out.extend_from_slice(write::CHUNK_END);
        } else {
            out.extend_from_slice(piece);
        }
    }

    /// Ends the response: its last byte has arrived.
    fn finish(
        &mut self,
        exchange: &mut Exchange,
        stream: &mut impl RequestStream,
        (inbox, out): (&mut Inbox, &mut Vec<u8>),
    ) {
        if let (Some(mut link), Some(endpoint)) = (self.link.take(), &exchange.endpoint) {
            if self.frame == Some(Frame::Chunked) {
                write::last_chunk(out, link.trailers());
            }
            stream.end_message(link.trailers(), self.kept);
            link.end_turn(inbox);
            self.conn.pools(endpoint).put(endpoint, link, self.conn.now());
        }
        exchange.finish(Outcome::LastByte { status: self.status });
        self.end(Ok(()));
    }

    fn break_off(&mut self, exchange: &mut Exchange, error: NodeError) {
        self.link = None;
        exchange.break_off(error);
        self.end(Err(error));
    }

    fn end(&mut self, result: Result<(), NodeError>) {
        self.ended = Some(result);
        self.place = None;
    }

    fn has_room(&self, exchange: &Exchange, stream: &impl RequestStream) -> bool {
        let shared = &self.conn.worker.shared;
        let all = shared.counters.buffered_bytes.load(Ordering::Relaxed);
        stream.unsent() < exchange.active_config.site.limits.buffer_per_request && all < shared.memory.buffer()
    }

    /// Suspends the node's timeouts while the client is slow, and gives the slot back if it stays slow.
    fn stall(&mut self, exchange: &mut Exchange) {
        let now = self.conn.now();
        let (since, _) = *self.stalled.get_or_insert((now, self.conn.total.get()));
        self.conn.end_phases();
        let (Some(_), Some(endpoint)) = (&exchange.permit, &exchange.endpoint) else { return };
        if now.since(since) < STALLED {
            self.conn.phase.set(since + STALLED);
            return;
        }
        let max = Some(endpoint.settings.stalled_responses);
        self.place = self.conn.worker.shared.stalled.enter(endpoint.id, max);
        match self.place {
            Some(_) => exchange.finish(Outcome::LastByte { status: self.status }),
            // There may be a place later.
            None => self.conn.phase.set(now + STALLED),
        }
    }

    /// Gives the slot of a long response back, if its class has a place for one more. The node's timeouts go on.
    #[cold]
    fn give_back(&mut self, exchange: &mut Exchange) {
        self.conn.slot_due.set(Time::NEVER);
        let (Some(_), Some(long)) = (&exchange.permit, long_responses(exchange)) else { return };
        let shared = &self.conn.worker.shared;
        let class = exchange.class_name().unwrap_or("-");
        exchange.place = shared.long_responses.enter(None, class, Some(long.max));
        if exchange.place.is_none() {
            shared.counters.long_responses_refused.fetch_add(1, Ordering::Relaxed);
            self.conn.slot_due.set(self.conn.now() + ASK_AGAIN);
            return;
        }
        shared.counters.long_responses.fetch_add(1, Ordering::Relaxed);
        let (phase, total) = (self.conn.phase.get(), self.conn.total.get());
        exchange.finish(Outcome::LastByte { status: self.status });
        self.conn.phase.set(phase);
        self.conn.total.set(total);
    }

    fn resume(&mut self) {
        if let Some((since, total)) = self.stalled.take() {
            self.conn.total.set(total + self.conn.now().since(since));
            self.conn.begin_phase(self.conn.progress.get());
        }
    }

    /// Updates the budget of the process to the present number of unsent bytes.
    fn count(&mut self, unsent: usize) {
        let buffered = &self.conn.worker.shared.counters.buffered_bytes;
        if unsent > self.counted {
            buffered.fetch_add((unsent - self.counted) as u64, Ordering::Relaxed);
        } else if unsent < self.counted {
            buffered.fetch_sub((self.counted - unsent) as u64, Ordering::Relaxed);
        }
        self.counted = unsent;
    }
}

/// Returns when the responses of the request's class give their slot back before their last byte, if they do.
fn long_responses(exchange: &Exchange) -> Option<LongResponses> {
    exchange.class_site()?.long_responses
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.count(0);
    }
}
