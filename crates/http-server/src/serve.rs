//! Connections with their limits.
//!
//! A slow, idle or old connection is closed, so that a few dozen are enough. No connection lives for more than a
//! minute, so that a revoked certificate is of no use after that.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weirgate_listening::{Address, FileAccess, Socket};
use weirgate_tls::LiveTrust;
use weirgate_tls::trust::LOOK_EVERY;

use crate::guard::{Access, Guard, Peer, seal};
use crate::handshake;
use crate::listen;
use crate::strict::Strict;

/// Time for the requests on connections that are open when another process takes over: twice the time after which an
/// idle connection is closed.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// Maximum time to wait for and receive a request head, also between two requests.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// Maximum size of a request head, in bytes.
pub(crate) const MAX_HEAD: usize = 64 * 1024;

/// Maximum number of headers.
pub(crate) const MAX_HEADERS: usize = 100;

/// Age after which a connection is closed once its current request is done.
const GRACE_AGE: Duration = Duration::from_secs(30);
/// Further time after which it is closed in any case, because the reader of a page may have stopped reading.
const GRACE: Duration = Duration::from_secs(30);

/// Pause after a failure to accept a connection, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener that is open but not yet served.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    name: &'static str,
    socket: Socket,
}

impl Listener {
    /// Opens a listener, which errors call `name`. `file` is for a Unix socket. `has_trust` says whether it will be
    /// served with TLS.
    ///
    /// # Errors
    /// The address would be open to other machines without TLS, is in use, or cannot be opened.
    pub fn open(address: &Address, file: FileAccess, name: &'static str, has_trust: bool) -> io::Result<Listener> {
        Ok(Listener { address: address.clone(), name, socket: listen::open(address, file, name, has_trust)? })
    }

    /// Does the same with a socket that another process has opened.
    ///
    /// # Errors
    /// The address would be open to other machines without TLS.
    pub fn adopt(address: &Address, name: &'static str, has_trust: bool, socket: Socket) -> io::Result<Listener> {
        Ok(Listener { address: address.clone(), name, socket: listen::adopt(address, name, has_trust, socket)? })
    }

    /// Returns the TCP address, with the actual port if port 0 was configured, or `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Returns a duplicate of the socket, which has its file from now on.
    ///
    /// # Errors
    /// There is no file descriptor left.
    pub fn share(&mut self) -> io::Result<Socket> {
        self.socket.share()
    }

    /// Answers requests with `router` on at most `connections` connections at once. Others wait in the kernel's
    /// backlog. A Unix socket is never encrypted. Once `release` is done, another process accepts the connections, and
    /// this one only serves those that it has accepted.
    ///
    /// # Errors
    /// The socket cannot be used, or its address is open to other machines and `access` has no trust.
    pub async fn serve(
        self,
        mut access: Access,
        router: Router,
        connections: u32,
        release: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let bound = self.address();
        listen::guarded(&self.address, self.name, access.trust.is_some())?;
        if self.address.tcp().is_none() {
            access.trust = None;
        }
        let own: Vec<_> = self.address.tcp().into_iter().chain(bound).map(|address| address.ip()).collect();
        let served = Arc::new(Served { guard: Guard::new(access, &own), router: TowerToHyperService::new(router) });
        let mut socket = self.socket;
        let places = Arc::new(Semaphore::new(connections as usize));
        tokio::select! {
            // A process without clients stops right after the release, and the release has precedence.
            biased;
            () = release => {
                if let Some(file) = socket.file_mut() {
                    file.leave();
                }
                drop(socket);
                // All places are free when no connection is left. The semaphore is never closed.
                let _ = weirgate_clock::within(LAST_REQUESTS, places.acquire_many(connections)).await;
                Ok(())
            }
            ended = accept(&socket, served, &places) => ended,
        }
    }
}

/// Puts changed files of `trust` in force, for ever. `say` is called with a line about each change.
pub async fn follow(trust: Option<Arc<LiveTrust>>, say: impl Fn(&str)) {
    let Some(trust) = trust else { return pending().await };
    loop {
        weirgate_clock::sleep(LOOK_EVERY).await;
        let looked = Arc::clone(&trust);
        // Not on this thread: a slow disk would delay requests.
        if let Ok(Some(Ok(line) | Err(line))) = tokio::task::spawn_blocking(move || looked.look()).await {
            say(&line);
        }
    }
}

/// State that all connections of a listener share.
struct Served {
    guard: Guard,
    router: TowerToHyperService<Router>,
}

impl Served {
    /// Answers one request of any kind.
    async fn answer(&self, peer: &Peer, request: Request<Body>) -> Response {
        let answer = match self.guard.check(peer, request).await {
            Ok(mut request) => {
                request.extensions_mut().insert(peer.clone());
                match self.router.call(request).await {
                    Ok(answer) => answer,
                    Err(never) => match never {},
                }
            }
            Err(refusal) => *refusal,
        };
        seal(answer)
    }
}

async fn accept(socket: &Socket, served: Arc<Served>, places: &Arc<Semaphore>) -> io::Result<()> {
    match socket {
        Socket::Tcp(listener) => {
            let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
            loop {
                let place = place(places).await?;
                match listener.accept().await {
                    Ok((stream, address)) => {
                        // An answer is one small write that must be sent at once.
                        let _ = stream.set_nodelay(true);
                        let served = Arc::clone(&served);
                        tokio::spawn(async move {
                            tcp(stream, address, served).await;
                            drop(place);
                        });
                    }
                    Err(_) => weirgate_clock::sleep(ACCEPT_PAUSE).await,
                }
            }
        }
        Socket::Unix(listener, _) => {
            let listener = tokio::net::UnixListener::from_std(listener.try_clone()?)?;
            loop {
                let place = place(places).await?;
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let served = Arc::clone(&served);
                        tokio::spawn(async move {
                            connection(stream, Peer::default(), served).await;
                            drop(place);
                        });
                    }
                    Err(_) => weirgate_clock::sleep(ACCEPT_PAUSE).await,
                }
            }
        }
    }
}

/// Waits for a place. The semaphore is never closed.
async fn place(places: &Arc<Semaphore>) -> io::Result<OwnedSemaphorePermit> {
    Arc::clone(places).acquire_owned().await.map_err(io::Error::other)
}

/// Serves one TCP connection to its end, after its handshake if there is TLS.
async fn tcp(stream: tokio::net::TcpStream, address: SocketAddr, served: Arc<Served>) {
    let peer = |party| Peer { address: Some(address), party };
    let Some(trust) = served.guard.access.trust.clone() else { return connection(stream, peer(None), served).await };
    let shaken = handshake::accept(stream, &trust, served.guard.access.clients());
    let shaken = weirgate_clock::within(HEAD_TIME, shaken).await;
    match shaken.unwrap_or_else(|| Err(format!("no whole handshake within {} s", HEAD_TIME.as_secs()))) {
        Ok((stream, party)) => connection(stream, peer(party), served).await,
        Err(why) => drop(served.guard.refused(Some(address.ip()), &format!("refused {address}: {why}"))),
    }
}

/// Serves one connection to its end.
async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send, peer: Peer, served: Arc<Served>) {
    let service = service_fn(|request: Request<Incoming>| {
        let (served, peer) = (Arc::clone(&served), peer.clone());
        async move { Ok::<_, std::convert::Infallible>(served.answer(&peer, request.map(Body::new)).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(Strict::new(stream)), service);
    let mut served = pin!(served);
    // Errors that end a connection concern only its client, so they are ignored.
    if weirgate_clock::within(GRACE_AGE, served.as_mut()).await.is_none() {
        served.as_mut().graceful_shutdown();
        let _ = weirgate_clock::within(GRACE, served).await;
    }
}
