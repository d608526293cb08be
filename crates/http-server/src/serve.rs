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
use weirgate_listening::{Address, FileAccess, Socket};
use weirgate_tls::LiveTrust;
use weirgate_tls::trust::LOOK_EVERY;

use crate::guard::{Access, Guard, Peer, seal};
use crate::handshake;
use crate::listen;
use crate::places::{Place, Places};
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

    /// Answers requests with `router` on at most `connections` connections at once. Beyond that, one that has not yet
    /// made a request with permission is closed for each new one. If there is none, new ones wait in the kernel's
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
        let places = Places::new(connections as usize);
        tokio::select! {
            // A process without clients stops right after the release, and the release has precedence.
            biased;
            () = release => {
                if let Some(file) = socket.file_mut() {
                    file.leave();
                }
                drop(socket);
                let _ = weirgate_clock::within(LAST_REQUESTS, places.all_free()).await;
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
    async fn answer(&self, peer: &Peer, place: &Place, request: Request<Body>) -> Response {
        let answer = match self.guard.check(peer, request).await {
            Ok((mut request, is_trusted)) => {
                if is_trusted {
                    place.speaks();
                }
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

async fn accept(socket: &Socket, served: Arc<Served>, places: &Arc<Places>) -> io::Result<()> {
    match socket {
        Socket::Tcp(listener) => {
            let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
            loop {
                match listener.accept().await {
                    Ok((stream, address)) => {
                        // An answer is one small write that must be sent at once.
                        let _ = stream.set_nodelay(true);
                        let place = Arc::new(places.take(Some(address.ip())).await);
                        let served = Arc::clone(&served);
                        spawn(Arc::clone(&place), async move { tcp(stream, address, &place, served).await });
                    }
                    Err(_) => weirgate_clock::sleep(ACCEPT_PAUSE).await,
                }
            }
        }
        Socket::Unix(listener, _) => {
            let listener = tokio::net::UnixListener::from_std(listener.try_clone()?)?;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let place = Arc::new(places.take(None).await);
                        let served = Arc::clone(&served);
                        let peer = Peer::default();
                        spawn(Arc::clone(&place), async move { connection(stream, peer, &place, served).await });
                    }
                    Err(_) => weirgate_clock::sleep(ACCEPT_PAUSE).await,
                }
            }
        }
    }
}

/// Runs `connection` to its end, or until it has to give its place up.
fn spawn(place: Arc<Place>, connection: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        tokio::select! {
            () = connection => {}
            () = place.given_up() => {}
        }
    });
}

/// Serves one TCP connection to its end, after its handshake if there is TLS.
async fn tcp(stream: tokio::net::TcpStream, address: SocketAddr, place: &Place, served: Arc<Served>) {
    let peer = |party| Peer { address: Some(address), party };
    let Some(trust) = served.guard.access.trust.clone() else {
        return connection(stream, peer(None), place, served).await;
    };
    let shaken = handshake::accept(stream, &trust, served.guard.access.clients());
    let shaken = weirgate_clock::within(HEAD_TIME, shaken).await;
    match shaken.unwrap_or_else(|| Err(format!("no whole handshake within {} s", HEAD_TIME.as_secs()))) {
        Ok((stream, party)) => connection(stream, peer(party), place, served).await,
        Err(why) => drop(served.guard.refused(Some(address.ip()), &format!("refused {address}: {why}"))),
    }
}

/// Serves one connection to its end.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    peer: Peer,
    place: &Place,
    served: Arc<Served>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (served, peer) = (Arc::clone(&served), peer.clone());
        async move { Ok::<_, std::convert::Infallible>(served.answer(&peer, place, request.map(Body::new)).await) }
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

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::Token;

    /// Number of places. There are many more connections.
    const PLACES: u32 = 4;

    /// Time for an answer. It is shorter than that after which silent connections are closed in any case.
    const SOON: Duration = Duration::from_secs(3);

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    /// Serves `/ready` for all and `/` for whoever has the token, and returns the address.
    fn listener(token: Option<Token>) -> SocketAddr {
        let address = Address::Tcp(([127, 0, 0, 1], 0).into());
        let listener = Listener::open(&address, FileAccess::OWNER, "test", false).expect("it opens");
        let address = listener.address().expect("an address");
        let access = Access {
            hosts: None,
            token,
            trust: None,
            readers: &[],
            paths: &[],
            writers: &[],
            open: &["/ready"],
            say: Box::new(|_| {}),
        };
        let router = Router::new().route("/", get(async || "yes")).route("/ready", get(async || "yes"));
        tokio::spawn(async move { listener.serve(access, router, PLACES, pending()).await });
        address
    }

    /// Sends a request on a connection that stays open. Returns the status of the answer.
    async fn ask(stream: &mut TcpStream, path: &str) -> Option<u16> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut answer = vec![0; 4096];
        let read = weirgate_clock::within(SOON, stream.read(&mut answer)).await?.ok()?;
        std::str::from_utf8(answer.get(..read)?).ok()?.split(' ').nth(1)?.parse().ok()
    }

    async fn connected(address: SocketAddr) -> TcpStream {
        TcpStream::connect(address).await.expect("it accepts")
    }

    #[tokio::test]
    async fn silent_connections_make_room_and_served_ones_stay() {
        let address = listener(None);
        let mut served = connected(address).await;
        assert_eq!(ask(&mut served, "/").await, Some(200));
        let mut silent = Vec::new();
        for _ in 0..40 {
            silent.push(connected(address).await);
        }
        let mut late = connected(address).await;
        assert_eq!(ask(&mut late, "/").await, Some(200), "a new one");
        assert_eq!(ask(&mut served, "/").await, Some(200), "an earlier one");
        let open = PLACES as usize - 2;
        for (number, silent) in silent.iter_mut().enumerate() {
            let answer = ask(silent, "/").await;
            assert_eq!(answer.is_some(), number >= 40 - open, "{number}: the oldest are closed");
        }
    }

    #[tokio::test]
    async fn strangers_on_open_paths_make_room() {
        let address = listener(Token::find("test", None, Some(("TEST", SECRET.to_owned()))).expect("a token"));
        let mut strangers = Vec::new();
        for _ in 0..40 {
            let mut stranger = connected(address).await;
            stranger.write_all(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it is open");
            strangers.push(stranger);
        }
        let mut late = connected(address).await;
        assert_eq!(ask(&mut late, "/").await, Some(200));
    }
}
