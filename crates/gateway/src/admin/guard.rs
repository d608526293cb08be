//! Checks that every request to the admin API must pass before a handler sees it.
//!
//! A page open in the operator's browser can send requests to loopback addresses. So a request must name a
//! known host (a rebound DNS name is not one) and must not come from another origin. A request that changes
//! something must have a JSON body. A page can send JSON only after a preflight request (Fetch standard,
//! CORS-safelisted request headers), and every preflight is refused.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use weirgate_config::AdminAddress;
use weirgate_wire::{Token, bearer};

use super::answer;
use super::token::Attempts;
use crate::clock::Clock;

/// Maximum size of a request body, in bytes. A policy for 10,000 tenants is smaller.
const MAX_BODY: usize = 1024 * 1024;

/// Maximum time to receive a whole request body. Admin clients are nearby.
const BODY_TIME: Duration = Duration::from_secs(5);

/// Maximum number of characters of a path in the log.
const MAX_LOGGED: usize = 200;

/// Paths that need no token. Orchestrators' health probes have none, and the page asks its reader for one. Their
/// responses reveal nothing secret.
const OPEN: [&str; 5] = ["/live", "/ready", "/", "/page.css", "/page.js"];

/// Access rules: the accepted hosts, the token, and the limit on wrong tokens.
#[derive(Debug)]
pub(super) struct Guard {
    /// Names accepted in `Host` and `Origin`, without port.
    hosts: Vec<String>,
    token: Option<Token>,
    attempts: Mutex<Attempts>,
    clock: Clock,
}

/// Pages load nothing but their own scripts and styles, and talk to this listener alone.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; frame-ancestors 'none'";

/// Address that a request came from. `None` means the Unix socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) Option<IpAddr>);

impl Guard {
    pub(super) fn new(
        config: &weirgate_config::Admin,
        bound: Option<SocketAddr>,
        token: Option<Token>,
        clock: Clock,
    ) -> Guard {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(String::from).to_vec();
        hosts.extend(config.hosts.iter().cloned());
        let own = match &config.address {
            AdminAddress::Tcp(address) => Some(address.ip()),
            AdminAddress::Unix(_) => None,
        };
        for ip in own.into_iter().chain(bound.map(|b| b.ip())) {
            hosts.push(match ip {
                IpAddr::V4(v4) => v4.to_string(),
                IpAddr::V6(v6) => format!("[{v6}]"),
            });
        }
        Guard { hosts, token, attempts: Mutex::new(Attempts::new(weirgate_clock::keyed_hasher())), clock }
    }

    /// Returns the request with its whole body if it passes every check, and otherwise the response that
    /// refuses it.
    pub(super) async fn check(&self, peer: Peer, request: Request<Body>) -> Result<Request<Body>, Box<Response>> {
        self.check_host(&request)?;
        self.check_origin(request.headers())?;
        self.check_token(peer, &request)?;
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
        if changes && !is_json(request.headers()) {
            let why = "a request that changes something must have Content-Type: application/json";
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let (head, body) = request.into_parts();
        Ok(Request::from_parts(head, Body::from(whole(body).await?)))
    }

    /// Returns whether `authority` names a host served here, on any port.
    fn knows(&self, authority: &[u8]) -> bool {
        weirgate_http1::split(authority)
            .is_some_and(|a| self.hosts.iter().any(|host| host.as_bytes().eq_ignore_ascii_case(a.host)))
    }

    fn check_host(&self, request: &Request<Body>) -> Result<(), Box<Response>> {
        let mut hosts = request.headers().get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(refuse(StatusCode::BAD_REQUEST, "a request must have exactly one Host"));
        };
        let target = request.uri().authority().is_none_or(|authority| self.knows(authority.as_str().as_bytes()));
        if self.knows(host.as_bytes()) && target {
            Ok(())
        } else {
            let why = "this Host is not served here; names besides the address belong in admin.hosts or, of a coordinator, admin_hosts";
            Err(refuse(StatusCode::FORBIDDEN, why))
        }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Box<Response>> {
        let foreign = headers.get_all(ORIGIN).iter().any(|origin| {
            let origin = origin.as_bytes();
            let authority = origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://"));
            !authority.is_some_and(|authority| self.knows(authority))
        });
        if foreign {
            return Err(refuse(StatusCode::FORBIDDEN, "requests of other origins are not served here"));
        }
        Ok(())
    }

    fn check_token(&self, peer: Peer, request: &Request<Body>) -> Result<(), Box<Response>> {
        let Some(token) = &self.token else { return Ok(()) };
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if reads && OPEN.contains(&request.uri().path()) {
            return Ok(());
        }
        let given = request.headers().get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        if given.is_some_and(|given| token.is(given)) {
            return Ok(());
        }
        let allowed = {
            let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
            attempts.wrong(peer.0, self.clock.now())
        };
        if !allowed {
            let mut answer = refuse(StatusCode::TOO_MANY_REQUESTS, "too many tries without a valid token");
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return Err(answer);
        }
        let who = peer.0.map_or_else(|| "the Unix socket".to_owned(), |ip| ip.to_string());
        let what = if given.is_some() { "a wrong token" } else { "no token" };
        // Not `eprintln`, here and elsewhere: it panics if standard error is closed.
        let _ = writeln!(
            std::io::stderr(),
            "weirgate: admin: {what} from {who} for {} {:?}",
            request.method(),
            request.uri().path().chars().take(MAX_LOGGED).collect::<String>()
        );
        let mut answer = refuse(StatusCode::UNAUTHORIZED, "this needs Authorization: Bearer and the admin token");
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Err(answer)
    }
}

fn refuse(status: StatusCode, why: &str) -> Box<Response> {
    Box::new(answer::refuse(status, why))
}

/// Reads the whole body, limited in size and time.
async fn whole(body: Body) -> Result<Bytes, Box<Response>> {
    match weirgate_clock::within(BODY_TIME, Limited::new(body, MAX_BODY).collect()).await {
        Some(Ok(body)) => Ok(body.to_bytes()),
        Some(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "a request body has at most 1 MiB"))
        }
        Some(Err(_)) => Err(refuse(StatusCode::BAD_REQUEST, "the request body broke off")),
        None => Err(refuse(StatusCode::REQUEST_TIMEOUT, "the request body took longer than 5 s")),
    }
}

/// Returns whether there is exactly one `Content-Type` and it is `application/json`, with or without
/// parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(only), None) = (types.next(), types.next()) else { return false };
    let essence = only.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Adds the headers of every response. They forbid caching, content sniffing, framing and foreign scripts.
pub(super) fn seal(mut answer: Response) -> Response {
    let sealed: [(HeaderName, &str); 3] =
        [(CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff"), (CONTENT_SECURITY_POLICY, POLICY)];
    for (name, value) in sealed {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
