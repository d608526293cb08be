//! A line of a gateway's access log, for its readers.
//!
//! The gateway formats its lines by hand, because that is part of every request. A test there compares them with this
//! type. The policy chooses the fields of a line, so a reader has to say which of them it cannot do without. Unknown
//! fields are ignored, so that logs of other versions can be read.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};

/// One request in the access log. `docs/guide/operating.md` describes the fields. Those that the line does not have are
/// `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoggedRequest<'a> {
    /// End of the request, RFC 3339, UTC, to the millisecond.
    #[serde(borrow)]
    pub time: Cow<'a, str>,
    /// How it ended: `served`, `tunnelled`, `redirected`, `challenge`, `shed`, `refused`, `failed`, `left`.
    #[serde(borrow)]
    pub ending: Cow<'a, str>,
    /// Name of the class or template, or `-` if it was refused before it had one.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub class: Option<Cow<'a, str>>,
    /// Reason, unless it was served.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// The decision that would have been carried out, if its class was observed: `release`, `shed`, `degrade`, `wait`.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub would: Option<Cow<'a, str>>,
    /// Why it would not have been served.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub would_reason: Option<Cow<'a, str>>,
    /// Status sent to the client, 0 if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Protocol of the client, such as `HTTP/1.1`.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Cow<'a, str>>,
    /// Method.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub method: Option<Cow<'a, str>>,
    /// Host in lower case, without port. Empty if it had none.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub host: Option<Cow<'a, str>>,
    /// Normal form of the path, with the query as it was sent.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub path: Option<Cow<'a, str>>,
    /// Address of the client, or `unix`.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub client: Option<Cow<'a, str>>,
    /// `http` or `https`.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Cow<'a, str>>,
    /// Version of TLS, if the connection was encrypted.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<Cow<'a, str>>,
    /// Subject of the client's certificate, if it had one.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<Cow<'a, str>>,
    /// Node that answered or failed last.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub node: Option<Cow<'a, str>>,
    /// Attempts after the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Milliseconds from the end of the head to the release or refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_wait_ms: Option<f64>,
    /// Milliseconds from the release to the node's last byte, 0 if it was not released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_time_ms: Option<f64>,
    /// Milliseconds from the end of the head to the last byte written to the client's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<f64>,
    /// Body bytes from the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// Body bytes to the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Trace id of `traceparent`. Empty if it had none.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Cow<'a, str>>,
    /// Version of the policy that classified it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<u64>,
    /// The header `Referer`.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub referer: Option<Cow<'a, str>>,
    /// The header `User-Agent`.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<Cow<'a, str>>,
}

/// Reads an optional string. Serde borrows a [`Cow`], but not one in an [`Option`].
fn text<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    #[derive(Deserialize)]
    struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
    Ok(Option::<Borrowed<'_>>::deserialize(from)?.map(|text| text.0))
}

/// Mark at the end of a field that was cut because it was longer than 1 KiB.
pub const CUT: char = '…';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_borrowed_and_absent_fields_are_none() {
        let line = r#"{"time":"t","ending":"served","class":"gold","host":null,"path":"/\"","total_ms":1.5}"#;
        let read: LoggedRequest<'_> = serde_json::from_str(line).expect("a line");
        assert!(matches!(read.class, Some(Cow::Borrowed("gold"))));
        assert!(matches!(&read.path, Some(Cow::Owned(path)) if path == "/\""));
        assert_eq!((read.host, read.total_ms, read.status), (None, Some(1.5), None));
        assert!(serde_json::from_str::<LoggedRequest<'_>>(r#"{"time":"t"}"#).is_err(), "no ending");
    }
}
