//! Lines of fields that `weirgate-http1` has accepted, as a map.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Returns the fields of `lines`, up to the first line without a colon. `None` if a line has a part that the `http`
/// crate does not accept.
pub(crate) fn parse(lines: &[u8]) -> Option<HeaderMap> {
    let mut fields = HeaderMap::new();
    for line in lines.split(|&b| b == b'\n') {
        let Some(colon) = line.iter().position(|&b| b == b':') else { break };
        let name = HeaderName::from_bytes(line.get(..colon)?).ok()?;
        let value = HeaderValue::from_bytes(line.get(colon + 1..)?.trim_ascii()).ok()?;
        fields.append(name, value);
    }
    Some(fields)
}
