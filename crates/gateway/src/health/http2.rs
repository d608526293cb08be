//! A health check of a node that speaks HTTP/2: a GET, or a call of the health checking protocol of gRPC.
//!
//! Sources: *GRPC Health Checking Protocol* (`grpc.health.v1.Health/Check`), *gRPC over HTTP2* (messages with a prefix,
//! `grpc-status`), and the encoding of Protocol Buffers (a service is field 1, a status too). The two messages are
//! small enough to be written and read here.

use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use tokio::task::AbortHandle;

use crate::io::Io;

/// Path of the call.
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Bytes in front of a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Status of a service that takes calls, in `HealthCheckResponse`.
const SERVING: u64 = 1;

/// Maximum size of an answer. A status takes seven bytes.
const MAX_ANSWER: usize = 4 * 1024;

/// Field of a health check's answer with the status of the call.
const GRPC_STATUS: &str = "grpc-status";

/// A connection for one check. Dropping it closes the connection.
pub(super) struct Connection {
    send: SendRequest<Bytes>,
    scheme: &'static str,
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Begins to speak HTTP/2 on a transport.
    ///
    /// # Errors
    /// The node has closed it.
    pub(super) async fn begin(io: Io) -> Result<Connection, h2::Error> {
        let scheme = if io.is_tls() { "https" } else { "http" };
        let (send, connection) = h2::client::handshake(io).await?;
        let driver = tokio::task::spawn_local(async move {
            // The request reports the error.
            let _ = connection.await;
        });
        Ok(Connection { send, scheme, driver: driver.abort_handle() })
    }

    fn request(&self, method: Method, host: &str, path: &str) -> Option<Request<()>> {
        let path = PathAndQuery::try_from(path).ok()?;
        let uri = Uri::builder().scheme(self.scheme).authority(host).path_and_query(path).build().ok()?;
        let request = Request::builder().method(method).uri(uri).version(Version::HTTP_2);
        request.header("user-agent", super::AGENT).body(()).ok()
    }

    /// Returns the status of a GET. The body is not read.
    pub(super) async fn get(&mut self, host: &str, path: &str) -> Option<u16> {
        let request = self.request(Method::GET, host, path)?;
        let (response, _) = self.send.send_request(request, true).ok()?;
        Some(response.await.ok()?.status().as_u16())
    }

    /// Returns whether a service takes calls. The service without a name is the whole server.
    pub(super) async fn serves(&mut self, host: &str, service: &str) -> Option<bool> {
        let mut request = self.request(Method::POST, host, CHECK)?;
        for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
            request.headers_mut().insert(name, http::HeaderValue::from_static(value));
        }
        let (response, mut outgoing) = self.send.send_request(request, false).ok()?;
        outgoing.send_data(question(service), true).ok()?;
        let (head, mut incoming) = response.await.ok()?.into_parts();
        let mut answer = BytesMut::new();
        while let Some(piece) = incoming.data().await {
            let piece = piece.ok()?;
            incoming.flow_control().release_capacity(piece.len()).ok()?;
            if answer.len() + piece.len() > MAX_ANSWER {
                return None;
            }
            answer.extend_from_slice(&piece);
        }
        let trailers = incoming.trailers().await.ok()?.unwrap_or_default();
        Some(succeeded(&Response::from_parts(head, ()), &trailers) && status(&answer) == Some(SERVING))
    }
}

/// Whether a call has succeeded.
fn succeeded(head: &Response<()>, trailers: &HeaderMap) -> bool {
    let status = trailers.get(GRPC_STATUS).or_else(|| head.headers().get(GRPC_STATUS));
    head.status() == 200 && status.is_some_and(|status| status == "0")
}

/// Returns the message that asks for a service: `HealthCheckRequest` with its prefix.
fn question(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        // Field 1, with a length.
        message.push(1 << 3 | 2);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0][..], &length, &message].concat().into()
}

/// Returns the status in an answer: field 1 of `HealthCheckResponse`. A field that is left out is 0.
fn status(answer: &[u8]) -> Option<u64> {
    let (prefix, mut message) = answer.split_at_checked(PREFIX)?;
    let length = u32::from_be_bytes([0, *prefix.get(2)?, *prefix.get(3)?, *prefix.get(4)?]);
    if prefix.first() != Some(&0) || message.len() != length as usize {
        return None;
    }
    let mut status = 0;
    while !message.is_empty() {
        let tag = number(&mut message)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => status = number(&mut message)?,
            // Other fields are skipped, by their kind.
            (_, 0) => drop(number(&mut message)?),
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(number(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

/// Takes a number of variable length from the front of `bytes`.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        assert_eq!(&question("")[..], b"\0\0\0\0\0");
        assert_eq!(&question("a.B")[..], b"\0\0\0\0\x05\x0a\x03a.B");
        let long = question(&"x".repeat(200));
        assert_eq!(&long[..8], [0, 0, 0, 0, 203, 0x0a, 200, 1]);
    }

    #[test]
    fn a_status_is_field_one() {
        let of = |message: &[u8]| status(&[&[0, 0, 0, 0, message.len() as u8][..], message].concat());
        assert_eq!(
            (of(b""), of(b"\x08\x01"), of(b"\x08\x02"), of(b"\x08\x80\x01")),
            (Some(0), Some(1), Some(2), Some(128))
        );
        // Unknown fields, and a status that stands twice.
        assert_eq!(of(b"\x12\x02ab\x08\x02\x1d1234\x08\x01"), Some(1));
        assert_eq!((of(b"\x08"), of(b"\x0a\x05a"), of(b"\x0b")), (None, None, None));
        // Compressed, cut off, or followed by another message.
        assert_eq!(
            (status(b"\x01\0\0\0\0"), status(b"\0\0\0\0\x02\x08"), status(b"\0\0\0\0\0x"), status(b"")),
            (None, None, None, None)
        );
    }

    proptest! {
        #[test]
        fn no_answer_panics(answer in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = status(&answer);
            let _ = status(&[&[0, 0, 0, 0, answer.len() as u8][..], &answer].concat());
        }
    }
}
