//! Source of the counts: the status page of the server on this machine, or the kernel's list of its
//! connections.

use std::time::Duration;

use weirgate_http_client::{Address, Error, Limits, Request, exchange};
use weirgate_wire::Active;

use crate::glob::Globs;
use crate::monitor::connections;
use crate::{apache, nginx};

/// Limits of a request for a status page. Its time is less than the 2 s for which a gateway waits for the report.
/// Apache's page has about 300 bytes per worker, so 4 MiB are enough for 13,000 workers.
const LIMITS: Limits = Limits::new(Duration::from_millis(1500), 4 << 20);

/// The address of a status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPage {
    /// `host:port`.
    address: String,
    path: String,
    query: Option<String>,
}

/// Kind of content that requests ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Static files.
    Static,
    /// Pages generated for each request.
    #[default]
    Dynamic,
}

/// A server to query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Apache's page for people. Requests with a matching path are dynamic.
    Apache(StatusPage, Globs),
    /// Apache's page for programs, which does not distinguish requests.
    ApacheAuto(StatusPage, Content),
    /// nginx. Its page does not distinguish requests.
    Nginx(StatusPage, Content),
    /// Any server: established connections to its port, idle ones included.
    Port(u16, Content),
}

impl StatusPage {
    /// Parses a URL such as `http://127.0.0.1/server-status`.
    ///
    /// # Errors
    /// It is not the URL of a page that can be requested.
    pub fn parse(url: &str) -> Result<StatusPage, String> {
        let wrong = |why: &str| format!("{url:?} {why}; write one such as http://127.0.0.1/server-status");
        let uri: http::Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong("does not begin with http://"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("has no host"))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("has a user, and logging in is not supported"));
        }
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        Ok(StatusPage { address, path: uri.path().to_owned(), query: uri.query().map(str::to_owned) })
    }

    /// Whether it is the page for programs.
    pub fn is_auto(&self) -> bool {
        self.query.as_deref().is_some_and(|query| query.split('&').any(|word| word == "auto" || word == "auto="))
    }

    async fn read(&self) -> Result<String, String> {
        let Self { address, path, query } = self;
        let target = query.as_ref().map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
        let request = Request::get(address, &target).field("user-agent", "weirgate-agent");
        let answer = match exchange(&Address::Tcp(address.clone()), request, &LIMITS).await {
            Ok(answer) => answer,
            Err(Error::TooLong(limit)) => {
                return Err(format!("{address}{path}: the page is longer than {limit} bytes"));
            }
            Err(error) => return Err(format!("{address}: {error}")),
        };
        match answer.status {
            200 => Ok(answer.text()),
            status @ (401 | 403) => {
                Err(format!("{address}{path}: status {status}: allow this machine to see the page"))
            }
            status => Err(format!("{address}{path}: status {status}")),
        }
    }
}

impl Content {
    fn all(self, count: u32) -> Active {
        match self {
            Content::Static => Active { static_content: count, dynamic_content: 0 },
            Content::Dynamic => Active { static_content: 0, dynamic_content: count },
        }
    }
}

impl Source {
    /// Returns the number of requests that the server is serving now.
    ///
    /// # Errors
    /// The reason why the number is not available.
    pub async fn active(&self) -> Result<Active, String> {
        match self {
            Source::Apache(page, dynamic) => apache::active(&page.read().await?, &page.path, dynamic),
            Source::ApacheAuto(page, content) => apache::busy(&page.read().await?).map(|count| content.all(count)),
            Source::Nginx(page, content) => nginx::active(&page.read().await?).map(|count| content.all(count)),
            Source::Port(port, content) => {
                let port = *port;
                // With many connections, the kernel takes a while to produce the table.
                let count = tokio::task::spawn_blocking(move || connections(port)).await;
                count.map_err(|error| error.to_string())?.map(|count| content.all(count))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let page = StatusPage::parse("http://127.0.0.1/server-status?refresh=5&auto").expect("sound");
        assert_eq!((page.address.as_str(), page.path.as_str()), ("127.0.0.1:80", "/server-status"));
        assert!(page.is_auto() && !StatusPage::parse("http://a/automatic?autos").expect("sound").is_auto());
        assert_eq!(StatusPage::parse("http://[::1]:8080").expect("sound").address, "[::1]:8080");
        for (url, problem) in [
            ("https://a/", "begin with http://"),
            ("127.0.0.1/server-status", "is not a URL"),
            ("/server-status", "begin with http://"),
            ("http://", "is not a URL"),
            ("http://a b/", "is not a URL"),
            ("http://u:p@a/", "has a user"),
        ] {
            let error = StatusPage::parse(url).expect_err(url);
            assert!(error.contains(problem), "{error}");
        }
    }
}
