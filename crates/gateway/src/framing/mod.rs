//! Strict check of all client input before hyper sees it.
//!
//! Source: RFC 9112 (HTTP/1.1 message syntax), Secs. 2, 3, 5, 6, 7 and 11.2 (request smuggling). hyper is
//! lenient, and a node behind it may be lenient in another way. hyper accepts bare LF, `Content-Length`
//! together with `Transfer-Encoding`, repeated equal lengths, and a missing or second `Host`. This module
//! refuses all input that two readers could interpret differently, before a byte of it is passed on. Input
//! that passes has exactly one meaning. The departures from the RFC are all on the strict side: no obs-fold,
//! no bare LF, at most one length field, no `Transfer-Encoding` other than exactly `chunked`, no whitespace
//! around chunk sizes, and no framing fields in trailers.
//!
//! [`Scanner`] does no I/O. It takes bytes and returns decisions. It keeps track of body lengths, so that it
//! finds each head of a pipeline. Every byte is examined a fixed number of times, however the input is split.

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

/// Limits for heads and for trailer sections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Maximum size of a head, in bytes.
    pub(crate) head_bytes: usize,
    /// Maximum number of fields in a head.
    pub(crate) headers: usize,
}

/// Checks the requests of one connection. See the module's documentation.
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
    /// After a request that asks for another protocol. The following bytes may not be HTTP.
    Held,
    /// After a refusal. No further bytes pass.
    Refused,
}

/// Action for the bytes at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// This many bytes (at least one) may pass.
    Pass(usize),
    /// This many bytes (at least one) are to be discarded: an empty line before a head.
    Skip(usize),
    /// More bytes are needed. Keep these and pass them again together with the following ones.
    More,
    /// The following bytes are not examined until [`Scanner::resume`].
    Hold,
    /// The head at the front breaks the rules. None of it has passed.
    RefuseHead(Refusal),
    /// The body breaks the rules at the front.
    RefuseBody(Refusal),
}

impl Scanner {
    pub(crate) fn new(bounds: Bounds) -> Scanner {
        Scanner { bounds, state: State::Head(Head::default()), heads: 0 }
    }

    /// Examines `input`, which starts with the first byte that has not passed.
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

    /// Number of heads that have passed.
    pub(crate) fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether the next byte belongs to a head and not to a body.
    pub(crate) fn between_requests(&self) -> bool {
        matches!(self.state, State::Head(_))
    }

    /// Continues with HTTP after the other protocol was declined.
    pub(crate) fn resume(&mut self) {
        if matches!(self.state, State::Held) {
            self.state = State::Head(Head::default());
        }
    }

    /// Refuses the head that is being received, for a reason that is not in its bytes.
    pub(crate) fn refuse(&mut self) {
        self.state = State::Refused;
    }
}

impl State {
    fn after(hold: bool) -> State {
        if hold { State::Held } else { State::Head(Head::default()) }
    }
}
