//! Reason for refusing input before it is a valid request.

use http::StatusCode;
use weirgate_http1::Fault;

/// A status, and a text for logs and for the body of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// 400, 405, 408, 413, 414, 417 or 431.
    pub(crate) status: StatusCode,
    /// The fault, in a few words.
    pub(crate) what: &'static str,
}

impl Refusal {
    /// A refusal with status 400.
    pub(crate) const fn bad(what: &'static str) -> Refusal {
        Refusal { status: StatusCode::BAD_REQUEST, what }
    }

    /// A refusal with another status.
    pub(crate) const fn with(status: StatusCode, what: &'static str) -> Refusal {
        Refusal { status, what }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        let status = StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::BAD_REQUEST);
        Refusal { status, what: fault.text() }
    }
}
