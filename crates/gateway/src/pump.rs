//! Stage *forward*, the return path: sends a node's response to the client.
//!
//! The node's last byte frees the slot, however slowly the client reads. While hyper has enough to write, the
//! connection's task reads the response ahead into a queue, up to a limit per request and one for the whole
//! process. When a limit is reached, the node has to wait, and its timeouts are suspended. Most responses are
//! complete when their head is read. They need no queue.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use weirgate_engine::{Outcome, Time};

use crate::active_config::Endpoint;
use crate::client_conn::ClientConn;
use crate::exchange::Exchange;
use crate::permit::Permit;
use crate::reply::NodeError;
use crate::upstream::Link;

/// A response that the connection's task and hyper read in turns.
pub(crate) type SharedPump = Rc<RefCell<Pump>>;

/// Maximum number of bytes read after a head before the head is sent on.
const BURST: usize = 64 * 1024;

/// Maximum number of frames that hyper may take in one turn of the connection's task: about a megabyte. So a
/// fast node with a fast client leaves turns for the other connections of the thread.
const TURN: u32 = 16;

/// A node's response that is being read.
#[derive(Debug)]
pub(crate) struct Pump {
    conn: Rc<ClientConn>,
    endpoint: Arc<Endpoint>,
    /// The source. `None` after the response has ended.
    source: Option<Box<Link>>,
    permit: Permit,
    status: u16,
    queue: Queue,
    /// Number of queued bytes that are counted in the budget of the process.
    counted: usize,
    ended: Option<Result<Time, NodeError>>,
    /// Whether hyper has asked for more in this turn of the connection's task.
    asked: bool,
    /// Number of frames that hyper has taken in this turn.
    taken: u32,
    /// Time since which the budget has been used up.
    stalled: Option<Time>,
    /// Maximum number of queued bytes.
    bound: usize,
}

/// Frames in order. The first one is stored separately, because most responses have one frame.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    first: Option<Frame<Bytes>>,
    rest: VecDeque<Frame<Bytes>>,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, frame: Frame<Bytes>) {
        self.bytes += frame.data_ref().map_or(0, Bytes::len);
        if self.first.is_none() && self.rest.is_empty() {
            self.first = Some(frame);
        } else {
            self.rest.push_back(frame);
        }
    }

    fn pop(&mut self) -> Option<Frame<Bytes>> {
        let frame = self.first.take().or_else(|| self.rest.pop_front())?;
        self.bytes -= frame.data_ref().map_or(0, Bytes::len);
        Some(frame)
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty()
    }

    fn has_trailers(&self) -> bool {
        self.first.iter().chain(&self.rest).any(Frame::is_trailers)
    }
}

impl Pump {
    pub(crate) fn new(
        conn: &Rc<ClientConn>,
        endpoint: Arc<Endpoint>,
        link: Box<Link>,
        permit: Permit,
        status: u16,
        bound: usize,
    ) -> Pump {
        Pump {
            conn: Rc::clone(conn),
            endpoint,
            source: Some(link),
            permit,
            status,
            queue: Queue::default(),
            counted: 0,
            ended: None,
            asked: false,
            taken: 0,
            stalled: None,
            bound,
        }
    }

    /// Reads the frames that are available. Afterwards [`Pump::ended`] tells whether the response is complete.
    pub(crate) fn burst(&mut self, cx: &mut Context<'_>) {
        while self.ended.is_none() && self.queue.bytes < BURST {
            match self.read(cx) {
                Poll::Ready(Some(frame)) => self.queue.push(frame),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
    }

    /// Returns the time at which the response ended, or the error if it ended too early, or `None` if it has
    /// not ended.
    pub(crate) fn ended(&self) -> Option<Result<Time, NodeError>> {
        self.ended
    }

    /// Takes the permit back after a failure that may be retried.
    pub(crate) fn into_permit(mut self) -> Permit {
        self.permit.take()
    }

    /// Takes all frames of a complete response.
    pub(crate) fn take_queue(&mut self) -> Queue {
        std::mem::take(&mut self.queue)
    }

    /// Reads one frame from the node. Returns `Ready(None)` when the response has ended in any way.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        let Some(link) = &mut self.source else { return Poll::Ready(None) };
        match link.poll_frame(&self.conn.worker, cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.conn.begin_phase(self.conn.progress.get());
                if link.has_ended() {
                    self.complete();
                }
                Poll::Ready(Some(frame))
            }
            Poll::Ready(None) => {
                self.complete();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => {
                self.fail(NodeError::Incomplete);
                Poll::Ready(None)
            }
            Poll::Pending if self.conn.is_late() => {
                self.fail(NodeError::ResponseTimeout);
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn complete(&mut self) {
        let worker = &self.conn.worker;
        if let Some(link) = self.source.take() {
            worker.pools.put(&self.endpoint, link, worker.timers.now());
        }
        self.ended = Some(Ok(self.permit.finish(Outcome::LastByte { status: self.status })));
        self.stop_clocks();
    }

    /// Records a failure. The permit stays for the decision about a retry, and [`Pump::share`] settles it.
    fn fail(&mut self, error: NodeError) {
        self.source = None;
        self.ended = Some(Err(error));
        self.stop_clocks();
    }

    fn stop_clocks(&self) {
        self.conn.phase.set(Time::NEVER);
        self.conn.total.set(Time::NEVER);
    }

    /// Shares the pump. From now on the head is on its way and the rest follows in turns.
    pub(crate) fn share(self) -> SharedPump {
        let conn = Rc::clone(&self.conn);
        let pump = Rc::new(RefCell::new(self));
        pump.borrow_mut().count();
        conn.pump.replace(Some(Rc::clone(&pump)));
        pump
    }

    /// Begins a turn of the connection's task.
    pub(crate) fn begin_turn(&mut self) {
        self.asked = false;
        self.taken = 0;
    }

    /// Ends a turn. If hyper had enough to write, reads ahead for a slow client.
    pub(crate) fn end_turn(&mut self, cx: &mut Context<'_>) {
        if self.asked {
            return;
        }
        while self.ended.is_none() {
            if !self.has_room() {
                self.stall();
                return;
            }
            self.resume();
            match self.read(cx) {
                Poll::Ready(Some(frame)) => {
                    self.queue.push(frame);
                    self.count();
                }
                Poll::Ready(None) => self.settle(),
                Poll::Pending => return,
            }
        }
    }

    fn has_room(&self) -> bool {
        let shared = &self.conn.worker.shared;
        let all = shared.counters.buffered_bytes.load(Ordering::Relaxed);
        self.queue.bytes < self.bound && all < shared.memory.buffer()
    }

    /// Suspends the node's timeouts while the client is slow.
    fn stall(&mut self) {
        if self.stalled.is_none() {
            self.stalled = Some(self.conn.now());
            self.conn.phase.set(Time::NEVER);
            self.conn.total.set(self.conn.total.get() + std::time::Duration::from_secs(1 << 32));
        }
    }

    fn resume(&mut self) {
        if let Some(since) = self.stalled.take() {
            let total = self.conn.total.get() - std::time::Duration::from_secs(1 << 32);
            self.conn.total.set(total + self.conn.now().since(since));
            self.conn.begin_phase(self.conn.progress.get());
        }
    }

    /// Updates the budget of the process to the present size of the queue.
    fn count(&mut self) {
        let buffered = &self.conn.worker.shared.counters.buffered_bytes;
        let bytes = self.queue.bytes;
        if bytes > self.counted {
            buffered.fetch_add((bytes - self.counted) as u64, Ordering::Relaxed);
        } else {
            buffered.fetch_sub((self.counted - bytes) as u64, Ordering::Relaxed);
        }
        self.counted = bytes;
    }

    /// Settles the permit. The head is on its way, so a failure cannot be retried.
    fn settle(&mut self) {
        if let Some(Err(_)) = self.ended {
            self.permit.finish(Outcome::Failed { retryable: false });
        }
    }

    /// Returns the next frame for hyper.
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, NodeError>>> {
        if self.taken == TURN {
            self.asked = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.taken += 1;
        if let Some(frame) = self.queue.pop() {
            self.count();
            return Poll::Ready(Some(Ok(frame)));
        }
        if self.ended.is_none() {
            self.resume();
            match self.read(cx) {
                Poll::Ready(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Poll::Ready(None) => self.settle(),
                Poll::Pending => {
                    self.asked = true;
                    return Poll::Pending;
                }
            }
        }
        match self.ended {
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            _ => Poll::Ready(None),
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.queue = Queue::default();
        self.count();
    }
}

/// Response body for hyper to write to the client. Its end is the end of the request.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    source: Source,
    /// Completed when the last byte has been sent. `None` if something else holds it.
    exchange: Option<Box<Exchange>>,
    length: Option<u64>,
    complete: bool,
}

#[derive(Debug)]
enum Source {
    Frames(Queue),
    Pump(SharedPump),
}

/// The node broke off the response.
#[derive(Debug)]
pub(crate) struct BrokenOff(NodeError);

impl fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl std::error::Error for BrokenOff {}

impl ReplyBody {
    /// A complete body.
    pub(crate) fn whole(bytes: Bytes, exchange: Box<Exchange>) -> ReplyBody {
        let mut queue = Queue::default();
        if !bytes.is_empty() {
            queue.push(Frame::data(bytes));
        }
        ReplyBody::frames(queue, exchange)
    }

    /// A body with all frames available.
    pub(crate) fn frames(queue: Queue, exchange: Box<Exchange>) -> ReplyBody {
        let length = if queue.has_trailers() { None } else { Some(queue.bytes as u64) };
        let complete = queue.is_empty();
        ReplyBody { source: Source::Frames(queue), exchange: Some(exchange), length, complete }
    }

    /// A body that is still being read. `length` is the length announced by the node.
    pub(crate) fn pumped(pump: SharedPump, length: Option<u64>, exchange: Box<Exchange>) -> ReplyBody {
        ReplyBody { source: Source::Pump(pump), exchange: Some(exchange), length, complete: false }
    }

    /// An empty body, for the response before a tunnel.
    pub(crate) fn none() -> ReplyBody {
        ReplyBody { source: Source::Frames(Queue::default()), exchange: None, length: Some(0), complete: true }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let this = &mut *self;
        let (next, ended) = match &mut this.source {
            Source::Frames(queue) => (Poll::Ready(queue.pop().map(Ok)), None),
            Source::Pump(pump) => {
                let mut pump = pump.borrow_mut();
                let next = pump.next(cx);
                (next, pump.ended)
            }
        };
        let Poll::Ready(next) = next else { return Poll::Pending };
        if let (Some(exchange), Some(ended)) = (&mut this.exchange, ended) {
            exchange.node_ended(ended);
        }
        match next {
            Some(Ok(frame)) => {
                if let (Some(exchange), Some(data)) = (&mut this.exchange, frame.data_ref()) {
                    exchange.bytes_out += data.len() as u64;
                }
                this.complete = match &this.source {
                    Source::Frames(queue) => queue.is_empty(),
                    Source::Pump(pump) => {
                        let pump = pump.borrow();
                        matches!(pump.ended, Some(Ok(_))) && pump.queue.is_empty()
                    }
                };
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(BrokenOff(error)))),
            None => {
                this.complete = true;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.complete
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        let Some(mut exchange) = self.exchange.take() else { return };
        let conn = Rc::clone(&exchange.conn);
        conn.pump.replace(None);
        if let Source::Pump(pump) = &self.source
            && let Some(ended) = pump.borrow().ended
        {
            exchange.node_ended(ended);
        }
        if self.complete {
            exchange.complete();
            conn.finished.replace(Some(exchange));
        }
    }
}
