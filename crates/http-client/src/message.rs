//! Requests, their limits, answers and errors.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use http_body_util::Full;

/// Maximum size of an answer's head, in bytes. It may have 100 fields. Normal heads have a few KiB. hyper reads
/// somewhat more before it checks the limit.
pub const MAX_HEAD: usize = 64 << 10;

/// A request. A mistake in one of its parts is an error when it is sent.
#[derive(Clone, Debug)]
pub struct Request(Result<http::Request<Full<Bytes>>, String>);

/// Limits of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time from the attempt to connect to the end of the answer.
    pub time: Duration,
    /// Maximum size of the answer's body, in bytes.
    pub body: u64,
    /// Number of bytes of the body that are kept. The rest is read and discarded.
    pub kept: usize,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    pub(crate) fields: HeaderMap,
    /// The body without its transfer coding. It may be incomplete if the status is not a success.
    pub body: Bytes,
}

/// Reason why there is no answer.
#[derive(Debug)]
pub enum Error {
    /// The request is not valid. Nothing was sent.
    Request(String),
    /// The server is not reachable.
    Connect(io::Error),
    /// The time limit passed.
    Late(Duration),
    /// The connection failed.
    Lost(String),
    /// The answer is not HTTP/1.
    NotHttp,
    /// The answer's head is longer than [`MAX_HEAD`], or has too many fields.
    HeadTooLong,
    /// The server closed the connection in the answer's head or before it.
    CutHead,
    /// The server closed the connection in the answer's body.
    CutBody,
    /// The answer's body is longer than this limit, in bytes.
    TooLong(u64),
    /// The answer has this status. Only [`Answer::ok`] makes an error of it.
    Status(u16),
}

impl Request {
    /// Creates a GET request for `path`, with its query. `host` is the value of the field `host`.
    pub fn get(host: &str, path: &str) -> Request {
        Request::new(Method::GET, host, path, Bytes::new())
    }

    /// Creates a HEAD request.
    pub fn head(host: &str, path: &str) -> Request {
        Request::new(Method::HEAD, host, path, Bytes::new())
    }

    /// Creates a POST request.
    pub fn post(host: &str, path: &str, body: impl Into<Bytes>) -> Request {
        let body = body.into();
        // hyper adds no length of 0, which many servers require.
        let length = body.len().to_string();
        Request::new(Method::POST, host, path, body).field(CONTENT_LENGTH.as_str(), &length)
    }

    /// Creates a PUT request. Like a GET request it may be sent twice.
    pub fn put(host: &str, path: &str, body: impl Into<Bytes>) -> Request {
        Request::new(Method::PUT, host, path, body.into())
    }

    fn new(method: Method, host: &str, path: &str, body: Bytes) -> Request {
        let built = http::Request::builder().method(method).uri(encoded(path)).header(HOST, host).body(Full::new(body));
        Request(built.map_err(|error| format!("{path:?} for {host:?}: {error}")))
    }

    /// Adds a header field.
    #[must_use]
    pub fn field(self, name: &str, value: &str) -> Request {
        self.add(name, value, false)
    }

    /// Adds the field `authorization`, for example with `Bearer` and a token. Its value is not printed.
    #[must_use]
    pub fn authorization(self, value: &str) -> Request {
        self.add(AUTHORIZATION.as_str(), value, true)
    }

    /// Sends the request as HTTP/1.0, so that the server does not chunk the answer.
    #[must_use]
    pub fn http_10(mut self) -> Request {
        if let Ok(request) = &mut self.0 {
            *request.version_mut() = Version::HTTP_10;
        }
        self
    }

    fn add(self, name: &str, value: &str, secret: bool) -> Request {
        Request(self.0.and_then(|mut request| {
            let wrong = |error: &dyn fmt::Display| format!("field {name}: {error}");
            let key: HeaderName = name.parse().map_err(|error| wrong(&error))?;
            let mut value = HeaderValue::from_str(value).map_err(|error| wrong(&error))?;
            value.set_sensitive(secret);
            request.headers_mut().append(key, value);
            Ok(request)
        }))
    }

    /// Returns the request in hyper's form.
    pub(crate) fn build(&self) -> Result<http::Request<Full<Bytes>>, Error> {
        self.0.clone().map_err(Error::Request)
    }
}

/// Encodes the characters of a path that configurations contain although RFC 3986, Sec. 2 forbids them.
fn encoded(path: &str) -> String {
    path.replace('<', "%3C").replace('>', "%3E").replace('"', "%22").replace('`', "%60")
}

impl Limits {
    /// Creates limits for an answer that is kept whole.
    pub const fn new(time: Duration, body: u64) -> Limits {
        Limits { time, body, kept: usize::MAX }
    }
}

impl Answer {
    /// Returns the first field with this name, if it is text.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the body as text. Invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the answer if its status is 200.
    ///
    /// # Errors
    /// It has another status.
    pub fn ok(self) -> Result<Answer, Error> {
        if self.status == 200 { Ok(self) } else { Err(Error::Status(self.status)) }
    }
}

impl Error {
    /// Classifies an error of hyper before the end of the answer's head.
    pub(crate) fn in_head(error: &hyper::Error) -> Error {
        if error.is_parse_too_large() {
            Error::HeadTooLong
        } else if error.is_parse() {
            Error::NotHttp
        } else if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
            Error::CutHead
        } else {
            Error::Lost(cause(error))
        }
    }

    /// Classifies an error of hyper in the answer's body.
    pub(crate) fn in_body(error: &hyper::Error) -> Error {
        let ended = io_error(error).is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
        if ended || error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
            Error::CutBody
        } else {
            Error::Lost(cause(error))
        }
    }
}

/// Returns the error of the connection that caused an error of hyper.
fn io_error(error: &hyper::Error) -> Option<&io::Error> {
    std::error::Error::source(error).and_then(|source| source.downcast_ref())
}

/// Returns the text of the innermost known cause.
fn cause(error: &hyper::Error) -> String {
    io_error(error).map_or_else(|| error.to_string(), weirgate_tls::trust::why)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Request(why) => write!(f, "the request is not valid: {why}"),
            Error::Connect(error) => error.fmt(f),
            Error::Late(limit) => write!(f, "no whole answer within {} s", limit.as_secs_f64()),
            Error::Lost(why) => f.write_str(why),
            Error::NotHttp => f.write_str("the answer is not HTTP/1"),
            Error::HeadTooLong => {
                write!(f, "the head of the answer is longer than {MAX_HEAD} bytes or has more than 100 fields")
            }
            Error::CutHead => f.write_str("the connection was closed before the end of the answer's head"),
            Error::CutBody => f.write_str("the connection was closed before the end of the answer"),
            Error::TooLong(limit) => write!(f, "the answer is longer than {limit} bytes"),
            Error::Status(status) => write!(f, "the answer has status {status}"),
        }
    }
}

impl std::error::Error for Error {}
