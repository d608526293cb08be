//! Chunked bodies (RFC 9112 Sec. 7.1), parsed byte by byte.

use super::bytes::{self, HEX, TOKEN, VALUE};
use super::{Bounds, Refusal};

/// Maximum number of digits in a chunk size. 15 hexadecimal digits are an exabyte.
const MAX_SIZE_DIGITS: u8 = 15;

/// Maximum size of all chunk extensions in one body, in bytes. They are practically unused. Without a limit,
/// a body could consist of extensions only.
const MAX_EXTENSION_BYTES: u32 = 4096;

/// Fields that would change the meaning of data already passed on (RFC 9110 Sec. 6.5.1).
const NOT_IN_TRAILERS: [&[u8]; 8] = [
    b"content-length",
    b"transfer-encoding",
    b"host",
    b"te",
    b"trailer",
    b"connection",
    b"upgrade",
    b"content-encoding",
];

/// Number of bytes kept of a name: enough to tell the longest of [`NOT_IN_TRAILERS`] from a longer name.
const NAME_KEPT: usize = 18;

/// Parser state for one chunked body.
#[derive(Debug)]
pub(super) struct Chunked {
    state: State,
    extensions: u32,
    trailer_bytes: usize,
    trailers: usize,
    bounds: Bounds,
    name: [u8; NAME_KEPT],
    name_length: usize,
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
    pub(super) fn new(bounds: Bounds) -> Chunked {
        Chunked {
            state: State::Size { digits: 0, size: 0 },
            extensions: 0,
            trailer_bytes: 0,
            trailers: 0,
            bounds,
            name: [0; NAME_KEPT],
            name_length: 0,
        }
    }

    /// Returns the number of bytes at the front of `input` that belong to the body, and whether the body ends
    /// there.
    pub(super) fn scan(&mut self, input: &[u8]) -> Result<(usize, bool), Refusal> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            if let State::Data { left } = self.state {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(input.len() - at);
                at += here;
                let left = left - here as u64;
                self.state = if left == 0 { State::DataReturn } else { State::Data { left } };
                continue;
            }
            match self.step(byte) {
                Ok(_) if self.state == State::LastFeed => return Ok((at + 1, true)),
                Ok(next) => self.state = next,
                // Valid bytes pass first, so that the result does not depend on how the input is split.
                Err(_) if at > 0 => break,
                Err(refusal) => return Err(refusal),
            }
            at += 1;
        }
        Ok((at, false))
    }

    fn step(&mut self, byte: u8) -> Result<State, Refusal> {
        Ok(match (self.state, byte) {
            (State::Size { digits, size }, _) if bytes::is(byte, HEX) => {
                if digits == MAX_SIZE_DIGITS {
                    return Err(Refusal::bad("a chunk size is too large"));
                }
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                State::Size { digits: digits + 1, size: size << 4 | digit }
            }
            (State::Size { digits, size }, b';') if digits > 0 => State::ExtensionName { empty: true, size },
            (State::Size { digits, size }, b'\r') if digits > 0 => State::SizeFeed { size },
            (State::Size { .. }, _) => return Err(Refusal::bad("a chunk size is not a hexadecimal number")),

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
            ) => return Err(Refusal::bad("a chunk extension is not valid")),

            (State::SizeFeed { size: 0 }, b'\n') => State::TrailerStart,
            (State::SizeFeed { size }, b'\n') => State::Data { left: size },
            (State::DataReturn, b'\r') => State::DataFeed,
            (State::DataFeed, b'\n') => State::Size { digits: 0, size: 0 },
            (State::DataReturn | State::DataFeed, _) => return Err(Refusal::bad("a chunk is longer than its size")),

            (State::TrailerStart, b'\r') => State::LastFeed,
            (State::LastFeed, b'\n') => State::LastFeed,
            (State::TrailerStart | State::TrailerName, _) if bytes::is(byte, TOKEN) => {
                if self.state == State::TrailerStart {
                    self.trailers += 1;
                    self.name_length = 0;
                }
                self.trailer_byte()?;
                if let Some(slot) = self.name.get_mut(self.name_length) {
                    *slot = byte.to_ascii_lowercase();
                }
                self.name_length = (self.name_length + 1).min(NAME_KEPT);
                State::TrailerName
            }
            (State::TrailerName, b':') => {
                if self.name.get(..self.name_length).is_some_and(|n| NOT_IN_TRAILERS.contains(&n)) {
                    return Err(Refusal::bad("a trailer field belongs into the head"));
                }
                State::TrailerValue
            }
            (State::TrailerValue, b'\r') => State::TrailerFeed,
            (State::TrailerValue, _) if bytes::is(byte, VALUE) => {
                self.trailer_byte()?;
                State::TrailerValue
            }
            (State::TrailerFeed, b'\n') => State::TrailerStart,
            (State::TrailerStart | State::TrailerName | State::TrailerValue, _) => {
                return Err(Refusal::bad("a trailer field is not valid"));
            }
            (State::SizeFeed { .. } | State::TrailerFeed | State::LastFeed, _) => return Err(BARE_RETURN),
            // The caller handles this state, because it can take many bytes at once.
            (State::Data { left }, _) => State::Data { left },
        })
    }

    fn extension_byte(&mut self) -> Result<(), Refusal> {
        self.extensions += 1;
        if self.extensions > MAX_EXTENSION_BYTES {
            return Err(Refusal::bad("the chunk extensions are too long"));
        }
        Ok(())
    }

    fn trailer_byte(&mut self) -> Result<(), Refusal> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > self.bounds.head_bytes || self.trailers > self.bounds.headers {
            return Err(Refusal::with(
                http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the trailer section is too large",
            ));
        }
        Ok(())
    }
}

const BARE_RETURN: Refusal = Refusal::bad("a carriage return stands alone");
