//! The coordinator as a whole: it listens, runs the optimiser when the coordinator requests it, and stops on
//! request.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use weirgate_clock as clock;
use weirgate_config::Reserves;

use crate::agents::Agents;
use crate::connection;
use crate::shared_state::SharedState;

/// Maximum number of connections that have not yet proven their identity. More wait in the kernel's backlog.
/// A thousand agents that dial a new coordinator are accepted within a second or two. A peer that sends nothing
/// takes up one of these connections for 3 s.
const MAX_UNPROVEN: usize = 128;

/// Pause after a failure to accept a connection, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A coordinator that listens and does not work yet.
#[derive(Debug)]
pub struct CoordinatorServer {
    listener: std::net::TcpListener,
    shared: Arc<SharedState>,
}

impl CoordinatorServer {
    /// Reads the tokens and opens the listener. `say` is called with messages for people, one line at a time.
    ///
    /// # Errors
    /// A token cannot be read or is too weak, the address is open to other machines and a node has no token,
    /// or the address is in use or cannot be opened.
    pub fn open(reserves: &Reserves, say: impl Fn(&str) + Send + Sync + 'static) -> io::Result<CoordinatorServer> {
        let agents = Agents::of(reserves)?;
        let address = reserves.listen;
        let opened = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = opened.map_err(|error| {
            let help = match error.kind() {
                io::ErrorKind::AddrInUse => "; stop the process that uses it, or change `reserves.listen`",
                io::ErrorKind::AddrNotAvailable => "; this machine has no such address: change `reserves.listen`",
                _ => "",
            };
            io::Error::new(error.kind(), format!("{address}: {error}{help}"))
        })?;
        Ok(CoordinatorServer { listener, shared: Arc::new(SharedState::new(reserves, agents, Box::new(say))) })
    }

    /// Returns the address of the listener, with the actual port if port 0 was configured.
    ///
    /// # Errors
    /// The system does not provide the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the shared state, for [`crate::routes`].
    #[must_use]
    pub fn shared(&self) -> Arc<SharedState> {
        Arc::clone(&self.shared)
    }

    /// Works until `stop` resolves. Then all connections end, and agents keep the shares in force.
    ///
    /// # Errors
    /// The socket cannot be used, or the optimiser crashed.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        tokio::select! {
            () = stop => Ok(()),
            ended = accept(&listener, &self.shared) => ended,
            ended = drive(&self.shared) => ended,
        }
    }
}

/// Accepts agents. Their tasks end with this one.
async fn accept(listener: &TcpListener, shared: &Arc<SharedState>) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(MAX_UNPROVEN));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, peer)) => {
                let shared = Arc::clone(shared);
                connections.spawn(async move { connection::serve(stream, peer, &shared, place).await });
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => clock::sleep(ACCEPT_PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Runs the optimiser whenever it is due. It may take seconds for a thousand nodes, so it runs on another
/// thread and agents are served meanwhile.
async fn drive(shared: &SharedState) -> io::Result<()> {
    loop {
        let (problem, wake) = shared.poll();
        match problem {
            Some(problem) => {
                let began = shared.now();
                let solved = tokio::task::spawn_blocking(move || weirgate_reserves::solve(&problem)).await;
                shared
                    .solved(solved.map_err(|error| io::Error::other(format!("the optimiser failed: {error}")))?, began);
            }
            None => tokio::select! {
                () = shared.changed() => {}
                () = shared.reach(wake) => {}
            },
        }
    }
}
