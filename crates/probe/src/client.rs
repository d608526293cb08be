//! Client for requests to the node, one at a time on a kept connection, as a gateway keeps its connections.
//!
//! All requests are GET and go to the one address in the policy. Bodies are read to the end, and discarded
//! unless they are HTML pages. A discarded body is requested as browsers request it: compressed, if the
//! server supports that. Compression costs CPU time and saves bandwidth.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use weirgate_clock as clock;

/// User agent of the prober, also used for `robots.txt`.
pub const AGENT: &str = "weirgate-probe";

/// Maximum size of a page that is parsed for links. The largest pages on the web have a few MiB of HTML.
const MOST_HTML: usize = 8 << 20;

/// Maximum size of a body. A larger one is a download and needs a separate route.
const MOST_BODY: u64 = 256 << 20;

/// Timeout of a request. A page that takes longer has a problem.
const PATIENCE: Duration = Duration::from_secs(30);

/// Destination of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port` of the node.
    pub address: String,
    /// Value of the `Host` field.
    pub host: String,
}

/// A response.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Value of the `Location` field, if there is one.
    pub location: Option<String>,
    /// The body, if it is HTML or plain text. Invalid UTF-8 is replaced.
    pub text: String,
    /// Whether it is HTML.
    pub html: bool,
}

/// A connection to the node, opened on demand.
#[derive(Debug)]
pub(crate) struct Connection {
    target: Target,
    sender: Option<SendRequest<Empty<Bytes>>>,
}

impl Connection {
    pub(crate) fn new(target: Target) -> Connection {
        Connection { target, sender: None }
    }

    /// Requests `path` (with its query). With `keep` the text of the body is kept for any content type,
    /// because many servers send `robots.txt` without one.
    ///
    /// # Errors
    /// There is no complete response. The next request uses a new connection.
    pub(crate) async fn get(&mut self, path: &str, keep: bool) -> Result<Answer, String> {
        let answer = clock::within(PATIENCE, self.exchange(path, keep)).await;
        let answer = answer.unwrap_or_else(|| Err(format!("no whole answer within {} s", PATIENCE.as_secs())));
        if answer.is_err() {
            self.sender = None;
        }
        answer
    }

    async fn exchange(&mut self, path: &str, keep: bool) -> Result<Answer, String> {
        let mut reused = self.sender.is_some();
        let response = loop {
            let mut sender = match self.sender.take() {
                Some(sender) => sender,
                None => self.open().await?,
            };
            let request = Request::get(path)
                .header(HOST, &self.target.host)
                .header(USER_AGENT, AGENT)
                .header(ACCEPT, "*/*")
                .header(ACCEPT_ENCODING, if keep { "identity" } else { "gzip" })
                .body(Empty::new())
                .map_err(|error| error.to_string())?;
            let sent = match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(response) => {
                    self.sender = Some(sender);
                    break response;
                }
                // The server has closed a kept connection, which it may do at any time.
                Err(_) if reused => reused = false,
                Err(error) => return Err(format!("{}: {error}", self.target.address)),
            }
        };
        let status = response.status().as_u16();
        let field = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (location, html) = (field(LOCATION), is_html(response.headers()));
        let text = read(response.into_body(), keep).await.map_err(|why| format!("{}: {why}", self.target.address))?;
        Ok(Answer { status, location, text, html })
    }

    async fn open(&self) -> Result<SendRequest<Empty<Bytes>>, String> {
        let wrong = |error: std::io::Error| format!("{}: {error}", self.target.address);
        let stream = TcpStream::connect(self.target.address.as_str()).await.map_err(wrong)?;
        stream.set_nodelay(true).map_err(wrong)?;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|error| format!("{}: {error}", self.target.address))?;
        // It ends with the sender, which also gets its errors.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

fn is_html(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default().trim();
    ["text/html", "application/xhtml+xml"].iter().any(|html| kind.eq_ignore_ascii_case(html))
}

async fn read(mut body: Incoming, keep: bool) -> Result<String, String> {
    let (mut text, mut bytes) = (Vec::new(), 0u64);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        let Some(data) = frame.data_ref() else { continue };
        bytes += data.len() as u64;
        if bytes > MOST_BODY {
            return Err(format!("the body is longer than {} MiB", MOST_BODY >> 20));
        }
        if keep && text.len() < MOST_HTML {
            text.extend_from_slice(data);
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
