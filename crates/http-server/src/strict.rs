//! The data plane's strict request check, applied to requests to Weirgate itself.
//!
//! In place of input that [`Requests`] refuses, hyper receives a byte with which no request can start. hyper
//! then sends the responses that are still due, answers 400 and closes the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weirgate_http1::{Event, Limits, Requests};

use super::serve::{MAX_HEAD, MAX_HEADERS};

/// Maximum number of bytes read at once.
const READ: usize = 8 * 1024;

/// A byte with which no request can start.
const NOT_HTTP: u8 = 0;

/// A stream that checks incoming requests.
pub(super) struct Strict<S> {
    stream: S,
    requests: Requests,
    /// Bytes received and not yet passed on.
    input: Vec<u8>,
    /// Number of bytes at the front of `input` that may pass.
    checked: usize,
    refused: bool,
}

impl<S> Strict<S> {
    pub(super) fn new(stream: S) -> Strict<S> {
        let limits = Limits { head_bytes: MAX_HEAD, fields: MAX_HEADERS };
        Strict { stream, requests: Requests::new(limits), input: Vec::new(), checked: 0, refused: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.refused {
                return Poll::Ready(Ok(()));
            }
            if this.checked > 0 {
                let bytes = this.checked.min(out.remaining());
                out.put_slice(this.input.get(..bytes).unwrap_or_default());
                this.input.drain(..bytes);
                this.checked -= bytes;
                return Poll::Ready(Ok(()));
            }
            let between = this.requests.is_between();
            match this.requests.receive(&this.input) {
                Ok(Event::Skip(bytes)) if between => drop(this.input.drain(..bytes)),
                Ok(Event::Head(bytes) | Event::Skip(bytes) | Event::End(bytes)) => this.checked = bytes,
                Ok(Event::Data { skip, data }) => this.checked = skip + data,
                Ok(Event::More) => {
                    let mut space = [0; READ];
                    let mut read = ReadBuf::new(&mut space);
                    ready!(Pin::new(&mut this.stream).poll_read(cx, &mut read))?;
                    if read.filled().is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                    this.input.extend_from_slice(read.filled());
                }
                // This server never switches protocols.
                Ok(Event::Hold) => this.requests.resume(),
                Err(_) if between => {
                    this.refused = true;
                    out.put_slice(&[NOT_HTTP]);
                    return Poll::Ready(Ok(()));
                }
                Err(_) => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strict<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
