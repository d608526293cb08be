//! Requests to the authority: HTTP/1.1 over TLS, one connection each.
//!
//! instant-acme makes the requests. Its own client would add an HTTP/2 stack and a second verifier of certificates. An
//! order has about a dozen requests, so connections are not kept.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{HOST, RETRY_AFTER};
use http::{Method, Response};
use http_body_util::{BodyExt as _, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::ClientConfig;
use weirgate_http_client::{Address, Limits, Request, exchange};

/// Limits of a request. Authorities answer within seconds. The longest answer is a chain of certificates, of some KiB.
const LIMITS: Limits = Limits::new(Duration::from_secs(30), 1 << 20);

/// The wait that an answer asks for (RFC 9110 Sec. 10.2.3). instant-acme does not show it with errors.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryAfter(Arc<Mutex<Option<Duration>>>);

impl RetryAfter {
    /// Returns the wait that the last answer asks for.
    pub(crate) fn last(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, field: Option<&str>) {
        let wait = field.and_then(|field| {
            let seconds = field.trim().parse().ok().map(Duration::from_secs);
            seconds.or_else(|| httpdate::parse_http_date(field).ok()?.duration_since(weirgate_clock::calendar()).ok())
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = wait;
    }
}

/// A client of HTTP.
pub(crate) struct Https {
    tls: Arc<ClientConfig>,
    retry_after: RetryAfter,
}

impl Https {
    /// Creates a client that trusts the authorities in the file `ca`, or those of the system.
    ///
    /// # Errors
    /// There are none.
    pub(crate) fn new(ca: Option<&Path>, retry_after: RetryAfter) -> Result<Https, String> {
        let tls = weirgate_tls::https(ca).map_err(|faults| weirgate_tls::told(&faults))?;
        Ok(Https { tls, retry_after })
    }
}

impl HttpClient for Https {
    fn request(
        &self,
        request: http::Request<BodyWrapper<bytes::Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (tls, retry_after) = (Arc::clone(&self.tls), self.retry_after.clone());
        Box::pin(async move {
            let asked = ask(tls, request).await;
            let response = asked.map_err(|why| Error::Other(why.into()))?;
            let field = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            retry_after.set(field);
            Ok(BytesResponse::from(response))
        })
    }
}

/// Fields of an answer that matter to ACME.
const FIELDS: [&str; 3] = ["replay-nonce", "location", "retry-after"];

async fn ask(
    tls: Arc<ClientConfig>,
    request: http::Request<BodyWrapper<bytes::Bytes>>,
) -> Result<Response<Full<bytes::Bytes>>, String> {
    let (head, body) = request.into_parts();
    let uri = head.uri;
    let (Some("https"), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return Err(format!("the authority names {uri}, which is not `https`"));
    };
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    let mut sent = match head.method {
        Method::HEAD => Request::head(authority, path),
        Method::GET => Request::get(authority, path),
        _ => Request::post(authority, path, body),
    };
    for (name, value) in head.headers.iter().filter(|(name, _)| **name != HOST) {
        sent = sent.field(name.as_str(), value.to_str().map_err(|error| error.to_string())?);
    }
    let address = format!("{host}:{}", uri.port_u16().unwrap_or(443));
    let answer = exchange(&Address::Https(address, tls), sent, &LIMITS).await;
    let answer = answer.map_err(|error| format!("{authority}: {error}"))?;
    let mut response = Response::builder().status(answer.status);
    for name in FIELDS {
        if let Some(value) = answer.field(name) {
            response = response.header(name, value);
        }
    }
    response.body(Full::new(answer.body)).map_err(|error| error.to_string())
}

impl std::fmt::Debug for Https {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Https").finish_non_exhaustive()
    }
}
