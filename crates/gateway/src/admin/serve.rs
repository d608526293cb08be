//! Connections to the admin API, with their own thread, runtime and limits.
//!
//! The data plane's load does not reach this thread. The engine's lock is the only thing shared with the data
//! plane's threads. A slow, idle or old connection is closed, so that 64 connections are enough.

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, oneshot};

use super::guard::Peer;
use super::listen::{AdminSocket, Socket};
use super::routes::Routes;
use super::strict::Strict;

/// Maximum number of open connections. Others wait in the kernel's backlog. People, a health probe and a
/// scraper need only a few.
const MAX_CONNECTIONS: usize = ALL_PLACES as usize;

const ALL_PLACES: u32 = 64;

/// Time for the requests on connections that are open when another process takes over: twice the time after which an
/// idle connection is closed.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// Maximum time to wait for and receive a request head, also between two requests.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// Maximum size of a request head, in bytes.
pub(super) const MAX_HEAD: usize = 64 * 1024;

/// Maximum number of headers.
pub(super) const MAX_HEADERS: usize = 100;

/// Age after which a connection is closed once its current request is done.
const GRACE_AGE: Duration = Duration::from_secs(30);
/// Further time after which it is closed in any case, because the reader of a page may have stopped reading.
const GRACE: Duration = Duration::from_secs(30);

/// Pause after a failure to accept a connection, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is used or dropped. Once `release` is used, another process accepts the connections, and this
/// one only serves those that it has accepted. Runs on the admin thread.
pub(super) fn run(
    runtime: tokio::runtime::Runtime,
    socket: Socket,
    routes: Routes,
    release: oneshot::Receiver<()>,
    stop: oneshot::Receiver<()>,
) {
    let (socket, name) = match socket {
        Socket::Tcp(listener) => (AdminSocket::Tcp(listener), None),
        Socket::Unix(listener, name) => (AdminSocket::Unix(listener), Some(name)),
    };
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    runtime.block_on(async {
        let released = async {
            if release.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            // A process without clients stops right after the release, and the release has precedence.
            biased;
            () = released => {
                if let Some(name) = name {
                    name.keep();
                }
                // All places are free when no connection is left. The semaphore is never closed.
                let _ = weirgate_clock::within(LAST_REQUESTS, places.acquire_many(ALL_PLACES)).await;
            }
            _ = stop => {}
            result = accept(socket, Arc::new(routes), &places) => {
                if let Err(error) = result {
                    let _ = writeln!(io::stderr(), "weirgate: the admin API has ended: {error}");
                }
            }
        }
    });
    // A reload that is still being checked must not delay the end of the process.
    runtime.shutdown_background();
}

async fn accept(socket: AdminSocket, routes: Arc<Routes>, places: &Arc<Semaphore>) -> io::Result<()> {
    match socket {
        AdminSocket::Tcp(listener) => {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            serve(async || listener.accept().await.map(|(stream, peer)| (stream, Some(peer.ip()))), routes, places)
                .await
        }
        AdminSocket::Unix(listener) => {
            let listener = tokio::net::UnixListener::from_std(listener)?;
            serve(async || listener.accept().await.map(|(stream, _)| (stream, None)), routes, places).await
        }
    }
}

async fn serve<S>(
    mut accept: impl AsyncFnMut() -> io::Result<(S, Option<IpAddr>)>,
    routes: Arc<Routes>,
    places: &Arc<Semaphore>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    loop {
        // The semaphore is never closed.
        let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
        match accept().await {
            Ok((stream, peer)) => {
                let connection = connection(stream, peer, Arc::clone(&routes));
                tokio::spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(_) => weirgate_clock::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves one connection to its end.
async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send, peer: Option<IpAddr>, routes: Arc<Routes>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let routes = Arc::clone(&routes);
        async move { Ok::<_, std::convert::Infallible>(routes.answer(Peer(peer), request.map(Body::new)).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(Strict::new(stream)), service);
    let mut served = std::pin::pin!(served);
    // Errors that end a connection concern only its client, so they are ignored.
    if weirgate_clock::within(GRACE_AGE, served.as_mut()).await.is_none() {
        served.as_mut().graceful_shutdown();
        let _ = weirgate_clock::within(GRACE, served).await;
    }
}
