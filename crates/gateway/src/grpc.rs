//! What gRPC adds to HTTP/2 that a gateway has to know: deadlines, and the form of its own responses.
//!
//! Sources: *gRPC over HTTP2* (`PROTOCOL-HTTP2.md`: `content-type`, `grpc-timeout`, Trailers-Only, `grpc-status`),
//! *HTTP to gRPC Status Code Mapping*, and gRFC A6 (`grpc-retry-pushback-ms`). Methods need no rule of their own,
//! because a method is a path.

use std::time::Duration;

use http::StatusCode;

use crate::request::Request;

/// Maximum number of digits of a timeout.
const MAX_DIGITS: usize = 8;

/// A status of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The deadline of the request has passed.
    DeadlineExceeded = 4,
    /// The client has used up its share, or sends too much.
    ResourceExhausted = 8,
    /// The request breaks a rule of HTTP.
    Internal = 13,
    /// The request may be sent again.
    Unavailable = 14,
}

impl Status {
    /// Returns the status for a response that the gateway would give over HTTP.
    pub(crate) fn of(status: StatusCode) -> Status {
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => Status::ResourceExhausted,
            StatusCode::GATEWAY_TIMEOUT => Status::DeadlineExceeded,
            status if status.is_client_error() => Status::Internal,
            _ => Status::Unavailable,
        }
    }
}

/// Whether a request that came over HTTP/2 is a call of gRPC.
pub(crate) fn is_call(request: &Request) -> bool {
    request.values("content-type").next().is_some_and(|kind| {
        let rest = kind.strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    })
}

/// Returns the time that the client waits for a call. A timeout that breaks the grammar is left to the server.
pub(crate) fn timeout(request: &Request) -> Option<Duration> {
    let text = request.values("grpc-timeout").next()?;
    let (&unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0u64, |count, digit| count * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &str) -> Request {
        Request::parse(format!("POST /a.B/c HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n").as_bytes()).expect("it is sound")
    }

    #[test]
    fn calls_are_known_by_their_type() {
        let is = |kind: &str| is_call(&request(&format!("Content-Type: {kind}")));
        assert!(is("application/grpc") && is("application/grpc+proto") && is("application/grpc;x=y"));
        assert!(!is("application/grpc-web") && !is("application/json") && !is_call(&request("X: y")));
    }

    #[test]
    fn timeouts_have_a_unit() {
        let of = |text: &str| timeout(&request(&format!("grpc-timeout: {text}")));
        assert_eq!(of("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(of("2M"), Some(Duration::from_secs(120)));
        assert_eq!(of("3S"), Some(Duration::from_secs(3)));
        assert_eq!(of("4m"), Some(Duration::from_millis(4)));
        assert_eq!(of("5u"), Some(Duration::from_micros(5)));
        assert_eq!(of("6n"), Some(Duration::from_nanos(6)));
        for wrong in ["", "S", "5", "5s", "-1S", "1.5S", "123456789S", "1 S"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn responses_have_the_status_of_the_mapping() {
        let of = |status| Status::of(StatusCode::from_u16(status).expect("a status")) as u8;
        assert_eq!([503, 502, 504, 429, 413, 400, 431].map(of), [14, 14, 4, 8, 8, 13, 13]);
    }
}
