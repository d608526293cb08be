//! The fields of an earlier head on the same connection, because a server repeats most of them.
//!
//! `Server`, `Content-Type`, the headers for caches and browsers, and for a second even `Date` are the same in one
//! response after the other, while lengths, tags and cookies change. A line that has the same bytes as the line at its
//! place in the earlier head has the same meaning, and comparing takes a small part of the time of parsing. A field
//! that comes or goes moves those after it to other places, and these are parsed once.
//!
//! Source: ours. HTTP/2 keeps fields of earlier heads for the same reason (RFC 7541 Sec. 2.3.2). Requests are compared
//! as a whole ([`Lines::repeat`](crate::lines::Lines::repeat)), because a client repeats all of its fields.

use crate::head::{Field, Head};

/// Maximum size of a head that is remembered, in bytes. Most heads of servers are smaller, and every connection to a
/// node keeps one.
const KEPT: usize = 2 * 1024;

/// The lines of an earlier head.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// Position of the empty line that ends the head.
    end: usize,
}

impl Repeated {
    /// No lines.
    pub(crate) const NONE: &Repeated = &Repeated { bytes: Vec::new(), fields: Vec::new(), end: 0 };

    /// Remembers a head of the bytes `received`. `head` is its index, as it was parsed.
    pub(crate) fn keep(&mut self, head: &Head, received: &[u8]) {
        if self.bytes == received {
            return;
        }
        self.bytes.clear();
        self.fields.clear();
        if received.len() <= KEPT {
            self.bytes.extend_from_slice(received);
            self.fields.extend_from_slice(&head.fields);
            self.end = head.end as usize;
        }
    }

    /// Returns the field at this index if `line` begins with its line, and the size of this line. The field has its
    /// positions in the earlier head.
    #[inline]
    pub(crate) fn begins(&self, line: &[u8], index: usize) -> Option<(Field, usize)> {
        let field = *self.fields.get(index)?;
        let end = self.fields.get(index + 1).map_or(self.end, Field::start);
        let earlier = self.bytes.get(field.start()..end)?;
        line.starts_with(earlier).then_some((field, earlier.len()))
    }
}
