//! A line of a gateway's access log, for its readers.
//!
//! The gateway formats its lines by hand, because that is part of every request. A test there compares them with this
//! type. Fields that a reader can do without have defaults, and unknown fields are ignored, so that logs of other
//! versions can be read.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// One request in the access log. `docs/guide/operating.md` describes the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoggedRequest<'a> {
    /// End of the request, RFC 3339, UTC, to the millisecond.
    #[serde(borrow)]
    pub time: Cow<'a, str>,
    /// Name of the class or template, or `-` if it was refused before it had one.
    #[serde(borrow)]
    pub class: Cow<'a, str>,
    /// How it ended: `served`, `tunnelled`, `redirected`, `challenge`, `shed`, `refused`, `failed`, `left`.
    #[serde(borrow)]
    pub ending: Cow<'a, str>,
    /// Reason, unless it was served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// Status sent to the client, 0 if none was.
    #[serde(default)]
    pub status: u16,
    /// Protocol of the client, such as `HTTP/1.1`.
    #[serde(borrow, default)]
    pub protocol: Cow<'a, str>,
    /// Method.
    #[serde(borrow)]
    pub method: Cow<'a, str>,
    /// Host in lower case, without port.
    #[serde(borrow)]
    pub host: Cow<'a, str>,
    /// Normal form of the path, with the query as it was sent.
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    /// Address of the client, or `unix`.
    #[serde(borrow)]
    pub client: Cow<'a, str>,
    /// `http` or `https`.
    #[serde(borrow, default)]
    pub scheme: Cow<'a, str>,
    /// Version of TLS, if the connection was encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<Cow<'a, str>>,
    /// Subject of the client's certificate, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<Cow<'a, str>>,
    /// Node that answered or failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Cow<'a, str>>,
    /// Attempts after the first.
    #[serde(default)]
    pub retries: u32,
    /// Milliseconds from the end of the head to the release or refusal.
    pub queue_wait_ms: f64,
    /// Milliseconds from the release to the node's last byte, 0 if it was not released.
    pub service_time_ms: f64,
    /// Milliseconds from the end of the head to the last byte written to the client's socket.
    pub total_ms: f64,
    /// Body bytes from the client.
    #[serde(default)]
    pub bytes_in: u64,
    /// Body bytes to the client.
    #[serde(default)]
    pub bytes_out: u64,
    /// Trace id of `traceparent`. Empty if it had none.
    #[serde(borrow, default)]
    pub trace_id: Cow<'a, str>,
    /// Version of the policy that classified it.
    #[serde(default)]
    pub policy_version: u64,
}

/// Mark at the end of a field that was cut because it was longer than 1 KiB.
pub const CUT: char = '…';
