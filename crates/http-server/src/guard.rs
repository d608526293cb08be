//! Checks that every request must pass before a handler sees it.
//!
//! A page open in the operator's browser can send requests to loopback addresses. So a request must name a
//! known host (a rebound DNS name is not one) and must not come from another origin. A request that changes
//! something must have a JSON body. A page can send JSON only after a preflight request (Fetch standard,
//! CORS-safelisted request headers), and every preflight is refused.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use weirgate_clock::Clock;
use weirgate_tls::{ClientMode, LiveTrust, Party, Role};

use crate::answer;
use crate::attempts::Attempts;
use crate::token::{Token, bearer};

/// Maximum size of a request body, in bytes. The largest one is a report of 100 classes, with 6 KiB.
const MAX_BODY: usize = 64 * 1024;

/// Maximum time to receive a whole request body. Admin clients are nearby.
const BODY_TIME: Duration = Duration::from_secs(5);

/// Maximum number of characters of a path in the log.
const MAX_LOGGED: usize = 200;

/// Pages load nothing but their own scripts and styles, and talk to this listener alone.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; frame-ancestors 'none'";

/// Permissions of a listener.
pub struct Access {
    /// Values of `Host` and `Origin` that are accepted in addition to the address itself and `localhost`, without port.
    /// `None` accepts every value: for listeners on which nothing can be changed and nothing is secret.
    pub hosts: Option<Vec<String>>,
    /// A secret that is accepted in place of a certificate. Without TLS it is required if there is one.
    pub token: Option<Token>,
    /// The site's trust. `None` is no TLS, which is allowed on loopback and Unix sockets only.
    pub trust: Option<Arc<LiveTrust>>,
    /// Parties that may read, which is GET and HEAD.
    pub readers: &'static [Role],
    /// Further parties that may read one path, and nothing else.
    pub paths: &'static [(&'static str, Role)],
    /// Parties that may do everything.
    pub writers: &'static [Role],
    /// Public paths, because orchestrators' health probes have neither certificate nor token. Their answers must reveal
    /// nothing secret.
    pub open: &'static [&'static str],
    /// Is called with a line for people about each refused party. Of one source it is called ten times at once, and
    /// then once a second.
    pub say: Box<dyn Fn(&str) + Send + Sync>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("token", &self.token).field("readers", &self.readers).finish_non_exhaustive()
    }
}

impl Access {
    /// Returns whether a client needs a certificate to complete its handshake.
    pub(crate) fn clients(&self) -> ClientMode {
        match self.token.is_none() && self.open.is_empty() {
            true => ClientMode::Required,
            false => ClientMode::Optional,
        }
    }
}

/// Access rules: the accepted hosts, the parties, and the limit on wrong tries.
pub(crate) struct Guard {
    pub(crate) access: Access,
    /// Names accepted in `Host` and `Origin`, without port. `None` accepts all.
    hosts: Option<Vec<String>>,
    attempts: Mutex<Attempts>,
    clock: Clock,
}

/// The sender of a request. Handlers find it in the request's extensions.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its address. `None` means the Unix socket.
    pub address: Option<SocketAddr>,
    /// The party of its certificate. `None` without TLS, or without a certificate.
    pub party: Option<Party>,
}

impl Peer {
    fn shown(&self) -> String {
        let from = self.address.map_or_else(|| "the Unix socket".to_owned(), |address| address.ip().to_string());
        self.party.as_ref().map_or(from.clone(), |party| format!("{party} at {from}"))
    }
}

impl Guard {
    /// `bound` are the addresses of the listener, if it is on TCP.
    pub(crate) fn new(access: Access, bound: &[IpAddr]) -> Guard {
        let hosts = access.hosts.as_ref().map(|more| {
            let own = bound.iter().map(|ip| match ip {
                IpAddr::V4(v4) => v4.to_string(),
                IpAddr::V6(v6) => format!("[{v6}]"),
            });
            let local = ["localhost", "127.0.0.1", "[::1]"].map(String::from);
            local.into_iter().chain(more.iter().cloned()).chain(own).collect()
        });
        let attempts = Mutex::new(Attempts::new(weirgate_clock::keyed_hasher()));
        Guard { access, hosts, attempts, clock: Clock::start() }
    }

    /// Counts a refused try. Returns false if its source has made too many. Otherwise people are told.
    pub(crate) fn refused(&self, address: Option<IpAddr>, line: &str) -> bool {
        let now = self.clock.now();
        let allowed = self.attempts.lock().unwrap_or_else(PoisonError::into_inner).wrong(address, now);
        if allowed {
            (self.access.say)(line);
        }
        allowed
    }

    /// Returns the request with its whole body if it passes every check, and whether not everybody may make it.
    /// Otherwise returns the response that refuses it.
    pub(crate) async fn check(
        &self,
        peer: &Peer,
        request: Request<Body>,
    ) -> Result<(Request<Body>, bool), Box<Response>> {
        if let Some(hosts) = &self.hosts {
            // With TLS, browsers compare the name with the certificate, so a rebound name does not get here.
            if self.access.trust.is_none() {
                check_host(hosts, &request)?;
            }
            check_origin(hosts, request.headers())?;
        }
        let is_trusted = self.check_sender(peer, &request)?;
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
        if changes && !is_json(request.headers()) {
            let why = "a request that changes something must have Content-Type: application/json";
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let (head, body) = request.into_parts();
        Ok((Request::from_parts(head, Body::from(whole(body).await?)), is_trusted))
    }

    /// Checks that the sender may make the request: by the party of its certificate, by a token, or because nothing is
    /// asked for. Returns false if it may because the path is open to all.
    fn check_sender(&self, peer: &Peer, request: &Request<Body>) -> Result<bool, Box<Response>> {
        let Access { token, trust, readers, paths, writers, open, .. } = &self.access;
        if token.is_none() && trust.is_none() {
            return Ok(true);
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let given = request.headers().get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let is_token = token.as_ref().zip(given).is_some_and(|(token, given)| token.is(given));
        let own = |party: &Party| paths.contains(&(request.uri().path(), party.role));
        let may =
            |party: &Party| writers.contains(&party.role) || reads && (readers.contains(&party.role) || own(party));
        if is_token || peer.party.as_ref().is_some_and(may) {
            return Ok(true);
        }
        if reads && open.contains(&request.uri().path()) {
            return Ok(false);
        }
        let what = match (&peer.party, given) {
            (Some(_), _) => "not allowed",
            (None, Some(_)) => "a wrong token",
            (None, None) if trust.is_some() => "no certificate and no token",
            (None, None) => "no token",
        };
        let path: String = request.uri().path().chars().take(MAX_LOGGED).collect();
        let line = format!("{what} from {} for {} {path:?}", peer.shown(), request.method());
        if !self.refused(peer.address.map(|address| address.ip()), &line) {
            let mut answer = refuse(StatusCode::TOO_MANY_REQUESTS, "too many tries without a valid token");
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return Err(answer);
        }
        if let Some(party) = &peer.party {
            let roles = if reads { [*writers, *readers].concat() } else { writers.to_vec() };
            let roles: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
            let why = format!("{party} may not do this; it is for the roles {}", roles.join(", "));
            return Err(refuse(StatusCode::FORBIDDEN, &why));
        }
        let why = match (token.is_some(), trust.is_some()) {
            (true, true) => "this needs a certificate of `weirgate pki`, or Authorization: Bearer and the token",
            (true, false) => "this needs Authorization: Bearer and the token",
            (false, _) => "this needs a certificate of `weirgate pki`",
        };
        let mut answer = refuse(StatusCode::UNAUTHORIZED, why);
        if token.is_some() {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Err(answer)
    }
}

/// Returns whether `authority` names one of `hosts`, on any port.
fn knows(hosts: &[String], authority: &[u8]) -> bool {
    weirgate_http1::split(authority)
        .is_some_and(|a| hosts.iter().any(|host| host.as_bytes().eq_ignore_ascii_case(a.host)))
}

fn check_host(known: &[String], request: &Request<Body>) -> Result<(), Box<Response>> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(refuse(StatusCode::BAD_REQUEST, "a request must have exactly one Host"));
    };
    let target = request.uri().authority().is_none_or(|authority| knows(known, authority.as_str().as_bytes()));
    if knows(known, host.as_bytes()) && target {
        Ok(())
    } else {
        let why = "this Host is not served here; names besides the address belong in admin.hosts or, of a coordinator, admin_hosts";
        Err(refuse(StatusCode::FORBIDDEN, why))
    }
}

fn check_origin(known: &[String], headers: &HeaderMap) -> Result<(), Box<Response>> {
    let foreign = headers.get_all(ORIGIN).iter().any(|origin| {
        let origin = origin.as_bytes();
        let authority = origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://"));
        !authority.is_some_and(|authority| knows(known, authority))
    });
    if foreign {
        return Err(refuse(StatusCode::FORBIDDEN, "requests of other origins are not served here"));
    }
    Ok(())
}

fn refuse(status: StatusCode, why: &str) -> Box<Response> {
    Box::new(answer::refuse(status, why))
}

/// Reads the whole body, limited in size and time.
async fn whole(body: Body) -> Result<Bytes, Box<Response>> {
    match weirgate_clock::within(BODY_TIME, Limited::new(body, MAX_BODY).collect()).await {
        Some(Ok(body)) => Ok(body.to_bytes()),
        Some(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "a request body has at most 64 KiB"))
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
pub(crate) fn seal(mut answer: Response) -> Response {
    let sealed: [(HeaderName, &str); 3] =
        [(CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff"), (CONTENT_SECURITY_POLICY, POLICY)];
    for (name, value) in sealed {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
