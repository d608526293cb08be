//! The transport of an HTTP/2 connection: the bytes that were read before, then the socket.
//!
//! The library reads and writes through it. It counts the frames that pass, limits the bytes of one turn, and knows
//! since when the client takes nothing.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weirgate_engine::Time;

use super::frames::{self, Budget, Frames};
use crate::client_conn::ClientConn;

/// Maximum number of bytes read in one turn, so that a fast client leaves turns for other connections.
const TURN: usize = 64 * 1024;

/// State that the transport shares with the connection's task.
#[derive(Debug)]
pub(super) struct Passing {
    conn: Rc<ClientConn>,
    budget: RefCell<Budget>,
    received: RefCell<Frames>,
    sent: RefCell<Frames>,
    /// Number of bytes that may still be read in this turn.
    turn: Cell<usize>,
    /// Whether the client has used up its budget. Nothing more is read.
    flooded: Cell<bool>,
    /// Time since which the client takes nothing that waits for it.
    stuck_since: Cell<Option<Time>>,
}

impl Passing {
    pub(super) fn new(conn: &Rc<ClientConn>, budget: u32) -> Rc<Passing> {
        Rc::new(Passing {
            conn: Rc::clone(conn),
            budget: RefCell::new(Budget::new(budget, conn.now())),
            received: RefCell::default(),
            sent: RefCell::default(),
            turn: Cell::new(TURN),
            flooded: Cell::new(false),
            stuck_since: Cell::new(None),
        })
    }

    /// Begins a turn of the connection's task.
    pub(super) fn begin_turn(&self) {
        self.turn.set(TURN);
        self.budget.borrow_mut().fill(self.conn.now());
    }

    /// Whether the client has sent more frames without content than it may.
    pub(super) fn is_flooded(&self) -> bool {
        self.flooded.get()
    }

    /// Returns the time since which the client takes nothing that waits for it.
    pub(super) fn stuck_since(&self) -> Option<Time> {
        self.stuck_since.get()
    }

    fn received(&self, bytes: &[u8]) {
        let mut frames = self.received.borrow_mut();
        if !frames::received(&mut frames, bytes, &mut self.budget.borrow_mut()) {
            self.flooded.set(true);
        }
        match frames.in_block() {
            true => drop(self.conn.head_begins()),
            false => self.conn.head_ends(),
        }
    }

    fn sent(&self, bytes: &[u8]) {
        if !frames::sent(&mut self.sent.borrow_mut(), bytes, &mut self.budget.borrow_mut()) {
            self.flooded.set(true);
        }
    }

    fn written(&self, written: &Poll<io::Result<usize>>) {
        self.stuck_since.set(match written {
            Poll::Ready(_) => None,
            Poll::Pending => self.stuck_since.get().or(Some(self.conn.now())),
        });
    }
}

/// The transport.
#[derive(Debug)]
pub(super) struct Transport<T> {
    io: Rc<RefCell<T>>,
    /// Bytes read before, without the preface.
    first: Bytes,
    /// Number of bytes of the preface that have not passed.
    preface: usize,
    passing: Rc<Passing>,
}

impl<T> Transport<T> {
    /// `first` begins with the first byte of the connection.
    pub(super) fn new(io: &Rc<RefCell<T>>, first: Bytes, passing: &Rc<Passing>) -> Transport<T> {
        Transport { io: Rc::clone(io), first, preface: super::PREFACE.len(), passing: Rc::clone(passing) }
    }

    fn received(&mut self, bytes: &[u8]) {
        let preface = bytes.len().min(self.preface);
        self.preface -= preface;
        self.passing.received(bytes.get(preface..).unwrap_or_default());
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Transport<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.passing.is_flooded() {
            return Poll::Pending;
        }
        let left = self.passing.turn.get().min(buffer.remaining());
        if left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(left));
        if self.first.is_empty() {
            let io = Rc::clone(&self.io);
            ready!(Pin::new(&mut *io.borrow_mut()).poll_read(cx, &mut piece))?;
        } else {
            let taken = left.min(self.first.len());
            piece.put_slice(self.first.get(..taken).unwrap_or_default());
            self.first.advance(taken);
        }
        let read = piece.filled().len();
        self.passing.turn.set(self.passing.turn.get() - read);
        let before = buffer.filled().len();
        buffer.advance(read);
        self.received(buffer.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Transport<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.io.borrow_mut()).poll_write_vectored(cx, pieces);
        self.passing.written(&written);
        if let Poll::Ready(Ok(mut left)) = written {
            for piece in pieces {
                let bytes = left.min(piece.len());
                self.passing.sent(piece.get(..bytes).unwrap_or_default());
                left -= bytes;
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io.borrow_mut()).poll_shutdown(cx)
    }
}
