//! The messages of one connection, as events.

use crate::body::Body;
use crate::chunked::Piece;
use crate::head::Head;
use crate::lines::{Kind, Lines, Parsed, declared};
use crate::repeated::Repeated;
use crate::{Fault, Length, Limits, Name, Names, Version};

/// Meaning of the bytes at the front of the input. Each message is one [`Event::Head`], any number of [`Event::Data`],
/// and one [`Event::End`]. Remove the bytes that an event names from the front of the input before the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed. Keep these and pass them again together with the following ones.
    More,
    /// This many bytes (at least one) have no meaning: an empty line before a head, or framing of a body.
    Skip(usize),
    /// A complete head of this many bytes. Its index refers to them.
    Head(usize),
    /// `skip` bytes of framing, and after them `data` bytes (at least one) of the body.
    Data {
        /// Number of bytes of framing.
        skip: usize,
        /// Number of bytes of the body.
        data: usize,
    },
    /// This many bytes of framing, then the message has ended.
    End(usize),
    /// The bytes are not examined: another protocol may follow, or no message is expected.
    Hold,
}

#[derive(Debug)]
enum State {
    /// In a head or before one.
    Head(Lines),
    /// In a body.
    Body(Body),
    /// Nothing is examined.
    Hold,
    /// After a fault.
    Faulty(Fault),
}

/// Common part of both directions.
#[derive(Debug)]
struct Messages {
    limits: Limits,
    state: State,
    head: Head,
    /// Whether `head` and `trailers` belong to an earlier message. The next byte of a head clears them.
    stale: bool,
    /// Trailer section of the last message.
    trailers: Vec<u8>,
}

impl Messages {
    fn new(limits: Limits, state: State) -> Messages {
        Messages { limits, state, head: Head::default(), stale: false, trailers: Vec::new() }
    }

    /// `before` has the bytes of the head that `self.head` is the index of, or is empty.
    #[inline(always)] // Each of its two callers needs a part of it.
    fn receive_head(&mut self, kind: Kind, input: &[u8], before: &[u8], repeated: &Repeated) -> Result<Parsed, Fault> {
        let State::Head(lines) = &mut self.state else { return Ok(Parsed::More) };
        if input.is_empty() {
            return Ok(Parsed::More);
        }
        if std::mem::replace(&mut self.stale, false) {
            self.trailers.clear();
            if !before.is_empty()
                && let Some(bytes) = Lines::repeat(input, before, self.limits, &mut self.head)
            {
                self.stale = true;
                return Ok(Parsed::Complete(bytes));
            }
            self.head.clear();
        }
        let parsed = lines.parse(kind, input, self.limits, repeated, &mut self.head);
        match parsed {
            Ok(Parsed::Complete(_)) => self.stale = true,
            Ok(Parsed::More | Parsed::EmptyLine(_)) => {}
            Err(fault) => self.state = State::Faulty(fault),
        }
        parsed
    }

    /// Length of the present body, as far as it is not yet received.
    fn length(&self) -> Length {
        match &self.state {
            State::Body(Body::Known(left)) => Length::Known(*left),
            State::Body(Body::Chunked(_)) => Length::Chunked,
            State::Body(Body::UntilClose) => Length::UntilClose,
            State::Head(_) | State::Hold | State::Faulty(_) => Length::Known(0),
        }
    }

    /// Returns the next event of a body.
    fn receive_body(&mut self, input: &[u8]) -> Result<Event, Fault> {
        let State::Body(body) = &mut self.state else { return Ok(Event::More) };
        match body.take(input) {
            Ok(Piece { skip, end: true, .. }) => {
                self.trailers.extend_from_slice(body.trailers());
                Ok(Event::End(skip))
            }
            Ok(Piece { skip: 0, data: 0, .. }) => Ok(Event::More),
            Ok(Piece { skip, data: 0, .. }) => Ok(Event::Skip(skip)),
            Ok(Piece { skip, data, .. }) => Ok(Event::Data { skip, data }),
            Err(fault) => {
                self.state = State::Faulty(fault);
                Err(fault)
            }
        }
    }
}

/// Reads the requests of one client connection.
#[derive(Debug)]
pub struct Requests {
    messages: Messages,
    /// Whether the current request asks for another protocol.
    foreign: bool,
}

impl Requests {
    /// Reads from the start of a connection.
    pub fn new(limits: Limits) -> Requests {
        Requests { messages: Messages::new(limits, State::Head(Lines::default())), foreign: false }
    }

    /// Examines `input`, which starts with the first byte that no earlier event has named.
    ///
    /// After a request that asks for another protocol (`Upgrade`, `CONNECT`) it returns [`Event::Hold`] until
    /// [`Requests::resume`].
    ///
    /// # Errors
    /// The input breaks a rule. Nothing after that is read: each further call returns the same fault.
    pub fn receive(&mut self, input: &[u8]) -> Result<Event, Fault> {
        self.receive_after(b"", input)
    }

    /// Does the same, and faster if the fields of a request are those of the request before. `before` has the bytes of
    /// the former head, and [`Requests::keep_head`] gave back its index. It may be empty.
    ///
    /// # Errors
    /// As for [`Requests::receive`].
    pub fn receive_after(&mut self, before: &[u8], input: &[u8]) -> Result<Event, Fault> {
        match &self.messages.state {
            State::Hold => Ok(Event::Hold),
            State::Faulty(fault) => Err(*fault),
            State::Body(_) => {
                let event = self.messages.receive_body(input)?;
                if let Event::End(_) = event {
                    self.messages.state = if self.foreign { State::Hold } else { State::Head(Lines::default()) };
                }
                Ok(event)
            }
            State::Head(_) => match self.messages.receive_head(Kind::Request, input, before, Repeated::NONE)? {
                Parsed::More => Ok(Event::More),
                Parsed::EmptyLine(bytes) => Ok(Event::Skip(bytes)),
                Parsed::Complete(bytes) => self.complete(input, bytes),
            },
        }
    }

    fn complete(&mut self, input: &[u8], bytes: usize) -> Result<Event, Fault> {
        let Messages { head, limits, .. } = &self.messages;
        let length = if head.version == Version::Http11 && !head.names.contains(Name::Host) {
            Err(Fault::NoHost)
        } else {
            declared(head)
        };
        match length {
            Ok(length) => {
                let upgrade = head.version == Version::Http11 && head.names.contains(Name::Upgrade);
                self.foreign = upgrade || head.method(input) == b"CONNECT";
                self.messages.state = State::Body(Body::new(length.unwrap_or(Length::Known(0)), *limits));
                Ok(Event::Head(bytes))
            }
            Err(fault) => {
                self.messages.state = State::Faulty(fault);
                Err(fault)
            }
        }
    }

    /// Index of the current request's head: from its [`Event::Head`] until the first byte of the next head.
    pub fn head(&self) -> &Head {
        &self.messages.head
    }

    /// Length of the body that follows the current head, as far as it is not yet received.
    pub fn length(&self) -> Length {
        self.messages.length()
    }

    /// Takes the index of the current request's head. The owner of the head's bytes can then keep both together.
    pub fn take_head(&mut self) -> Head {
        std::mem::take(&mut self.messages.head)
    }

    /// Gives an index back after the end of its request, for [`Requests::receive_after`] and for its memory. Does
    /// nothing if the next request has begun.
    pub fn keep_head(&mut self, head: Head) {
        if self.messages.stale {
            self.messages.head = head;
        }
    }

    /// Trailer section of the request that has ended: lines with their line ends.
    pub fn trailers(&self) -> &[u8] {
        &self.messages.trailers
    }

    /// Returns whether the next byte belongs to a head and not to a body.
    pub fn is_between(&self) -> bool {
        matches!(self.messages.state, State::Head(_))
    }

    /// Continues with HTTP after the other protocol was declined.
    pub fn resume(&mut self) {
        if matches!(self.messages.state, State::Hold) {
            self.messages.state = State::Head(Lines::default());
        }
    }
}

/// Reads the responses of one connection to a node.
#[derive(Debug)]
pub struct Responses {
    messages: Messages,
    /// Whether the request was `HEAD`, so that the response has no body.
    to_head: bool,
    /// The head before.
    repeated: Repeated,
}

impl Responses {
    /// Reads from the start of a connection. It expects no response before [`Responses::expect`].
    pub fn new(limits: Limits) -> Responses {
        Responses { messages: Messages::new(limits, State::Hold), to_head: false, repeated: Repeated::default() }
    }

    /// Expects the response to a request that has been sent. `method` is the request's.
    pub fn expect(&mut self, method: &str) {
        self.to_head = method == "HEAD";
        self.messages.state = State::Head(Lines::default());
        self.messages.stale = true;
    }

    /// Examines `input`, which starts with the first byte that no earlier event has named.
    ///
    /// An interim response (1xx) is an [`Event::Head`] without an end. The next head follows. After a 101, and after
    /// the end of a response, it returns [`Event::Hold`].
    ///
    /// # Errors
    /// The input is not a response, or its end is ambiguous. Close the connection.
    pub fn receive(&mut self, input: &[u8]) -> Result<Event, Fault> {
        match &self.messages.state {
            State::Hold => Ok(if input.is_empty() { Event::More } else { Event::Hold }),
            State::Faulty(fault) => Err(*fault),
            State::Body(_) => {
                let event = self.messages.receive_body(input)?;
                if let Event::End(_) = event {
                    self.messages.state = State::Hold;
                }
                Ok(event)
            }
            State::Head(_) => match self.messages.receive_head(Kind::Response, input, b"", &self.repeated)? {
                Parsed::More => Ok(Event::More),
                Parsed::EmptyLine(bytes) => Ok(Event::Skip(bytes)),
                Parsed::Complete(bytes) => self.complete(input, bytes),
            },
        }
    }

    fn complete(&mut self, input: &[u8], bytes: usize) -> Result<Event, Fault> {
        let Messages { head, limits, .. } = &self.messages;
        self.repeated.keep(head, input.get(..bytes).unwrap_or_default());
        let next = match (head.status, declared(head)) {
            (_, Err(fault)) => {
                self.messages.state = State::Faulty(fault);
                return Err(fault);
            }
            (101, _) => State::Hold,
            (100..=199, _) => State::Head(Lines::default()),
            (204 | 304, _) => State::Body(Body::new(Length::Known(0), *limits)),
            _ if self.to_head => State::Body(Body::new(Length::Known(0), *limits)),
            (_, Ok(length)) => State::Body(Body::new(length.unwrap_or(Length::UntilClose), *limits)),
        };
        self.messages.state = next;
        Ok(Event::Head(bytes))
    }

    /// Notes that the node has closed its side. Returns whether the response is complete: it had ended before, or its
    /// end is the end of the connection.
    pub fn close(&mut self) -> bool {
        let complete = matches!(self.messages.state, State::Hold | State::Body(Body::UntilClose));
        self.messages.state = State::Hold;
        complete
    }

    /// Index of the current head: from its [`Event::Head`] until the first byte of the next head.
    pub fn head(&self) -> &Head {
        &self.messages.head
    }

    /// Applies [`Head::drop_named`] to the current head. `bytes` are those of its [`Event::Head`].
    pub fn drop_named(&mut self, bytes: &[u8], protected: Names) {
        self.messages.head.drop_named(bytes, protected);
    }

    /// Length of the body that follows the current head, as far as it is not yet received.
    pub fn length(&self) -> Length {
        self.messages.length()
    }

    /// Trailer section of the response that has ended: lines with their line ends.
    pub fn trailers(&self) -> &[u8] {
        &self.messages.trailers
    }
}
