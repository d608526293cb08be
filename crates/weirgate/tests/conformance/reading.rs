//! The meaning of a client's bytes: the requests they contain and their end.

use crate::message::{Form, Parsed, Request, parse};

/// The only meaning of a client's bytes.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Whole requests, in order. No other request may reach a node whole.
    pub(crate) requests: Vec<Request>,
    /// The state after them.
    pub(crate) end: End,
}

/// The end of a client's bytes.
#[derive(Debug)]
pub(crate) enum End {
    /// After a whole request. Another one may follow.
    Idle,
    /// The last request ends the connection, and bytes after it have no meaning.
    Closed,
    /// In the middle of a request. Its head may be complete.
    Open(Option<Request>),
    /// With bytes that are no request. The head may be right.
    Malformed(Option<Request>),
}

/// Reads all bytes that a client sends on one connection.
pub(crate) fn read(bytes: &[u8]) -> Reading {
    let mut requests: Vec<Request> = Vec::new();
    let mut rest = bytes;
    let end = loop {
        if requests.last().is_some_and(|last| !last.persistent) {
            break End::Closed;
        }
        match parse(rest, Form::Received) {
            Parsed::Whole { request, used } => {
                requests.push(request);
                rest = &rest[used..];
            }
            Parsed::Part { head: None } if rest.chunks(2).all(|pair| pair == b"\r\n") => break End::Idle,
            Parsed::Part { head } => break End::Open(head),
            Parsed::Malformed { head, .. } => break End::Malformed(head),
        }
    };
    Reading { requests, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(bytes: &[u8]) -> (usize, &'static str) {
        let reading = read(bytes);
        let end = match reading.end {
            End::Idle => "idle",
            End::Closed => "closed",
            End::Open(_) => "open",
            End::Malformed(_) => "malformed",
        };
        (reading.requests.len(), end)
    }

    #[test]
    fn counts_what_is_there() {
        assert_eq!(count(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n\r\n"), (2, "idle"));
        assert_eq!(
            count(b"\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\nGET /b HTTP/1.1\r\n"),
            (1, "closed")
        );
        assert_eq!(count(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab"), (0, "open"));
        assert_eq!(count(b"GET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n"), (1, "closed"));
        let chunked =
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n2;x=y\r\nab\r\n0\r\nX: y\r\n\r\n";
        assert_eq!(count(chunked), (1, "idle"));
        assert_eq!(read(chunked).requests[0].body, b"ab");
    }

    #[test]
    fn refuses_what_has_two_meanings() {
        for doubtful in [
            &b"GET / HTTP/1.1\nHost: a\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n b: c\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        ] {
            assert_eq!(count(doubtful), (0, "malformed"), "{}", doubtful.escape_ascii());
        }
    }
}
