//! Reasons for refusing input before it is a valid request: those of a message, and the gateway's own.

use http::StatusCode;
use weirgate_http1::Fault;

/// Declares the gateway's own refusals once. Status, text and source come from the same lines.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $text:literal, $source:literal;)*) => {
        /// Reason for refusing input.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Refusal {
            /// The message breaks a rule of HTTP/1.1.
            Message(Fault),
            $($(#[$doc])* $name,)*
        }

        impl Refusal {
            /// Status of the response: 400, 405, 408, 413, 414, 417, 431 or 501.
            pub(crate) fn status(self) -> StatusCode {
                match self {
                    Refusal::Message(fault) => {
                        StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::BAD_REQUEST)
                    }
                    $(Refusal::$name => StatusCode::$status,)*
                }
            }

            /// The reason in a few words, for logs and for the body of the response.
            pub(crate) fn text(self) -> &'static str {
                match self {
                    Refusal::Message(fault) => fault.text(),
                    $(Refusal::$name => $text,)*
                }
            }
        }

        /// The gateway's own refusals, each with the section that forbids the input, or that permits to refuse it.
        #[cfg(test)]
        const OWN: &[(Refusal, &str)] = &[$((Refusal::$name, $source)),*];
    };
}

refusals! {
    /// The target is neither a path nor a URL of `http` or `https`.
    TargetForm = BAD_REQUEST, "the request target is neither a path nor an http URL", "RFC 9112 Sec. 3.2";
    /// `*` with another method.
    Asterisk = BAD_REQUEST, "the request target * is for OPTIONS only", "RFC 9112 Sec. 3.2.4";
    /// The authority of an absolute target is not valid.
    Host = BAD_REQUEST, "the host is not valid", "RFC 9110 Sec. 4.2.1";
    /// An absolute target and `Host` disagree.
    Authorities = BAD_REQUEST, "Host and the request target name different authorities", "RFC 9112 Sec. 3.2";
    /// A percent sign without two hexadecimal digits.
    Escape = BAD_REQUEST, "the path has a broken percent-encoding", "RFC 3986 Sec. 2.1";
    /// `%00` in a path.
    Nul = BAD_REQUEST, "the path has an encoded NUL", "RFC 3986 Sec. 7.3";
    /// Bytes in a path that no client sends there.
    PathBytes = BAD_REQUEST, "the path has bytes that are not allowed", "RFC 3986 Sec. 3.3";
    /// More `..` than segments before.
    AboveRoot = BAD_REQUEST, "the path leaves the root", "RFC 3986 Sec. 5.2.4";
    /// `..;a`, which some application servers read as `..`.
    DotParameters = BAD_REQUEST, "a dot segment has parameters", "RFC 3986 Sec. 3.3";
    /// `CONNECT`, `TRACE`.
    Method = METHOD_NOT_ALLOWED, "the method is not served here", "RFC 9110 Sec. 15.5.6";
    /// A head that is not complete in its time.
    SlowHead = REQUEST_TIMEOUT, "the request head came too slowly", "RFC 9110 Sec. 15.5.9";
    /// A body below its minimum rate.
    SlowBody = REQUEST_TIMEOUT, "the request body came too slowly", "RFC 9110 Sec. 15.5.9";
    /// A body above its maximum size.
    LargeBody = PAYLOAD_TOO_LARGE, "the request body is too large", "RFC 9110 Sec. 15.5.14";
    /// Another expectation than `100-continue`.
    Expectation = EXPECTATION_FAILED, "100-continue is the only supported expectation", "RFC 9110 Sec. 10.1.1";
    /// A plain request of HTTP/1.0 without `Host`, where listeners redirect to `https`.
    RedirectHost = BAD_REQUEST, "the request names no host, so it cannot be redirected to https", "RFC 9110 Sec. 4.2.2";
    /// A plain `OPTIONS *`, where listeners redirect to `https`.
    RedirectAsterisk = BAD_REQUEST, "the request target * cannot be redirected to https", "RFC 9110 Sec. 4.2.2";
    /// Fields of HTTP/2 that make no head of HTTP/1.1.
    Http2Head = BAD_REQUEST, "the head is not valid", "RFC 9113 Sec. 8.1.1";
    /// A `:path` of HTTP/2 that is no path.
    Http2Path = BAD_REQUEST, "the path does not start with /", "RFC 9113 Sec. 8.3.1";
    /// Trailers of HTTP/2 that make no trailer section of HTTP/1.1.
    Http2Trailers = BAD_REQUEST, "the trailers are not valid", "RFC 9113 Sec. 8.1";
    /// An extended CONNECT for something else than a WebSocket.
    Protocol = NOT_IMPLEMENTED, "websocket is the only supported protocol of a CONNECT", "RFC 9110 Sec. 15.6.2";
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal::Message(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_every_refusal_with_its_source() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/http.md");
        let page = std::fs::read_to_string(page).expect("the page is in the repository");
        for (refusal, source) in OWN {
            let start = format!("| {} | {} | ", refusal.status().as_u16(), refusal.text());
            let line = page.lines().find(|line| line.starts_with(&start));
            let line = line.unwrap_or_else(|| panic!("docs/guide/http.md has no line {start}"));
            assert!(line.ends_with(&format!(" | {source} |")), "{line}");
        }
    }
}
