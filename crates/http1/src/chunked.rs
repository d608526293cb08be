//! Chunked bodies (RFC 9112 Sec. 7.1). Framing is parsed byte by byte, data is taken at once.

use crate::bytes::{self, HEX, TOKEN, VALUE};
use crate::{Fault, Limits};

/// Maximum number of digits in a chunk size. 15 hexadecimal digits are an exabyte.
const MAX_SIZE_DIGITS: u8 = 15;

/// Maximum size of all chunk extensions in one body, in bytes. They are practically unused. Without a limit,
/// a body could consist of extensions only.
const MAX_EXTENSION_BYTES: u32 = 4096;

/// Fields that would change the meaning of data already passed on (RFC 9110 Sec. 6.5.1).
const NOT_IN_TRAILERS: [&[u8]; 8] = [
    b"content-length", b"transfer-encoding", b"host", b"te", b"trailer", b"connection", b"upgrade", b"content-encoding",
];

/// Number of bytes kept of a name: enough to tell the longest of [`NOT_IN_TRAILERS`] from a longer name.
const NAME_KEPT: usize = 18;

/// Parser state for one chunked body.
#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
    extensions: u32,
    /// Number of bytes and of fields in the trailer section so far.
    trailer_bytes: usize,
    trailers: usize,
    limits: Limits,
    name: [u8; NAME_KEPT],
    name_length: usize,
    /// The trailer section so far, with the line ends.
    section: Vec<u8>,
}

/// A part of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Number of bytes of framing at its front.
    pub(crate) skip: usize,
    /// Number of bytes of data after them.
    pub(crate) data: usize,
    /// Whether the body ends after them.
    pub(crate) end: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size { digits: u8, size: u64 },
    ExtensionName { empty: bool, size: u64 },
    ExtensionValue { empty: bool, size: u64 },
    Quoted { escaped: bool, size: u64 },
    AfterQuoted { size: u64 },
    SizeFeed { size: u64 },
    Data { left: u64 },
    DataReturn,
    DataFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerFeed,
    LastFeed,
}

impl Chunked {
    pub(crate) fn new(limits: Limits) -> Chunked {
        Chunked {
            state: State::Size { digits: 0, size: 0 },
            extensions: 0,
            trailer_bytes: 0,
            trailers: 0,
            limits,
            name: [0; NAME_KEPT],
            name_length: 0,
            section: Vec::new(),
        }
    }

    /// Takes framing from the front of `input`, and the data that follows it.
    pub(crate) fn take(&mut self, input: &[u8]) -> Result<Piece, Fault> {
        let mut skip = 0;
        while let Some(&byte) = input.get(skip) {
            if let State::Data { left } = self.state {
                let data = usize::try_from(left).unwrap_or(usize::MAX).min(input.len() - skip);
                let left = left - data as u64;
                self.state = if left == 0 { State::DataReturn } else { State::Data { left } };
                return Ok(Piece { skip, data, end: false });
            }
            match self.step(byte) {
                Ok(_) if self.state == State::LastFeed => return Ok(Piece { skip: skip + 1, data: 0, end: true }),
                Ok(next) => self.state = next,
                // Valid bytes are taken first, so that the result does not depend on how the input is split.
                Err(_) if skip > 0 => break,
                Err(fault) => return Err(fault),
            }
            skip += 1;
        }
        Ok(Piece { skip, data: 0, end: false })
    }

    /// Returns the lines of the trailer section that have been received, each with its line end.
    pub(crate) fn trailers(&self) -> &[u8] {
        &self.section
    }

    fn step(&mut self, byte: u8) -> Result<State, Fault> {
        Ok(match (self.state, byte) {
            (State::Size { digits, size }, _) if bytes::is(byte, HEX) => {
                if digits == MAX_SIZE_DIGITS {
                    return Err(Fault::ChunkTooLarge);
                }
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                State::Size { digits: digits + 1, size: size << 4 | digit }
            }
            (State::Size { digits, size }, b';') if digits > 0 => State::ExtensionName { empty: true, size },
            (State::Size { digits, size }, b'\r') if digits > 0 => State::SizeFeed { size },
            (State::Size { .. }, _) => return Err(Fault::ChunkSize),

            (State::ExtensionName { empty: false, size }, b'=') => State::ExtensionValue { empty: true, size },
            (
                State::ExtensionName { empty: false, size }
                | State::ExtensionValue { empty: false, size }
                | State::AfterQuoted { size },
                b';' | b'\r',
            ) => match byte {
                b';' => State::ExtensionName { empty: true, size },
                _ => State::SizeFeed { size },
            },
            (State::ExtensionName { size, .. }, _) if bytes::is(byte, TOKEN) => {
                self.extension_byte()?;
                State::ExtensionName { empty: false, size }
            }
            (State::ExtensionValue { empty: true, size }, b'"') => State::Quoted { escaped: false, size },
            (State::ExtensionValue { size, .. }, _) if bytes::is(byte, TOKEN) => {
                self.extension_byte()?;
                State::ExtensionValue { empty: false, size }
            }
            (State::Quoted { escaped: false, size }, b'"') => State::AfterQuoted { size },
            (State::Quoted { escaped, size }, _) if bytes::is(byte, VALUE) => {
                self.extension_byte()?;
                State::Quoted { escaped: !escaped && byte == b'\\', size }
            }
            (
                State::ExtensionName { .. }
                | State::ExtensionValue { .. }
                | State::Quoted { .. }
                | State::AfterQuoted { .. },
                _,
            ) => return Err(Fault::ChunkExtension),

            (State::SizeFeed { size: 0 }, b'\n') => State::TrailerStart,
            (State::SizeFeed { size }, b'\n') => State::Data { left: size },
            (State::DataReturn, b'\r') => State::DataFeed,
            (State::DataFeed, b'\n') => State::Size { digits: 0, size: 0 },
            (State::DataReturn | State::DataFeed, _) => return Err(Fault::ChunkEnd),

            (State::TrailerStart, b'\r') => State::LastFeed,
            (State::LastFeed, b'\n') => State::LastFeed,
            (State::TrailerStart | State::TrailerName, _) if bytes::is(byte, TOKEN) => {
                if self.state == State::TrailerStart {
                    self.trailers += 1;
                    self.name_length = 0;
                }
                self.trailer_byte(byte)?;
                if let Some(slot) = self.name.get_mut(self.name_length) {
                    *slot = byte.to_ascii_lowercase();
                }
                self.name_length = (self.name_length + 1).min(NAME_KEPT);
                State::TrailerName
            }
            (State::TrailerName, b':') => {
                if self.name.get(..self.name_length).is_some_and(|n| NOT_IN_TRAILERS.contains(&n)) {
                    return Err(Fault::TrailerName);
                }
                self.section.push(byte);
                State::TrailerValue
            }
            (State::TrailerValue, b'\r') => State::TrailerFeed,
            (State::TrailerValue, _) if bytes::is(byte, VALUE) => {
                self.trailer_byte(byte)?;
                State::TrailerValue
            }
            (State::TrailerFeed, b'\n') => {
                self.section.extend_from_slice(b"\r\n");
                State::TrailerStart
            }
            (State::TrailerStart | State::TrailerName | State::TrailerValue, _) => {
                return Err(Fault::Trailer);
            }
            (State::SizeFeed { .. } | State::TrailerFeed | State::LastFeed, _) => return Err(Fault::BareReturn),
            // The caller handles this state, because it can take many bytes at once.
            (State::Data { left }, _) => State::Data { left },
        })
    }

    fn extension_byte(&mut self) -> Result<(), Fault> {
        self.extensions += 1;
        if self.extensions > MAX_EXTENSION_BYTES { Err(Fault::ChunkExtensions) } else { Ok(()) }
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<(), Fault> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > self.limits.head_bytes || self.trailers > self.limits.fields {
            return Err(Fault::TrailersTooLarge);
        }
        self.section.push(byte);
        Ok(())
    }
}
