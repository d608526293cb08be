//! The strict check of everything a client sends before hyper sees it.
//!
//! Source: RFC 9112 (HTTP/1.1 message syntax), Secs. 2, 3, 5, 6, 7 and 11.2 (request smuggling). hyper is
//! lenient where a node behind it may be lenient in another way: it takes bare LF, `Content-Length` beside
//! `Transfer-Encoding`, repeated equal lengths, a missing or second `Host`. Here everything on which two
//! readers could differ is refused, before a byte of it is passed on; what passes has one meaning only.
//! Departures, all on the strict side: no obs-fold, no bare LF, one length field at most, no `Transfer-Encoding`
//! but exactly `chunked`, no whitespace around chunk sizes, no framing fields in trailers.
//!
//! [`Scanner`] has no I/O: bytes in, verdict out. It follows the lengths of bodies so that it finds each
//! head of a pipeline. Every byte is looked at a fixed number of times, however the input is cut.

mod bytes;
mod chunked;
mod head;
mod host;
mod refusal;
#[cfg(test)]
mod tests;

pub(crate) use host::split;
pub(crate) use refusal::Refusal;

use chunked::Chunked;
use head::{Head, Length};

/// Bounds on heads and on trailer sections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Most bytes of a head.
    pub(crate) head_bytes: usize,
    /// Most fields of a head.
    pub(crate) headers: usize,
}

/// Follows one connection's requests. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Scanner {
    bounds: Bounds,
    state: State,
    heads: u64,
}

#[derive(Debug)]
enum State {
    /// In a head or before one.
    Head(Head),
    /// In a body of known length.
    Length { left: u64, hold: bool },
    /// In a chunked body.
    Chunked { body: Chunked, hold: bool },
    /// After a request that asks for another protocol: what follows may not be HTTP.
    Held,
    /// Nothing passes any more.
    Refused,
}

/// What to do with the bytes at the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes (at least one) may pass.
    Pass(usize),
    /// So many bytes (at least one) are to be thrown away: an empty line before a head.
    Skip(usize),
    /// More bytes are needed to tell; keep these and show them again with more behind.
    More,
    /// What follows is not looked at until [`Scanner::resume`].
    Hold,
    /// The head at the front breaks the rules. Nothing of it has passed.
    RefuseHead(Refusal),
    /// The body breaks the rules at the front.
    RefuseBody(Refusal),
}

impl Scanner {
    pub(crate) fn new(bounds: Bounds) -> Scanner {
        Scanner { bounds, state: State::Head(Head::default()), heads: 0 }
    }

    /// Looks at `input`, which starts with the first byte that has not passed.
    pub(crate) fn scan(&mut self, input: &[u8]) -> Step {
        if input.is_empty() {
            return if matches!(self.state, State::Held) { Step::Hold } else { Step::More };
        }
        match &mut self.state {
            State::Head(head) => match head.scan(input, self.bounds) {
                Ok(None) => Step::More,
                Ok(Some(head::Seen::EmptyLine(bytes))) => Step::Skip(bytes),
                Ok(Some(head::Seen::Complete { bytes, length, upgrade })) => {
                    self.heads += 1;
                    self.state = match length {
                        Length::Known(0) => State::after(upgrade),
                        Length::Known(left) => State::Length { left, hold: upgrade },
                        Length::Chunked => State::Chunked { body: Chunked::new(self.bounds), hold: upgrade },
                    };
                    Step::Pass(bytes)
                }
                Err(refusal) => {
                    self.state = State::Refused;
                    Step::RefuseHead(refusal)
                }
            },
            State::Length { left, hold } => {
                let bytes = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= bytes as u64;
                if *left == 0 {
                    self.state = State::after(*hold);
                }
                Step::Pass(bytes)
            }
            State::Chunked { body, hold } => match body.scan(input) {
                Ok((bytes, done)) => {
                    if done {
                        self.state = State::after(*hold);
                    }
                    Step::Pass(bytes)
                }
                Err(refusal) => {
                    self.state = State::Refused;
                    Step::RefuseBody(refusal)
                }
            },
            State::Held => Step::Hold,
            State::Refused => Step::More,
        }
    }

    /// Heads that have passed.
    pub(crate) fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether the next byte is the first of a head (or there is none yet).
    pub(crate) fn between_requests(&self) -> bool {
        matches!(self.state, State::Head(_))
    }

    /// The other protocol was declined: HTTP goes on.
    pub(crate) fn resume(&mut self) {
        if matches!(self.state, State::Held) {
            self.state = State::Head(Head::default());
        }
    }

    /// Refuses the head that is being received, for a reason outside its bytes.
    pub(crate) fn refuse(&mut self) {
        self.state = State::Refused;
    }
}

impl State {
    fn after(hold: bool) -> State {
        if hold { State::Held } else { State::Head(Head::default()) }
    }
}
