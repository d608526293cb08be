//! The head of a message, for clients and nodes of tests.

use std::io::{self, Read};

/// Reads the head of a request or of an answer, and nothing behind it.
pub(crate) fn head(stream: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
