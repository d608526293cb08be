//! Where a body ends.

use crate::chunked::{Chunked, Piece};
use crate::{Fault, Length, Limits};

/// A body that is being received.
#[derive(Debug)]
pub(crate) enum Body {
    /// A known number of bytes is missing.
    Known(u64),
    /// The body carries its own length. Boxed, because few bodies are chunked.
    Chunked(Box<Chunked>),
    /// All further bytes belong to the body.
    UntilClose,
}

impl Body {
    pub(crate) fn new(length: Length, limits: Limits) -> Body {
        match length {
            Length::Known(bytes) => Body::Known(bytes),
            Length::Chunked => Body::Chunked(Box::new(Chunked::new(limits))),
            Length::UntilClose => Body::UntilClose,
        }
    }

    /// Takes the part of the body at the front of `input`.
    pub(crate) fn take(&mut self, input: &[u8]) -> Result<Piece, Fault> {
        match self {
            Body::Known(left) => {
                let data = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= data as u64;
                Ok(Piece { skip: 0, data, end: data == 0 && *left == 0 })
            }
            Body::Chunked(chunked) => chunked.take(input),
            Body::UntilClose => Ok(Piece { skip: 0, data: input.len(), end: false }),
        }
    }

    pub(crate) fn trailers(&self) -> &[u8] {
        match self {
            Body::Chunked(chunked) => chunked.trailers(),
            Body::Known(_) | Body::UntilClose => &[],
        }
    }
}
