//! HTTP/1.1 without I/O: bytes in, events out.
//!
//! [`Requests`] reads the requests of a client connection, [`Responses`] the responses of a connection to a node. Both
//! take the bytes received so far and return an [`Event`]: a head, a piece of a body, the end of a message. A head is
//! not copied and not taken apart into strings. It is a flat index over the bytes ([`Head`]): for each field the
//! positions of name and value, and a [`Name`] if the gateway has to know the field. [`write`](mod@write) builds the
//! head that is sent on, mostly by copying runs of the one that was received.
//!
//! Source: RFC 9110 (semantics) and RFC 9112 (message syntax). Each [`Fault`] names the section that the input breaks.
//! Departures, all on the strict side for requests: no bare line feed, no folded line, at most one length, no transfer
//! coding other than `chunked`, no white space around chunk sizes, no framing fields in trailers. Two readers of an
//! accepted request cannot disagree about its end (RFC 9112 Sec. 11.2). Responses come from your own nodes and are
//! written anew before a client sees them, so the reader accepts the usual slips: bare line feeds, white space before
//! a colon, a missing reason, and `Content-Length` twice with one value.
//!
//! Every byte is examined a fixed number of times, however the input is split. Fields that a connection repeats are
//! compared with those before, and not parsed again.
//!
//! # Example
//!
//! ```
//! use weirgate_http1::{Event, Limits, Name, Requests};
//!
//! let mut requests = Requests::new(Limits { head_bytes: 16 * 1024, fields: 100 });
//! let input = b"POST /cart HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 3\r\n\r\none";
//!
//! let Ok(Event::Head(bytes)) = requests.receive(input) else { panic!("the head is complete") };
//! let (head, body) = input.split_at(bytes);
//! assert_eq!(requests.head().method(head), b"POST");
//! assert_eq!(requests.head().target(head), b"/cart");
//! assert_eq!(requests.head().get(head, Name::Host), Some(&b"shop.test"[..]));
//!
//! assert_eq!(requests.receive(body), Ok(Event::Data { skip: 0, data: 3 }));
//! assert_eq!(requests.receive(b""), Ok(Event::End(0)));
//! assert_eq!(requests.receive(b""), Ok(Event::More));
//! ```

mod body;
mod bytes;
mod chunked;
mod fault;
mod head;
mod host;
mod lines;
mod name;
mod receive;
mod repeated;
pub mod write;

pub use fault::Fault;
pub use head::{Field, Fields, Head, Version};
pub use host::{Authority, split};
pub use name::{Name, Names};
pub use receive::{Event, Requests, Responses};

/// Limits for heads and for trailer sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a head, in bytes.
    pub head_bytes: usize,
    /// Maximum number of fields in a head.
    pub fields: usize,
}

/// Length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Number of bytes. 0 also stands for a message without a body.
    Known(u64),
    /// Chunked: the body carries its own length.
    Chunked,
    /// A response that ends when the node closes the connection.
    UntilClose,
}
