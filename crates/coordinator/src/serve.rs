//! The coordinator as a whole: it listens, runs the optimiser when the coordinator requests it, and stops on
//! request.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weirgate_config::Reserves;
use weirgate_http_server::{Access, Listener, follow};
use weirgate_listening::{Address, FileAccess};
use weirgate_tls::{LiveTrust, Role};

use crate::agents;
use crate::shared_state::SharedState;

/// Number of connections beyond the two of each agent: for strangers, for agents that connect anew, and for a thousand
/// agents that dial a new coordinator.
const SPARE: usize = 128;

/// Interval between two looks for silent sessions. It is short for the time for which they may be silent.
const SWEEP: Duration = Duration::from_secs(1);

/// A coordinator that listens and does not work yet.
#[derive(Debug)]
pub struct CoordinatorServer {
    listener: Listener,
    shared: Arc<SharedState>,
    trust: Option<Arc<LiveTrust>>,
    hosts: Vec<String>,
    connections: u32,
}

impl CoordinatorServer {
    /// Opens the listener for agents. `say` is called with messages for people, one line at a time.
    ///
    /// # Errors
    /// The address is open to other machines and there is no trust, or it is in use or cannot be opened.
    pub fn open(
        reserves: &Reserves,
        trust: Option<Arc<LiveTrust>>,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<CoordinatorServer> {
        let listener =
            Listener::open(&Address::Tcp(reserves.listen), FileAccess::OWNER, "coordinator", trust.is_some())?;
        let coordinator = &reserves.cluster.coordinator;
        let host = coordinator.rsplit_once(':').map_or(coordinator.as_str(), |(host, _)| host);
        let connections = u32::try_from(2 * reserves.cluster.nodes.len() + SPARE).unwrap_or(u32::MAX);
        let shared = Arc::new(SharedState::new(reserves, Box::new(say)));
        Ok(CoordinatorServer { listener, shared, trust, hosts: vec![host.to_owned()], connections })
    }

    /// Returns the address of the listener, with the actual port if port 0 was configured.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// Returns the shared state, for [`crate::routes`].
    pub fn shared(&self) -> Arc<SharedState> {
        Arc::clone(&self.shared)
    }

    /// Works until `stop` resolves. Then all connections end, and agents keep the shares in force.
    ///
    /// # Errors
    /// The socket cannot be used, or the optimiser crashed.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let access = Access {
            hosts: Some(self.hosts),
            token: None,
            trust: self.trust.clone(),
            readers: &[],
            paths: &[],
            writers: &[Role::Agent],
            open: &[],
            say: Box::new(move |line| shared.refused(line)),
        };
        let router = agents::routes(Arc::clone(&self.shared));
        tokio::select! {
            () = stop => Ok(()),
            ended = self.listener.serve(access, router, self.connections, pending()) => ended,
            ended = drive(&self.shared) => ended,
            never = sweep(&self.shared) => match never {},
            () = follow(self.trust, |line| self.shared.say(line)) => Ok(()),
        }
    }
}

/// Ends silent sessions.
async fn sweep(shared: &SharedState) -> Infallible {
    loop {
        weirgate_clock::sleep(SWEEP).await;
        shared.end_silent();
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
