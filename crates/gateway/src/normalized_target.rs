//! Normalised target of a request: its authority and path, in the one form used from here on.
//!
//! Source: RFC 9112 Sec. 3.2 (the four forms of a request target) and 3.2.2: an absolute target replaces
//! `Host`. Departure: a `Host` that differs from the authority in the target is refused, because it is not
//! known which of the two the node uses.

use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use weirgate_http1::split;

use crate::path;
use crate::refusal::Refusal;

/// Authority and path of a request.
#[derive(Clone, Debug)]
pub(crate) struct NormalizedTarget {
    /// In lower case, without a final dot, with the port if one was sent. Empty for HTTP/1.0 without `Host`.
    pub(crate) authority: HeaderValue,
    /// Length of the host within the authority.
    host_end: usize,
    /// Canonical path and raw query, or `*`.
    pub(crate) target: PathAndQuery,
}

impl NormalizedTarget {
    /// Normalises the target of a head that has passed the framing check.
    ///
    /// # Errors
    /// The target is ambiguous or has a form that this gateway does not serve.
    pub(crate) fn of(
        method: &Method,
        uri: &Uri,
        version: Version,
        headers: &HeaderMap,
    ) -> Result<NormalizedTarget, Refusal> {
        if matches!(*method, Method::CONNECT | Method::TRACE) {
            return Err(Refusal::with(StatusCode::METHOD_NOT_ALLOWED, "the method is not served here"));
        }
        let host = headers.get(HOST);
        let (authority, host_end) = match (uri.authority(), uri.scheme_str()) {
            (None, _) => match host {
                Some(host) => canonical_authority(host.as_bytes(), Some(host))?,
                None if version == Version::HTTP_10 => (HeaderValue::from_static(""), 0),
                None => return Err(Refusal::bad("there is no Host header")),
            },
            (Some(authority), Some("http" | "https")) => {
                let found = canonical_authority(authority.as_str().as_bytes(), None)?;
                if let Some(host) = host
                    && canonical_authority(host.as_bytes(), Some(host))? != found
                {
                    return Err(Refusal::bad("Host and the request target name different authorities"));
                }
                found
            }
            (Some(_), _) => return Err(Refusal::bad("the request target is neither a path nor an http URL")),
        };
        let target = match uri.path_and_query() {
            Some(target) if target.as_str() == "*" && uri.authority().is_none() => {
                if *method != Method::OPTIONS {
                    return Err(Refusal::bad("the request target * is for OPTIONS only"));
                }
                target.clone()
            }
            Some(target) => canonical_target(target)?,
            None => PathAndQuery::from_static("/"),
        };
        Ok(NormalizedTarget { authority, host_end, target })
    }

    /// Returns the host without port.
    pub(crate) fn host(&self) -> &str {
        std::str::from_utf8(self.authority.as_bytes()).ok().and_then(|a| a.get(..self.host_end)).unwrap_or_default()
    }
}

/// Returns the canonical form and the length of its host. `sent` is reused if it is canonical.
fn canonical_authority(text: &[u8], sent: Option<&HeaderValue>) -> Result<(HeaderValue, usize), Refusal> {
    let parts = split(text).ok_or(Refusal::bad("the host is not valid"))?;
    let host_end = parts.host.len();
    if let Some(sent) = sent
        && (host_end == text.len() || (parts.port.is_some() && text.get(host_end) == Some(&b':')))
        && !text.iter().any(u8::is_ascii_uppercase)
    {
        return Ok((sent.clone(), host_end));
    }
    let mut form = parts.host.to_ascii_lowercase();
    if let Some(port) = parts.port {
        form.push(':');
        form.push_str(&port.to_string());
    }
    let value = HeaderValue::try_from(form).map_err(|_| Refusal::bad("the host is not valid"))?;
    Ok((value, host_end))
}

fn canonical_target(target: &PathAndQuery) -> Result<PathAndQuery, Refusal> {
    let form = match path::canonical(target.path())? {
        std::borrow::Cow::Borrowed(_) => return Ok(target.clone()),
        std::borrow::Cow::Owned(form) => form,
    };
    let whole = match target.query() {
        Some(query) => format!("{form}?{query}"),
        None => form,
    };
    PathAndQuery::try_from(whole).map_err(|_| Refusal::bad("the request target is not valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(method: &str, target: &str, host: Option<&'static str>) -> Result<(String, String), u16> {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(HOST, HeaderValue::from_static(host));
        }
        let version = if host.is_some() { Version::HTTP_11 } else { Version::HTTP_10 };
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let uri: Uri = target.parse().expect("a target");
        NormalizedTarget::of(&method, &uri, version, &headers)
            .map(|s| {
                let authority = String::from_utf8(s.authority.as_bytes().to_vec()).expect("ASCII");
                assert!(authority.starts_with(s.host()));
                (authority, s.target.as_str().to_owned())
            })
            .map_err(|r| r.status.as_u16())
    }

    fn ok(authority: &str, target: &str) -> Result<(String, String), u16> {
        Ok((authority.to_owned(), target.to_owned()))
    }

    #[test]
    fn every_form_of_target_has_one_meaning() {
        assert_eq!(normalized("GET", "/a//b?x=//", Some("A.Test.:8080")), ok("a.test:8080", "/a/b?x=//"));
        assert_eq!(normalized("GET", "/", Some("a.test:")), ok("a.test", "/"));
        assert_eq!(normalized("GET", "http://A.test/x?y", Some("a.test")), ok("a.test", "/x?y"));
        assert_eq!(normalized("GET", "http://a.test", Some("a.test")), ok("a.test", "/"));
        assert_eq!(normalized("GET", "http://a.test/", None), ok("a.test", "/"));
        assert_eq!(normalized("OPTIONS", "*", Some("a.test")), ok("a.test", "*"));
        assert_eq!(normalized("GET", "/", None), ok("", "/"));
    }

    #[test]
    fn other_forms_are_refused() {
        assert_eq!(normalized("CONNECT", "a.test:443", Some("a.test")), Err(405));
        assert_eq!(normalized("TRACE", "/", Some("a.test")), Err(405));
        assert_eq!(normalized("GET", "a.test", Some("a.test")), Err(400));
        assert_eq!(normalized("GET", "a.test:80", Some("a.test")), Err(400));
        assert_eq!(normalized("GET", "*", Some("a.test")), Err(400));
        assert_eq!(normalized("GET", "ftp://a.test/", Some("a.test")), Err(400));
        assert_eq!(normalized("GET", "http://a.test/", Some("b.test")), Err(400));
        assert_eq!(normalized("GET", "http://u@a.test/", Some("a.test")), Err(400));
        assert_eq!(normalized("GET", "http://a.test:80/", Some("a.test")), Err(400));
    }
}
