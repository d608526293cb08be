//! Answers that the gateway gives itself, each with its reason.
//!
//! Source: RFC 9209 (`Proxy-Status`): the error types are those of its registry. Sheds for want of room say
//! `connection_limit_reached`, its nearest word for "as many as may be in flight are in flight". Sheds for want of
//! nodes that answer say `destination_unavailable`. `details` has the shed reason that metrics, logs and snapshots use.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderName, Response, StatusCode};
use weirgate_engine::{Shed, ShedReason};

use crate::edition::Prepared;
use crate::framing::Refusal;

const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Why the nodes could not answer: the error types of RFC 9209 Sec. 2.3 that apply to a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeError {
    /// Its address cannot be resolved.
    Dns,
    /// It is not reachable.
    Unavailable,
    /// It refused the connection.
    Refused,
    /// It did not take the connection in time.
    ConnectTimeout,
    /// It closed before it answered.
    Terminated,
    /// It did not answer in time.
    ResponseTimeout,
    /// It broke off in the middle of its answer.
    Incomplete,
    /// Its answer is not HTTP/1.1, or its end is ambiguous.
    Protocol,
    /// It changed the protocol unasked.
    Upgrade,
}

impl NodeError {
    /// The word of the registry.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            NodeError::Dns => "dns_error",
            NodeError::Unavailable => "destination_unavailable",
            NodeError::Refused => "connection_refused",
            NodeError::ConnectTimeout => "connection_timeout",
            NodeError::Terminated => "connection_terminated",
            NodeError::ResponseTimeout => "http_response_timeout",
            NodeError::Incomplete => "http_response_incomplete",
            NodeError::Protocol => "http_protocol_error",
            NodeError::Upgrade => "http_upgrade_failed",
        }
    }

    /// 504 for what took too long, 502 for the rest.
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            NodeError::ConnectTimeout | NodeError::ResponseTimeout => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    const fn proxy_status(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            NodeError::Dns => "weirgate; error=dns_error",
            NodeError::Unavailable => "weirgate; error=destination_unavailable",
            NodeError::Refused => "weirgate; error=connection_refused",
            NodeError::ConnectTimeout => "weirgate; error=connection_timeout",
            NodeError::Terminated => "weirgate; error=connection_terminated",
            NodeError::ResponseTimeout => "weirgate; error=http_response_timeout",
            NodeError::Incomplete => "weirgate; error=http_response_incomplete",
            NodeError::Protocol => "weirgate; error=http_protocol_error",
            NodeError::Upgrade => "weirgate; error=http_upgrade_failed",
        })
    }
}

/// The answer when the nodes failed.
pub(crate) fn failed(error: NodeError) -> Response<Bytes> {
    let mut response = text(error.status(), error.as_str());
    response.headers_mut().insert(PROXY_STATUS, error.proxy_status());
    response
}

/// The answer when this gateway has no file descriptor or port left for a connection to a node.
pub(crate) fn exhausted() -> Response<Bytes> {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached");
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(
        PROXY_STATUS,
        HeaderValue::from_static("weirgate; error=connection_limit_reached; details=\"gateway\""),
    );
    response
}

/// The answer to what is turned away.
pub(crate) fn shed(shed: Shed, prepared: Option<&Prepared>) -> Response<Bytes> {
    let mut response = match prepared {
        Some(prepared) => {
            let mut response = Response::new(prepared.body.clone());
            *response.status_mut() = prepared.status;
            response.headers_mut().insert(CONTENT_TYPE, prepared.content_type.clone());
            response
        }
        None => text(StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
    };
    // Who gets a simpler page instead has no reason to come back.
    let refused = !response.status().is_success();
    let headers = response.headers_mut();
    if refused {
        // Whole seconds, rounded up: a client that comes earlier comes in vain.
        let seconds = shed.retry_after.as_secs() + u64::from(shed.retry_after.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
    headers.insert(
        PROXY_STATUS,
        HeaderValue::from_static(match shed.reason {
            ShedReason::Deadline => "weirgate; error=connection_limit_reached; details=\"deadline\"",
            ShedReason::QueueFull => "weirgate; error=connection_limit_reached; details=\"queue_full\"",
            ShedReason::FlowFull => "weirgate; error=connection_limit_reached; details=\"source_full\"",
            ShedReason::TotalFull => "weirgate; error=connection_limit_reached; details=\"all_queues_full\"",
            ShedReason::QueueTimeout => "weirgate; error=connection_limit_reached; details=\"queue_timeout\"",
            ShedReason::Overload => "weirgate; error=connection_limit_reached; details=\"overload\"",
            ShedReason::Threshold => "weirgate; error=connection_limit_reached; details=\"threshold\"",
            ShedReason::ServerLoad => "weirgate; error=connection_limit_reached; details=\"server_load\"",
            ShedReason::TooLarge => "weirgate; error=connection_limit_reached; details=\"too_large\"",
            ShedReason::NoNode => "weirgate; error=destination_unavailable; details=\"no_node\"",
            ShedReason::NodesSlow => "weirgate; error=destination_unavailable; details=\"nodes_slow\"",
        }),
    );
    response
}

/// The answer to a request that breaks the rules. It closes: what follows is not worth a guess.
pub(crate) fn refused(refusal: Refusal) -> Response<Bytes> {
    let mut response = text(refusal.status, refusal.what);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(http::header::ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    }
    let status = format!("weirgate; error=http_request_error; details=\"{}\"", refusal.what);
    if let Ok(value) = HeaderValue::try_from(status) {
        response.headers_mut().insert(PROXY_STATUS, value);
    }
    response
}

fn text(status: StatusCode, what: &str) -> Response<Bytes> {
    let reason = status.canonical_reason().unwrap_or("Error");
    let mut response = Response::new(Bytes::from(format!("{} {reason}: {what}\n", status.as_u16())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}

/// The whole answer, as bytes, to a request whose handling panicked: nothing else is trusted then.
pub(crate) const PANICKED: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain; charset=utf-8\r\n\
proxy-status: weirgate; error=proxy_internal_error\r\ncontent-length: 26\r\nconnection: close\r\n\r\n500 Internal Server Error\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_status_has_the_word_that_logs_have() {
        for error in [
            NodeError::Dns,
            NodeError::Unavailable,
            NodeError::Refused,
            NodeError::ConnectTimeout,
            NodeError::Terminated,
            NodeError::ResponseTimeout,
            NodeError::Incomplete,
            NodeError::Protocol,
            NodeError::Upgrade,
        ] {
            assert_eq!(failed(error).headers()[PROXY_STATUS], format!("weirgate; error={}", error.as_str()));
        }
        for reason in ShedReason::ALL {
            let answer =
                shed(Shed { reason, retry_after: std::time::Duration::from_millis(1500), fallback: None }, None);
            let status = answer.headers()[PROXY_STATUS].to_str().expect("ASCII");
            assert!(status.ends_with(&format!("details=\"{reason}\"")), "{status}");
            assert_eq!(answer.headers()[RETRY_AFTER], "2");
        }
    }

    #[test]
    fn the_last_resort_is_well_formed() {
        let text = std::str::from_utf8(PANICKED).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("content-length: {}", body.len())));
    }
}
