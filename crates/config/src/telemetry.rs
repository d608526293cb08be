//! The export of traces and metrics as a policy configures it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use weirgate_spanned_yaml::read::read_bounded;

/// Maximum size of a file with header fields. Keys of receivers have less than a kilobyte.
const MAX_FIELDS: usize = 16 << 10;

/// Fields that the gateway itself writes.
const OWN: [&str; 7] =
    ["host", "connection", "content-type", "content-length", "content-encoding", "transfer-encoding", "user-agent"];

/// Export of traces and metrics to a collector, by OTLP over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// Whether the connection is encrypted.
    pub https: bool,
    /// `host:port` of the collector.
    pub address: String,
    /// Path in front of `/v1/traces` and `/v1/metrics`, without a slash at its end.
    pub path: String,
    /// File with the authorities that its certificate may be of. `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// File with header fields for each export. [`header_fields`] reads it.
    pub headers_file: Option<PathBuf>,
    /// Share of the traces that are exported, 0 to 1.
    pub traces: f64,
    /// Time between two exports of metrics. `None` if there are none.
    pub metrics_every: Option<Duration>,
    /// Name of the service.
    pub service: String,
}

/// Reads a file with header fields: one `Name: value` a line. Empty lines and those that begin with `#` do not count.
///
/// # Errors
/// The file cannot be read, or a line is no field that may be added. The text has no value of a field, because it may
/// be a secret.
pub fn header_fields(path: &Path) -> Result<Vec<(String, String)>, String> {
    let of = |why: String| format!("{}: {why}", path.display());
    let bytes = read_bounded(path).map_err(|error| of(error.to_string()))?;
    if bytes.len() > MAX_FIELDS {
        return Err(of(format!("it has {} bytes, more than {MAX_FIELDS}", bytes.len())));
    }
    let text = String::from_utf8(bytes).map_err(|_| of("it is no text in UTF-8".to_owned()))?;
    let mut fields = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| of(format!("line {}: {why}", number + 1));
        let (name, value) = line.split_once(':').ok_or_else(|| wrong("it is not `Name: value`"))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(wrong("what is in front of the colon is no name of a header field"));
        }
        if HeaderValue::from_str(&value).is_err() {
            return Err(wrong("the value has characters that a header field may not have"));
        }
        if OWN.contains(&name.as_str()) {
            return Err(wrong(&format!("the gateway itself writes `{name}`")));
        }
        fields.push((name, value));
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("it can be written");
        let fields = header_fields(file.path());
        fields.map_err(|why| why.replace(&file.path().display().to_string(), "FILE"))
    }

    #[test]
    fn a_file_has_a_field_a_line() {
        let fields = read("# of the shop\n\nAuthorization: Bearer a:b\r\nX-Scope-OrgID:1\n").expect("fields");
        let expected = [("authorization", "Bearer a:b"), ("x-scope-orgid", "1")];
        assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_wrong_line_is_named_without_its_value() {
        for (text, why) in [
            ("a: b\nsecret", "FILE: line 2: it is not `Name: value`"),
            ("a b: secret", "FILE: line 1: what is in front of the colon is no name of a header field"),
            ("a: se\u{1}cret", "FILE: line 1: the value has characters that a header field may not have"),
            ("Host: secret", "FILE: line 1: the gateway itself writes `host`"),
            (&"x".repeat(20_000), "FILE: it has 20000 bytes, more than 16384"),
        ] {
            assert_eq!(read(text), Err(why.to_owned()));
        }
        assert!(header_fields(Path::new("/nowhere/x")).is_err());
    }
}
