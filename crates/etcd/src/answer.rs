//! The answers of etcd, as JSON. Numbers of 64 bits are strings there, and a value of zero is left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Entry {
    /// The key.
    #[serde(deserialize_with = "bytes")]
    pub key: Vec<u8>,
    /// The value, at most [`MAX_VALUE`](crate::MAX_VALUE) bytes in values from [`Client`](crate::Client).
    #[serde(default, deserialize_with = "bytes")]
    pub value: Vec<u8>,
    /// Revision at which the key was created.
    #[serde(default, deserialize_with = "number")]
    pub create_revision: u64,
    /// Revision at which the value was last written.
    #[serde(default, deserialize_with = "number")]
    pub mod_revision: u64,
    /// The lease that it is bound to, or 0.
    #[serde(default, deserialize_with = "number")]
    pub lease: u64,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Header {
    #[serde(default, deserialize_with = "number")]
    pub(crate) revision: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Range {
    #[serde(default)]
    pub(crate) kvs: Vec<Entry>,
    #[serde(default)]
    pub(crate) more: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Transaction {
    #[serde(default)]
    pub(crate) header: Header,
    #[serde(default)]
    pub(crate) succeeded: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Lease {
    #[serde(rename = "ID", default, deserialize_with = "number")]
    pub(crate) id: u64,
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    pub(crate) ttl: u64,
}

/// Proof that a user has logged in.
#[derive(Deserialize)]
pub(crate) struct LogIn {
    pub(crate) token: String,
}

impl std::fmt::Debug for LogIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogIn(…)")
    }
}

/// Answers that etcd streams are wrapped, one in each line.
#[derive(Debug, Deserialize)]
pub(crate) struct Streamed<T> {
    pub(crate) result: T,
}

/// An answer with an error.
#[derive(Debug, Deserialize)]
pub(crate) struct Failure {
    #[serde(default)]
    pub(crate) error: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Text(String),
    Plain(u64),
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match Number::deserialize(deserializer)? {
        Number::Plain(number) => Ok(number),
        Number::Text(text) => text.parse().map_err(|_| serde::de::Error::custom("not a number")),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(deserializer)?).map_err(|_| serde::de::Error::custom("not base64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_etcd_are_read_and_others_are_errors() {
        let range: Range = serde_json::from_str(
            r#"{"header":{"cluster_id":"1","revision":"7"},"kvs":[{"key":"YQ==","create_revision":"5",
                "mod_revision":"6","version":"2","value":"YjE="}],"count":"1"}"#,
        )
        .unwrap();
        let entry = &range.kvs[0];
        assert_eq!(
            (&entry.key[..], &entry.value[..], entry.create_revision, entry.mod_revision),
            (&b"a"[..], &b"b1"[..], 5, 6)
        );
        assert!(!range.more);
        let empty: Range = serde_json::from_str(r#"{"header":{}}"#).unwrap();
        assert!(empty.kvs.is_empty());
        let lease: Lease = serde_json::from_str(r#"{"ID":"7587869","TTL":"2"}"#).unwrap();
        assert_eq!((lease.id, lease.ttl), (7_587_869, 2));
        for wrong in
            [r#"{"kvs":[{"key":"!"}]}"#, r#"{"kvs":[{"key":"YQ==","create_revision":"-1"}]}"#, r#"{"kvs":7}"#, "[", ""]
        {
            assert!(serde_json::from_str::<Range>(wrong).is_err(), "{wrong}");
        }
    }
}
