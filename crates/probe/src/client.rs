//! Client for requests to the node, one at a time on a kept connection, as a gateway keeps its connections.
//!
//! All requests are GET and go to the one address in the policy. Bodies are read to the end, and discarded
//! unless they are HTML pages. A discarded body is requested as browsers request it: compressed, if the
//! server supports that. Compression costs CPU time and saves bandwidth.

use std::time::Duration;

use weirgate_http_client::{Address, Error, Limits, Request};

/// User agent of the prober, also used for `robots.txt`.
pub const AGENT: &str = "weirgate-probe";

/// Maximum size of a page that is parsed for links. The largest pages on the web have a few MiB of HTML.
const MAX_HTML: usize = 8 << 20;

/// Maximum size of a body. A larger one is a download and needs a separate route.
const MAX_BODY: u64 = 256 << 20;

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
pub(crate) struct Connection {
    target: Target,
    connection: weirgate_http_client::Connection,
}

impl Connection {
    pub(crate) fn new(target: Target) -> Connection {
        let connection = weirgate_http_client::Connection::new(Address::Tcp(target.address.clone()));
        Connection { target, connection }
    }

    /// Requests `path` (with its query). With `keep` the text of the body is kept for any content type,
    /// because many servers send `robots.txt` without one.
    ///
    /// # Errors
    /// There is no complete response. The next request uses a new connection.
    pub(crate) async fn get(&mut self, path: &str, keep: bool) -> Result<Answer, String> {
        let Target { address, host } = &self.target;
        let request = Request::get(host, path)
            .field("user-agent", AGENT)
            .field("accept", "*/*")
            .field("accept-encoding", if keep { "identity" } else { "gzip" });
        let limits = Limits { time: PATIENCE, body: MAX_BODY, kept: if keep { MAX_HTML } else { 0 } };
        let answer = self.connection.send(&request, &limits).await.map_err(|error| match error {
            Error::Late(_) => error.to_string(),
            Error::TooLong(limit) => format!("{address}: the body is longer than {} MiB", limit >> 20),
            error => format!("{address}: {error}"),
        })?;
        Ok(Answer {
            status: answer.status,
            location: answer.field("location").map(str::to_owned),
            text: answer.text(),
            html: is_html(answer.field("content-type").unwrap_or_default()),
        })
    }
}

fn is_html(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    ["text/html", "application/xhtml+xml"].iter().any(|html| kind.eq_ignore_ascii_case(html))
}
