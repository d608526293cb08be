//! View of a request for stage *classify*, with cookies and query parsed on demand.
//!
//! Sources: for cookies, RFC 6265 Sec. 4.2 and 5.4; for the query, WHATWG URL
//! `application/x-www-form-urlencoded`, which applications use. Departures: cookies are parsed leniently, as
//! servers do (any bytes, optional quotes removed). Rules see only the first [`MAX_PAIRS`] cookies and the
//! first [`MAX_PAIRS`] parameters.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

use weirgate_config::Site;
use weirgate_http1::Name;

use super::payload::{self, Payload};
use crate::client::Origin;
use crate::handshake::ClientTls;
use crate::request::Request;
use crate::visitor::Visitor;

/// Maximum length of a value that can be compared, in bytes. A longer value counts as present but matches no
/// text. Servers commonly accept 8 KiB for a whole header. The limit bounds the time of a regular expression.
pub const MAX_VALUE_BYTES: usize = 8 * 1024;

/// Maximum length of a template's key, in bytes. A request with a longer key does not match the rule. Names
/// of tenants and tokens are shorter. With this limit, 65,536 live classes hold at most 16 MiB of keys.
pub const MAX_KEY_BYTES: usize = 256;

/// Maximum number of query parameters, and of cookies, that rules see. Later ones are ignored. Browsers send
/// at most 180 cookies to a site. The limit keeps the work small with thousands of rules.
pub const MAX_PAIRS: usize = 256;

/// A request as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Host, method, query and fields.
    pub request: &'a Request,
    /// A normal form of the path: [`Request::path`] or one of [`Request::readings`].
    pub path: &'a str,
    /// The client's address: the rightmost untrusted hop.
    pub client: IpAddr,
    /// The port of the listener.
    pub port: u16,
    /// Facts about the TLS of its connection, if it is encrypted.
    pub tls: Option<&'a ClientTls>,
    /// Whether its fields can state its origin: the peer is a listed proxy, or the policy lists none.
    pub vouched: bool,
    /// The visitor that its cookie names.
    pub visitor: Option<&'a Visitor>,
}

impl<'a> View<'a> {
    /// Returns the view of a request that a listener on `port` has received, with its plain path.
    pub fn new(site: &Site, request: &'a Request, from: Origin, port: u16, tls: Option<&'a ClientTls>) -> View<'a> {
        let vouched = from.listed || site.trusted_proxies.is_empty();
        View { request, path: request.path(), client: from.client, port, tls, vouched, visitor: None }
    }
}

/// Decoded name and value.
pub(super) type Parameter<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// A view with its query, cookies and form, parsed at their first use.
pub(super) struct Fields<'a, 'v> {
    pub(super) view: &'v View<'a>,
    cookies: OnceCell<Vec<(&'a [u8], &'a [u8])>>,
    query: OnceCell<Vec<Parameter<'a>>>,
    pub(super) payload: Payload<'v>,
    form: OnceCell<Vec<Parameter<'v>>>,
}

impl<'a, 'v> Fields<'a, 'v> {
    pub(super) fn new(view: &'v View<'a>, payload: Payload<'v>) -> Fields<'a, 'v> {
        Fields { view, cookies: OnceCell::new(), query: OnceCell::new(), payload, form: OnceCell::new() }
    }

    /// Returns the decoded name and value of every field of the form in the body, in order.
    pub(super) fn form(&self) -> &[Parameter<'v>] {
        self.form.get_or_init(|| payload::form(self.payload))
    }

    /// Returns the name and value of every cookie, in order.
    pub(super) fn cookies(&self) -> &[(&'a [u8], &'a [u8])] {
        self.cookies.get_or_init(|| cookies_of(self.view.request).collect())
    }

    /// Returns the decoded name and value of every query parameter, in order.
    pub(super) fn query(&self) -> &[Parameter<'a>] {
        self.query.get_or_init(|| {
            let raw = self.view.request.query().unwrap_or_default().as_bytes();
            raw.split(|&b| b == b'&').filter(|part| !part.is_empty()).map(parameter).take(MAX_PAIRS).collect()
        })
    }
}

/// Returns the name and value of every cookie of a request, in order, at most [`MAX_PAIRS`].
pub(crate) fn cookies_of(request: &Request) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = request.all(Name::Cookie);
    lines.flat_map(|line| line.split(|&b| b == b';')).filter_map(cookie).take(MAX_PAIRS)
}

/// Parses `name=value` of one cookie. Text without `=` is not a cookie.
fn cookie(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let pair = pair.trim_ascii();
    let (name, value) = split_at_equals(pair)?;
    let value = value.trim_ascii();
    let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
    Some((name.trim_ascii(), value)).filter(|(name, _)| !name.is_empty())
}

/// Parses one parameter. Without `=` its value is empty.
pub(super) fn parameter(part: &[u8]) -> Parameter<'_> {
    let (name, value) = split_at_equals(part).unwrap_or((part, b""));
    (decode(name), decode(value))
}

fn split_at_equals(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = pair.iter().position(|&b| b == b'=')?;
    let (name, rest) = pair.split_at(at);
    Some((name, rest.get(1..).unwrap_or_default()))
}

/// Decodes percent escapes (`%41`) and `+`. Text that is not a valid escape stays unchanged.
fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|b| matches!(b, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        decoded.push(match (byte, tail) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    high << 4 | low
                }
                _ => b'%',
            },
            _ => byte,
        });
    }
    Cow::Owned(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|d| d as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(request: &Request) -> View<'_> {
        View {
            request,
            path: request.path(),
            client: IpAddr::from([127, 0, 0, 1]),
            port: 80,
            tls: None,
            vouched: true,
            visitor: None,
        }
    }

    fn with_query(query: &str) -> Vec<(String, String)> {
        let request = Request::parse(format!("GET /?{query} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        let request = request.expect("it is sound");
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        Fields::new(&view(&request), Payload::NONE).query().iter().map(|(n, v)| (text(n), text(v))).collect()
    }

    fn with_cookies(lines: &[&'static str]) -> Vec<(String, String)> {
        let lines: String = lines.iter().map(|line| format!("Cookie: {line}\r\n")).collect();
        let request = Request::parse(format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n").as_bytes());
        let request = request.expect("it is sound");
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        Fields::new(&view(&request), Payload::NONE).cookies().iter().map(|&(n, v)| (text(n), text(v))).collect()
    }

    fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect()
    }

    #[test]
    fn a_query_is_decoded_like_a_form() {
        assert_eq!(
            with_query("a=1&b=x%20y+z&&c&d=%e2%82%ac"),
            pairs(&[("a", "1"), ("b", "x y z"), ("c", ""), ("d", "€")])
        );
        assert_eq!(with_query("%61=%41&x=1%3D2=3"), pairs(&[("a", "A"), ("x", "1=2=3")]));
        assert_eq!(with_query("a=%&b=%4&c=%zz&d=%%34"), pairs(&[("a", "%"), ("b", "%4"), ("c", "%zz"), ("d", "%4")]));
        assert_eq!(with_query(""), pairs(&[]));
    }

    #[test]
    fn cookies_are_split_trimmed_and_unquoted() {
        let found = with_cookies(&["a=1; b=\"two\";c = 3 ;; flag; =x; d=e=f", "a=4"]);
        assert_eq!(found, pairs(&[("a", "1"), ("b", "two"), ("c", "3"), ("d", "e=f"), ("a", "4")]));
    }

    #[test]
    fn only_the_first_pairs_are_seen() {
        let query = (0..2 * MAX_PAIRS).map(|i| format!("k{i}=v")).collect::<Vec<_>>().join("&");
        assert_eq!(with_query(&query).len(), MAX_PAIRS);
    }
}
