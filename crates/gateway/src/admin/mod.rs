//! The admin API: health, metrics, the policy in force, snapshots, reloads and drains.
//!
//! It has its own thread, runtime and limits, so that the admin API and the data plane cannot starve each
//! other. It listens on loopback or a Unix socket. On any other address it starts only with a token. Requests
//! that a web page could make a browser send are refused (see `guard`). The handlers are in `routes`.
//!
//! The JSON types are in `weirgate_wire::admin`.

mod answer;
mod guard;
mod listen;
mod live;
mod operations;
mod routes;
mod scrape;
mod serve;
mod snapshot;
mod strict;
mod token;
mod view;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use weirgate_config::{Admin, AdminAddress};
use weirgate_wire::Token;

pub use listen::AdminSocket;
pub use operations::{NotReloaded, Operations, Reloaded, etag};
pub use snapshot::why;
pub use token::TOKEN_VARIABLE;

use crate::clock::Clock;
use guard::Guard;
use listen::Socket;
use routes::Routes;

/// An admin listener that is open but not yet served. It is opened before the gateway starts, so that a
/// failure leaves nothing to undo.
#[derive(Debug)]
pub struct AdminListener {
    config: Admin,
    socket: Socket,
    token: Option<Token>,
}

/// A running admin API. Dropping it stops it.
#[derive(Debug)]
pub struct AdminServer {
    /// The address as the policy names it, and the socket for another process. `None` after a hand-over.
    socket: Option<(AdminAddress, AdminSocket)>,
    release: Option<oneshot::Sender<()>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminListener {
    /// Finds the token (`variable` is the value of [`TOKEN_VARIABLE`]) and opens the listener.
    ///
    /// # Errors
    /// The token cannot be read or is too weak, the address is open to other machines without a token, or the
    /// address is in use or cannot be opened.
    pub fn open(config: Admin, variable: Option<String>) -> io::Result<AdminListener> {
        AdminListener::open_or_adopt(config, variable, None)
    }

    /// Does the same, but uses `socket`, which another process has opened, if there is one.
    ///
    /// # Errors
    /// As for [`AdminListener::open`].
    pub fn open_or_adopt(
        config: Admin,
        variable: Option<String>,
        socket: Option<AdminSocket>,
    ) -> io::Result<AdminListener> {
        let token = Token::find("admin", config.token_file.as_deref(), variable.map(|value| (TOKEN_VARIABLE, value)))?;
        let socket = match socket {
            Some(socket) => listen::adopt(&config.address, token.is_some(), socket)?,
            None => listen::open(&config.address, token.is_some())?,
        };
        Ok(AdminListener { config, socket, token })
    }

    /// Returns the TCP address, with the actual port if port 0 was configured, or `None` for a Unix socket.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Whether requests need a token.
    #[must_use]
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Serves `operations` on its own thread.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub fn serve(self, operations: Arc<Operations>) -> io::Result<AdminServer> {
        self.serve_router(routes::of_gateway(operations))
    }

    /// Serves `router` on its own thread, behind the same guard as a gateway's admin API. Other processes
    /// have other pages and the same dangers.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub fn serve_router(self, router: axum::Router) -> io::Result<AdminServer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let guard = Guard::new(&self.config, self.address(), self.token, Clock::start());
        let routes = Routes::new(guard, router);
        let socket = (self.config.address, self.socket.duplicate()?);
        let ((release, released), (stop, stopped)) = (oneshot::channel(), oneshot::channel());
        let thread = std::thread::Builder::new()
            .name("weirgate-admin".into())
            .spawn(move || serve::run(runtime, self.socket, routes, released, stopped))?;
        Ok(AdminServer { socket: Some(socket), release: Some(release), stop: Some(stop), thread: Some(thread) })
    }
}

impl AdminServer {
    /// Returns the socket for another process, with its address as the policy names it. `None` after
    /// [`AdminServer::release`].
    #[must_use]
    pub fn socket(&self) -> Option<&(AdminAddress, AdminSocket)> {
        self.socket.as_ref()
    }

    /// Leaves new connections to another process, which has the socket. Connections that are open are served on.
    pub fn release(&mut self) {
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
