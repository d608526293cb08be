//! State of the request that a stream of a client carries: its deadlines and counts.
//!
//! An HTTP/1.1 connection is one stream, which carries one request after the other. An HTTP/2 connection has a stream
//! for each request. The stages of a request, the stream and its task communicate through this state.

use std::cell::Cell;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weirgate_engine::Time;

use crate::client_conn::ClientConn;
use crate::timer::Alarm;

/// Time after which a stream without any deadline is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Why the work before the first request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untimely {
    /// It took too long.
    Late,
    /// The connection is to be closed.
    Closing,
}

/// State of a stream. It gives access to its connection, because most code that needs the one needs the other.
pub(crate) struct StreamState {
    conn: Rc<ClientConn>,
    /// Wakes the stream's task.
    alarm: Rc<Alarm>,
    /// Time at which the present phase takes too long: idle, a head, or the node's part of a request.
    pub(crate) phase: Cell<Time>,
    /// Time at which the current request exceeds its total limit.
    pub(crate) total: Cell<Time>,
    /// Time at which the client has sent its body too slowly, or at which to find out whether it has left.
    pub(crate) body_due: Cell<Time>,
    /// Time at which the client has accepted no bytes for too long.
    pub(crate) stuck: Cell<Time>,
    /// Time at which the response counts as long and gives its slot back.
    pub(crate) slot_due: Cell<Time>,
    /// Maximum time without progress on a body, in either direction.
    pub(crate) progress: Cell<Duration>,
    /// Whether a request is being served: from its head to the last byte of its response.
    pub(crate) busy: Cell<bool>,
    /// Whether a byte of the response to the current request has been sent.
    pub(crate) answered: Cell<bool>,
    /// Number of body bytes received for the current request.
    pub(crate) bytes_in: Cell<u64>,
}

impl Deref for StreamState {
    type Target = ClientConn;

    fn deref(&self) -> &ClientConn {
        &self.conn
    }
}

impl StreamState {
    /// Creates the state of a stream of `conn`. `alarm` wakes the task of the stream.
    pub(crate) fn new(conn: &Rc<ClientConn>, alarm: Rc<Alarm>) -> Rc<StreamState> {
        Rc::new(StreamState {
            conn: Rc::clone(conn),
            alarm,
            phase: Cell::new(Time::NEVER),
            total: Cell::new(Time::NEVER),
            body_due: Cell::new(Time::NEVER),
            stuck: Cell::new(Time::NEVER),
            slot_due: Cell::new(Time::NEVER),
            // Until a class is known.
            progress: Cell::new(Duration::from_secs(30)),
            busy: Cell::new(false),
            answered: Cell::new(false),
            bytes_in: Cell::new(0),
        })
    }

    /// Begins a new phase, which may take at most `span`.
    pub(crate) fn begin_phase(&self, span: Duration) {
        self.phase.set(self.now() + span);
    }

    /// Ends the node's part of the current request, and its limits.
    pub(crate) fn end_phases(&self) {
        self.phase.set(Time::NEVER);
        self.total.set(Time::NEVER);
    }

    /// Whether the phase or the whole request has exceeded its limit.
    pub(crate) fn is_late(&self) -> bool {
        self.now() >= self.phase.get().min(self.total.get())
    }

    /// Runs one turn of the stream's task.
    pub(crate) fn turn<T>(&self, task: Pin<&mut impl Future<Output = T>>, cx: &mut Context<'_>) -> Poll<T> {
        self.worker.timers.begin_turn();
        task.poll(cx)
    }

    /// Wakes the stream's task at its next deadline.
    pub(crate) fn arm(&self, waker: &Waker) {
        let node = self.phase.get().min(self.total.get()).min(self.slot_due.get());
        let mut due = node.min(self.body_due.get()).min(self.stuck.get());
        if due == Time::NEVER {
            due = self.now() + LOOK_AGAIN;
        }
        self.wake_at(due, waker);
    }

    /// Wakes the stream's task at `due`, instead of an earlier setting.
    pub(crate) fn wake_at(&self, due: Time, waker: &Waker) {
        self.worker.timers.set(&self.alarm, due, waker);
    }

    /// Waits for work before the first request. It is due within `timeouts.header` from the acceptance.
    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Untimely> {
        let due = self.idle_since.get() + self.worker.active_config().site.timeouts.header;
        self.phase.set(due);
        let mut work = pin!(work);
        let done = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending if self.closing.get() => Poll::Ready(Err(Untimely::Closing)),
            Poll::Pending if self.now() >= due => Poll::Ready(Err(Untimely::Late)),
            Poll::Pending => {
                self.arm(cx.waker());
                Poll::Pending
            }
        });
        done.await
    }

    /// Begins a request.
    pub(crate) fn begin(&self) {
        self.enter();
        self.busy.set(true);
        self.answered.set(false);
        self.bytes_in.set(0);
        self.end_phases();
    }

    /// Ends the current request.
    pub(crate) fn end(&self) {
        self.leave();
        self.busy.set(false);
        self.end_phases();
        self.slot_due.set(Time::NEVER);
        self.body_due.set(Time::NEVER);
        self.stuck.set(Time::NEVER);
    }
}
