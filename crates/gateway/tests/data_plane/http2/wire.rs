//! A client that writes frames one by one, as RFC 9113 defines them, also those that a sound client never sends.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::stage::LIMIT;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Code of ENHANCE_YOUR_CALM.
pub(super) const CALM: u32 = 11;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// Returns the number in the payload: an error code or a window.
    pub(super) fn number(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }
}

/// Encodes a frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a length");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Encodes a field without indexing and without Huffman code (RFC 7541 Sec. 6.2.2).
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        match text.len() {
            short @ 0..=126 => bytes.push(short as u8),
            long => {
                bytes.push(127);
                let mut rest = long - 127;
                while rest >= 128 {
                    bytes.push((rest % 128) as u8 | 128);
                    rest /= 128;
                }
                bytes.push(rest as u8);
            }
        }
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// Encodes the pseudo-fields of a request for `http://a.test`.
pub(super) fn pseudo(method: &str, path: &str) -> Vec<u8> {
    [field(":method", method), field(":scheme", "http"), field(":authority", "a.test"), field(":path", path)].concat()
}

/// A client with one connection.
pub(super) struct Wire {
    stream: TcpStream,
}

impl Wire {
    /// Connects, and exchanges settings. `settings` is the payload of the client's.
    pub(super) fn connect(address: SocketAddr, settings: &[u8]) -> Wire {
        let stream = TcpStream::connect(address).expect("the gateway accepts");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(LIMIT)).expect("a socket");
        stream.set_write_timeout(Some(LIMIT)).expect("a socket");
        let mut wire = Wire { stream };
        wire.write(PREFACE);
        wire.send(SETTINGS, 0, 0, settings);
        assert_eq!(wire.next().map(|frame| frame.kind), Some(SETTINGS));
        wire.send(SETTINGS, ACK, 0, b"");
        wire
    }

    /// Writes bytes. A connection that the gateway has closed takes none.
    pub(super) fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub(super) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.write(&frame(kind, flags, stream, payload))
    }

    /// Sends the head of a request. `flags` without END_HEADERS, which is added.
    pub(super) fn request(&mut self, stream: u32, flags: u8, block: &[u8]) -> bool {
        self.send(HEADERS, flags | END_HEADERS, stream, block)
    }

    pub(super) fn get(&mut self, stream: u32, path: &str) -> bool {
        self.request(stream, END_STREAM, &pseudo("GET", path))
    }

    /// Returns the next frame, or `None` at the end of the connection.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let mut header = [0; 9];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("no frame arrives"),
            Err(_) => return None,
        }
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes(header[5..].try_into().expect("four bytes"));
        Some(Frame { kind: header[3], flags: header[4], stream, payload })
    }

    /// Returns the next frame of a kind, and skips others. Panics if the connection ends instead.
    pub(super) fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().expect("the connection ends too early");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Returns the next frame of a kind on a stream, and skips others.
    pub(super) fn until_stream(&mut self, kind: u8, stream: u32) -> Frame {
        loop {
            let frame = self.until(kind);
            if frame.stream == stream {
                return frame;
            }
        }
    }

    /// Returns the next frame of a kind that is no acknowledgement, and skips others.
    pub(super) fn until_unasked(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.until(kind);
            if frame.flags & ACK == 0 {
                return frame;
            }
        }
    }

    /// Returns the error code of the last GOAWAY before the end of the connection.
    pub(super) fn ends_with(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                code = Some(frame.number());
            }
        }
        code
    }

    /// Returns once the gateway has read all that was sent and has answered a ping. No frame before may be `unwanted`.
    pub(super) fn settle_without(&mut self, unwanted: impl Fn(&Frame) -> bool) {
        self.send(PING, 0, 0, b"settled?");
        loop {
            let frame = self.next().expect("the connection ends too early");
            assert!(!unwanted(&frame), "{frame:?}");
            if frame.kind == PING && frame.payload == b"settled?" {
                return;
            }
        }
    }
}
