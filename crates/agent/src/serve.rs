//! Server of reports for gateways: `GET /weirgate/report`.
//!
//! Like the admin API, it is open only to this machine, or to clients with the token. Nothing can be changed
//! here, and a response has counts and no names. A guessed token would gain nothing, so wrong tokens are not
//! counted.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as Listener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use weirgate_clock as clock;
use weirgate_wire::{Report, Token, bearer};

use crate::source::Source;
use crate::usage::Meter;

/// Path of the report.
pub const REPORT_PATH: &str = "/weirgate/report";

/// Maximum number of open connections. A few gateways ask every few seconds. More connections wait in the
/// kernel.
const MAX_CONNECTIONS: usize = 32;

/// Timeout of a connection, which serves one request. Reading the status page takes less time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause in accepting when the process has no file descriptor left.
const PAUSE: Duration = Duration::from_millis(50);

/// Opens the listening socket.
///
/// # Errors
/// The socket would be open to other machines without a token, or it cannot be opened.
pub fn open(address: SocketAddr, has_token: bool) -> io::Result<Listener> {
    if !address.ip().to_canonical().is_loopback() && !has_token {
        let why = format!(
            "anyone who reaches {address} could read the report: give a token with --token-file, or listen on a \
             loopback address"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let listener = Listener::bind(address).map_err(|e| io::Error::new(e.kind(), format!("{address}: {e}")))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves the counts of `source` and the readings of `meter` on `listener`, for ever. `say` is called when
/// the source stops answering, with the reason, and when it answers again.
///
/// # Errors
/// The socket cannot be used. Call it on a [`tokio::task::LocalSet`].
pub async fn serve(
    listener: Listener,
    source: Source,
    meter: Meter,
    token: Option<Token>,
    say: impl Fn(&str) + 'static,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let shared = Rc::new(SharedState { source, meter, token, problem: RefCell::default(), say: Box::new(say) });
    let seats = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return Ok(()) };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(_) => {
                clock::sleep(PAUSE).await;
                continue;
            }
        };
        let shared = Rc::clone(&shared);
        tokio::task::spawn_local(async move {
            let service = service_fn(async |request| Ok::<_, Infallible>(shared.answer(&request).await));
            let connection = http1::Builder::new()
                .keep_alive(false)
                .header_read_timeout(None)
                .serve_connection(TokioIo::new(stream), service);
            // The client has left or was too slow, so an error is ignored.
            let _ = clock::within(PATIENCE, connection).await;
            drop(seat);
        });
    }
}

/// State shared by all connections.
struct SharedState {
    source: Source,
    meter: Meter,
    token: Option<Token>,
    /// Reason why the source does not answer, if it does not.
    problem: RefCell<Option<String>>,
    say: Box<dyn Fn(&str)>,
}

impl SharedState {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let given = request.headers().get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        if self.token.as_ref().is_some_and(|token| !given.is_some_and(|given| token.is(given))) {
            let mut answer = refuse(StatusCode::UNAUTHORIZED, "this needs Authorization: Bearer and the agent's token");
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return answer;
        }
        if request.uri().path() != REPORT_PATH {
            return refuse(StatusCode::NOT_FOUND, "the report is at /weirgate/report");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "the report is read with GET");
        }
        let active = self.source.active().await;
        self.mind(active.as_ref().err());
        match active {
            Ok(active) => json(StatusCode::OK, Report { active, usage: Some(self.meter.read()) }.to_json()),
            Err(why) => refuse(StatusCode::BAD_GATEWAY, &why),
        }
    }

    /// Announces a change of the problem.
    fn mind(&self, problem: Option<&String>) {
        let mut before = self.problem.borrow_mut();
        match (before.as_ref(), problem) {
            (_, Some(problem)) if before.as_ref() != Some(problem) => (self.say)(&format!("no counts: {problem}")),
            (Some(_), None) => (self.say)("the server reports its counts again"),
            _ => {}
        }
        *before = problem.cloned();
    }
}

fn refuse(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    json(status, format!("{}\n", serde_json::json!({ "error": why })))
}

fn json(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_open_to_others_needs_a_token() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9902"] {
            let error = open(address.parse().expect("an address"), false).expect_err(address);
            assert!(error.to_string().contains("--token-file"), "{error}");
        }
        assert!(open("127.0.0.1:0".parse().expect("an address"), false).is_ok());
        assert!(open("0.0.0.0:0".parse().expect("an address"), true).is_ok());
    }
}
