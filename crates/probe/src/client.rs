//! Requests to the node, one at a time on a connection that is kept, as a gateway keeps its own.
//!
//! Only GET, only to the one address that the policy names; bodies are read to their end and thrown away but for
//! pages of HTML. Those that are thrown away are asked for as browsers ask, compressed if the server does that: it
//! costs CPU time and saves bandwidth.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::clock;

/// The name under which the prober asks, also for `robots.txt`.
pub const AGENT: &str = "weirgate-probe";

/// Longest page that is parsed for links. The largest pages of the web have a few MiB of HTML.
const MOST_HTML: usize = 8 << 20;

/// Longest body that is read. More is a download, and a route of its own kind.
const MOST_BODY: u64 = 256 << 20;

/// Longest time for a request: a page that takes longer is in trouble.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port` of the node.
    pub address: String,
    /// The `Host` field.
    pub host: String,
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// `Location`.
    pub location: Option<String>,
    /// The body if it is HTML or plain text; what is not UTF-8 in it is replaced.
    pub text: String,
    /// Whether it is HTML.
    pub html: bool,
}

/// A connection to the node, opened when it is needed.
#[derive(Debug)]
pub(crate) struct Connection {
    target: Target,
    sender: Option<SendRequest<Empty<Bytes>>>,
}

impl Connection {
    pub(crate) fn new(target: Target) -> Connection {
        Connection { target, sender: None }
    }

    /// Asks for `path` (with its query). `keep` keeps the text of the body, whatever type it claims
    /// to be of: many a `robots.txt` has none.
    ///
    /// # Errors
    /// There is no whole answer. The next request takes another connection.
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
                // The server has closed a connection that was kept, which it may do at any time.
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
        // It ends with the sender; an error is the sender's as well.
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
