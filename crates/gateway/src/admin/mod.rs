//! The admin API: health, metrics, the policy in force, snapshots, reloads and drains.
//!
//! It has its own thread, runtime and limits, so that the admin API and the data plane cannot starve each
//! other. `weirgate_http_server` has the listener and its rules: loopback or a Unix socket, and any other address with
//! mutual TLS only. The handlers are in `routes`.
//!
//! The JSON types are in `weirgate_wire::admin`.

mod live;
mod operations;
mod routes;
pub(crate) mod scrape;
mod snapshot;
mod tap;
mod view;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use weirgate_config::Admin;
use weirgate_http_server::{Access, Listener, Token};
use weirgate_listening::{Address, Socket};
use weirgate_log::Level;
use weirgate_tls::{LiveTrust, Role};

pub use operations::{NotReloaded, Operations, Reloaded, etag};
pub use snapshot::why;
pub use tap::VIEWER;

/// Environment variable with the token, used if no file has one.
pub const TOKEN_VARIABLE: &str = "WEIRGATE_ADMIN_TOKEN";

/// Maximum number of open connections. Others wait in the kernel's backlog. People, a health probe and a
/// scraper need only a few.
const MAX_CONNECTIONS: u32 = 64;

/// An admin listener that is open but not yet served. It is opened before the gateway starts, so that a
/// failure leaves nothing to undo.
#[derive(Debug)]
pub struct AdminListener {
    config: Admin,
    listener: Listener,
    token: Option<Token>,
    has_trust: bool,
}

/// A running admin API. Dropping it stops it.
#[derive(Debug)]
pub struct AdminServer {
    /// The address as the policy names it, and the socket for another process. It has the file of a Unix socket, so
    /// that the file goes with this value and not with the thread. `None` after a hand-over.
    socket: Option<(Address, Socket)>,
    release: Option<oneshot::Sender<()>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminListener {
    /// Finds the token (`variable` is the value of [`TOKEN_VARIABLE`]) and opens the listener. `has_trust` says whether
    /// it will be served with TLS.
    ///
    /// # Errors
    /// The token cannot be read or is too weak, the address is open to other machines without TLS, or the
    /// address is in use or cannot be opened.
    pub fn open(config: Admin, variable: Option<String>, has_trust: bool) -> io::Result<AdminListener> {
        AdminListener::open_or_adopt(config, variable, has_trust, None)
    }

    /// Does the same, but uses `socket`, which another process has opened, if there is one.
    ///
    /// # Errors
    /// As for [`AdminListener::open`].
    pub fn open_or_adopt(
        config: Admin,
        variable: Option<String>,
        has_trust: bool,
        socket: Option<Socket>,
    ) -> io::Result<AdminListener> {
        let token = Token::find("admin", config.token_file.as_deref(), variable.map(|value| (TOKEN_VARIABLE, value)))?;
        let listener = match socket {
            Some(socket) => Listener::adopt(&config.address, "admin API", has_trust, socket)?,
            None => Listener::open(&config.address, config.file, "admin API", has_trust)?,
        };
        Ok(AdminListener { config, listener, token, has_trust })
    }

    /// Returns the TCP address, with the actual port if port 0 was configured, or `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// Whether it will be served with TLS.
    pub fn is_encrypted(&self) -> bool {
        self.has_trust && self.config.address.tcp().is_some()
    }

    /// Whether requests need a token, or a certificate in its place.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Serves `operations` on its own thread, with the trust of their gateway.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub fn serve(self, operations: Arc<Operations>) -> io::Result<AdminServer> {
        let trust = operations.gateway().trust();
        self.serve_router(routes::of_gateway(operations), &weirgate_http_server::page::OPEN, trust)
    }

    /// Serves `router` on its own thread, with the same rules as a gateway's admin API. Other processes
    /// have other pages and the same dangers. `open` are the paths that reveal nothing and are open to all.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub fn serve_router(
        self,
        router: axum::Router,
        open: &'static [&'static str],
        trust: Option<Arc<LiveTrust>>,
    ) -> io::Result<AdminServer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let access = Access {
            hosts: Some(self.config.hosts),
            token: self.token,
            trust,
            readers: &[Role::Operator, Role::Monitor],
            // A standby asks another gateway what it has learned, and needs to see no more.
            paths: &[("/learned", Role::Gateway)],
            writers: &[Role::Operator],
            open,
            say: Box::new(|line| weirgate_log::say(Level::Warning, &format!("admin: {line}"))),
        };
        let mut listener = self.listener;
        let mut socket = listener.share()?;
        if let Some(file) = socket.file_mut() {
            // The process that has left it to this one does not remove it, and had perhaps another policy.
            file.take_over();
            if let Err(error) = file.set(self.config.file) {
                weirgate_log::say(Level::Warning, &format!("admin API: {}: {error}", self.config.address));
            }
        }
        let socket = (self.config.address, socket);
        let ((release, released), (stop, stopped)) = (oneshot::channel::<()>(), oneshot::channel::<()>());
        let thread = std::thread::Builder::new().name("weirgate-admin".into()).spawn(move || {
            runtime.block_on(async {
                let released = async {
                    if released.await.is_err() {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    // A release comes before the end, and has precedence.
                    biased;
                    ended = listener.serve(access, router, MAX_CONNECTIONS, released) => {
                        if let Err(error) = ended {
                            weirgate_log::say(Level::Error, &format!("the admin API has ended: {error}"));
                        }
                    }
                    _ = stopped => {}
                }
            });
            // A reload that is still being checked must not delay the end of the process.
            runtime.shutdown_background();
        })?;
        Ok(AdminServer { socket: Some(socket), release: Some(release), stop: Some(stop), thread: Some(thread) })
    }
}

impl AdminServer {
    /// Returns the socket for another process, with its address as the policy names it. `None` after
    /// [`AdminServer::release`].
    pub fn socket(&self) -> Option<&(Address, Socket)> {
        self.socket.as_ref()
    }

    /// Leaves the file of a Unix socket to another process that is about to take over.
    pub fn leave(&mut self) {
        if let Some((_, socket)) = &mut self.socket
            && let Some(file) = socket.file_mut()
        {
            file.leave();
        }
    }

    /// Owns that file again, because the other process has not taken over.
    pub fn take_back(&mut self) {
        if let Some((_, socket)) = &mut self.socket
            && let Some(file) = socket.file_mut()
        {
            file.take_over();
        }
    }

    /// Leaves new connections to another process, which has the socket. Connections that are open are served on.
    pub fn release(&mut self) {
        self.leave();
        drop(self.socket.take());
        if let Some(release) = self.release.take() {
            // If the thread has ended, it accepts nothing either.
            let _ = release.send(());
        }
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        // Dropping the sender is the signal to stop.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has already printed its message.
            let _ = thread.join();
        }
    }
}
