//! Skips message bodies (RFC 9112, Secs. 6 and 7.1), for both sides of a connection.
//!
//! Neither nodes nor clients look at the content of a body. They need only its end and its length.

/// Longest line of chunk framing, in bytes: a chunk size with its extensions, or a trailer field.
const LINE: usize = 4096;

/// Position of a connection within a message body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The given number of bytes is left.
    Length(u64),
    /// A chunk-size line comes next.
    Size,
    /// The given number of bytes of the current chunk is left.
    Chunk(u64),
    /// The line end after a chunk comes next.
    ChunkEnd,
    /// Trailer fields come next, up to an empty line.
    Trailer,
    /// The body ends when the connection closes.
    UntilClose,
    /// The body is complete.
    Done,
}

/// Body framing that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFraming;

impl Body {
    /// Continues reading in `bytes`. Returns the number of bytes used and the number of payload bytes among
    /// them. If not all bytes were used, either the body is [`Body::Done`] or a line is incomplete.
    ///
    /// # Errors
    /// A chunk size is not hexadecimal, or a line of the framing is too long.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, u64), BadFraming> {
        let (mut used, mut payload) = (0, 0);
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            match *self {
                Body::Done => return Ok((used, payload)),
                Body::UntilClose => return Ok((bytes.len(), payload + rest.len() as u64)),
                Body::Length(left) | Body::Chunk(left) => {
                    let n = left.min(rest.len() as u64);
                    used += n as usize;
                    payload += n;
                    let chunk = matches!(self, Body::Chunk(_));
                    *self = match (left - n, chunk) {
                        (0, false) => Body::Done,
                        (0, true) => Body::ChunkEnd,
                        (left, false) => Body::Length(left),
                        (left, true) => Body::Chunk(left),
                    };
                    if left > n {
                        return Ok((used, payload));
                    }
                }
                Body::Size | Body::ChunkEnd | Body::Trailer => {
                    let Some(end) = rest.windows(2).position(|w| w == b"\r\n") else {
                        return if rest.len() > LINE { Err(BadFraming) } else { Ok((used, payload)) };
                    };
                    *self = self.after_line(&rest[..end])?;
                    used += end + 2;
                }
            }
        }
    }

    fn after_line(self, line: &[u8]) -> Result<Body, BadFraming> {
        match self {
            Body::Size => {
                let digits = line.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
                let text = str::from_utf8(digits).map_err(|_| BadFraming)?;
                if text.is_empty() || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(BadFraming);
                }
                let size = u64::from_str_radix(text, 16).map_err(|_| BadFraming)?;
                Ok(if size == 0 { Body::Trailer } else { Body::Chunk(size) })
            }
            Body::ChunkEnd if line.is_empty() => Ok(Body::Size),
            Body::Trailer => Ok(if line.is_empty() { Body::Done } else { Body::Trailer }),
            _ => Err(BadFraming),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` in pieces of `step` and returns (used, payload, end state).
    fn feed(mut body: Body, bytes: &[u8], step: usize) -> Result<(usize, u64, Body), BadFraming> {
        let (mut used, mut payload) = (0, 0);
        let mut have = 0;
        while have < bytes.len() && body != Body::Done {
            have = (have + step).min(bytes.len());
            let (u, p) = body.take(&bytes[used..have])?;
            used += u;
            payload += p;
        }
        Ok((used, payload, body))
    }

    #[test]
    fn bodies_end_where_they_say_however_they_are_cut() {
        let chunked = b"4;x=y\r\nwiki\r\n0A\r\n0123456789\r\n0\r\nT: v\r\n\r\nNEXT";
        for step in 1..chunked.len() {
            assert_eq!(feed(Body::Size, chunked, step), Ok((chunked.len() - 4, 14, Body::Done)), "step {step}");
        }
        assert_eq!(feed(Body::Length(3), b"abcdef", 2), Ok((3, 3, Body::Done)));
        assert_eq!(feed(Body::Length(0), b"x", 1), Ok((0, 0, Body::Done)));
        assert_eq!(feed(Body::UntilClose, b"abc", 1), Ok((3, 3, Body::UntilClose)));
    }

    #[test]
    fn bad_chunks_are_refused() {
        for bad in ["\r\n", "xyz\r\n", "-1\r\n", "1\r\nab\r\n", "11111111111111111\r\n"] {
            assert_eq!(feed(Body::Size, bad.as_bytes(), 64), Err(BadFraming), "{bad:?}");
        }
        assert_eq!(feed(Body::Size, &[b'1'; 5000], 5000), Err(BadFraming));
    }
}
