//! Why a request was refused before it became one.

use http::StatusCode;

/// A status and a word for logs and for the body of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// 400, 408, 413, 414, 417, 421, 431, 501.
    pub(crate) status: StatusCode,
    /// What is wrong, in a few words.
    pub(crate) what: &'static str,
}

impl Refusal {
    /// 400.
    pub(crate) const fn bad(what: &'static str) -> Refusal {
        Refusal { status: StatusCode::BAD_REQUEST, what }
    }

    /// Another status.
    pub(crate) const fn with(status: StatusCode, what: &'static str) -> Refusal {
        Refusal { status, what }
    }
}
