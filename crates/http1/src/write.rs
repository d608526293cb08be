//! Heads and chunks to send.
//!
//! A head that is sent on is mostly the head that was received. [`fields`] copies runs of its lines at once, without
//! the fields that are to be left out. Lines that were accepted although they break a rule are written as they should
//! be.

use crate::{Field, Head};

/// Starts a request: its first line. `target` is written as it is.
pub fn request_line(out: &mut Vec<u8>, method: &[u8], target: &[u8]) {
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Starts a response: its first line.
pub fn status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

/// Writes the fields of `head`, which indexes `bytes`, without those for which `skip` returns true.
pub fn fields(out: &mut Vec<u8>, head: &Head, bytes: &[u8], mut skip: impl FnMut(&Field) -> bool) {
    // Start of the run of lines that can be copied as they are.
    let mut run = head.fields().first().map_or(head.end as usize, Field::start);
    for (index, field) in head.fields().iter().enumerate() {
        let skip = skip(field);
        if !skip && field.is_regular() {
            continue;
        }
        out.extend_from_slice(bytes.get(run..field.start()).unwrap_or_default());
        run = head.line_end(index);
        if !skip {
            self::field(out, field.spelling(bytes), field.value(bytes));
        }
    }
    out.extend_from_slice(bytes.get(run..head.end as usize).unwrap_or_default());
}

/// Writes one field.
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes one field with a number.
pub fn number(out: &mut Vec<u8>, name: &[u8], number: u64) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    decimal(out, number);
    out.extend_from_slice(b"\r\n");
}

/// Ends a head.
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Starts a chunk of `length` bytes (RFC 9112 Sec. 7.1). After its data comes [`CHUNK_END`]. `length` must not be 0,
/// because a chunk of that size ends the body.
pub fn chunk(out: &mut Vec<u8>, length: usize) {
    let mut digits = [0; 16];
    let mut at = digits.len();
    let mut rest = length;
    while rest > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b"0123456789abcdef"[rest % 16];
        rest /= 16;
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// Ends a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// Ends a chunked body. `trailers` are lines with their line ends, and may be empty.
pub fn last_chunk(out: &mut Vec<u8>, trailers: &[u8]) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers);
    out.extend_from_slice(b"\r\n");
}

/// Writes a number in decimal digits.
fn decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    while rest > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_of_the_standard_library() {
        for number in [0u64, 1, 9, 10, 15, 16, 17, 255, 4096, 65_535, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
            out.clear();
            chunk(&mut out, number as usize);
            assert_eq!(out, format!("{number:x}\r\n").as_bytes());
        }
    }
}
