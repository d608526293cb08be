//! Access logs: their formats, and their lines as requests.
//!
//! [`Format`] reads one line, `detect` finds out the format of a file, and [`read`] takes a whole file, plain or
//! compressed, through a buffer of constant size. `fields` reads the formats of nginx and Apache, which are strings
//! with variables, `haproxy` reads HAProxy's `option httplog`, `ours` the JSON of Weirgate, and `instant` times.

mod detect;
mod fields;
mod haproxy;
mod instant;
mod ours;
mod read;
mod template;

use std::borrow::Cow;
use std::time::Duration;

pub use instant::calendar_text;
pub use read::{Ended, MAX_LINE, Malformed, Progress, read};

use template::Template;

/// A request of a log. Facts that the line does not have are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request<'l> {
    /// End of the request in milliseconds since 1970. Of a log that tells only the beginning and no duration, the
    /// beginning.
    pub ended_ms: i64,
    /// The host as the log has it, perhaps with a port.
    pub host: Option<Cow<'l, str>>,
    /// The path as the client sent it, perhaps with a query.
    pub path: Option<Cow<'l, str>>,
    /// The header `User-Agent`.
    pub agent: Option<Cow<'l, str>>,
    /// Address of the client, as the log names it.
    pub client: Option<Cow<'l, str>>,
    /// Address of the server that answered, as the log names it.
    pub node: Option<Cow<'l, str>>,
    /// Status of the response, 0 if there was none.
    pub status: Option<u16>,
    /// Whether the log says that no server answered, whatever the status.
    pub unanswered: bool,
    /// Time until the last byte of the response.
    pub response: Option<Duration>,
    /// Time at the server.
    pub service: Option<Duration>,
}

impl Request<'_> {
    /// Returns whether a server answered, and not with an error of its own.
    pub fn served(&self) -> bool {
        !self.unanswered && self.status.is_none_or(|status| (100..500).contains(&status))
    }
}

/// Longest time of a request that is believed. A longer one is an idle tunnel or a defect.
const MAX_TIME: Duration = Duration::from_secs(86_400);

/// The facts that lines of a format have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tells {
    /// Whether lines name the host.
    pub host: bool,
    /// Step of the times of requests. `None` if there are none.
    pub step: Option<Duration>,
    /// Whether there is the time at the server, besides that of the response.
    pub service: bool,
}

/// A format of access logs.
#[derive(Clone, Debug)]
pub struct Format {
    name: String,
    kind: Kind,
    /// Remark for the operator.
    note: Option<String>,
}

#[derive(Clone, Debug)]
enum Kind {
    Template(Template),
    Haproxy,
    Ours,
}

/// The formats with a name, and those of them that are strings with variables.
const NAMED: [(&str, &str); 6] = [
    ("common", r#"%h %l %u %t "%r" %>s %b"#),
    ("combined", r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#),
    ("vhost_common", r#"%v:%p %h %l %u %t "%r" %>s %b"#),
    ("vhost_combined", r#"%v:%p %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#),
    ("haproxy", ""),
    ("weirgate", ""),
];

impl Format {
    /// Returns the format with this name or of this string: `combined`, `haproxy`, `combined %D`, or the string of a
    /// `log_format` of nginx or a `LogFormat` of Apache.
    ///
    /// # Errors
    /// The text is neither, or a variable that is needed is missing. The message has a hint.
    pub fn parse(text: &str) -> Result<Format, String> {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let kind = match NAMED.iter().find(|(name, _)| *name == word) {
            Some(("haproxy", _)) if rest.is_empty() => Kind::Haproxy,
            Some(("weirgate", _)) if rest.is_empty() => Kind::Ours,
            Some((_, string)) if !string.is_empty() => {
                let string = if rest.is_empty() { (*string).to_owned() } else { format!("{string} {}", rest.trim()) };
                Kind::Template(Template::parse(&string)?)
            }
            _ if text.contains(['$', '%']) => Kind::Template(Template::parse(text)?),
            _ => {
                let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "{text:?} is not a format: write one of {}, one of these and further variables (combined %D), or the \
                     string after `log_format NAME` of nginx or of Apache's `LogFormat`",
                    names.join(", ")
                ));
            }
        };
        Ok(Format { name: text.to_owned(), kind, note: None })
    }

    /// Returns the format's name, or its string.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a remark for the operator, such as fields that nothing is known of.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Returns the facts that lines of this format have.
    pub fn tells(&self) -> Tells {
        let millisecond = Some(Duration::from_millis(1));
        match &self.kind {
            Kind::Template(template) => template.tells(),
            Kind::Haproxy => Tells { host: false, step: millisecond, service: true },
            Kind::Ours => Tells { host: true, step: Some(Duration::from_micros(1)), service: true },
        }
    }

    /// Reads a line without its line feed. Returns `None` if it is not of this format.
    pub fn request<'l>(&self, line: &'l str) -> Option<Request<'l>> {
        let mut request = match &self.kind {
            Kind::Template(template) => template.request(line),
            Kind::Haproxy => haproxy::request(line),
            Kind::Ours => ours::request(line),
        }?;
        request.response = request.response.filter(|time| *time <= MAX_TIME);
        request.service = request.service.filter(|time| *time <= MAX_TIME);
        Some(request)
    }
}

/// Splits a request line such as `GET /mail?x=1 HTTP/1.1` and fills in path and host.
fn request_line<'l>(line: &'l str, request: &mut Request<'l>) {
    let Some(from) = line.find(' ').map(|at| at + 1) else { return };
    let to = line.rfind(" HTTP/").filter(|end| *end >= from).unwrap_or(line.len());
    if let Some(target) = line.get(from..to) {
        request_target(target, request);
    }
}

/// Fills in the path, and the host of a target in absolute form (RFC 9112, Sec. 3.2.2).
fn request_target<'l>(target: &'l str, request: &mut Request<'l>) {
    let scheme = target.find("://").filter(|at| *at <= MAX_SCHEME);
    match scheme.and_then(|at| target.get(at + 3..)) {
        None if target.starts_with('/') => request.path = Some(Cow::Borrowed(target)),
        None => {}
        Some(rest) => {
            let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            request.host = Some(Cow::Borrowed(host));
            request.path = Some(Cow::Borrowed(if path.starts_with('/') { path } else { "/" }));
        }
    }
}

/// Longest scheme of a target in absolute form: `https`. A text with `://` further on is a path.
const MAX_SCHEME: usize = 5;

#[cfg(test)]
mod tests;
