//! Connection to the coordinator, re-established for the lifetime of the agent.
//!
//! Source: Cluster Reserves, Sec. 4: a persistent TCP connection between tracker and coordinator. If it fails,
//! the shares stay as they are. Lines are sealed as described in `weirgate_wire::Link`. While the coordinator
//! is not reachable, the agent dials again after a pause of at first 50 ms and at most 400 ms. Each pause is
//! shortened by a random part, so that a thousand agents do not reach a new coordinator at once.

use std::net::IpAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use weirgate_clock::{self as clock, Clock};
use weirgate_wire::{AgentLink, FromAgent, FromCoordinator, Lines, NodeReport, Token};

/// First and longest pause before the coordinator is dialled again. A new coordinator starts its first run after all
/// nodes have connected and reported a window of 250 ms. With a pause of 400 ms before that, shares are
/// managed again within a second of its start. A thousand agents then cause 2,500 refused connections a
/// second, a negligible load for a loopback or a network card.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(400));

/// Timeout for connecting, for each line of the handshake, and for the network to accept a report.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum number of reports that wait for the network: two windows of them. If there are more, the
/// connection is given up, because the coordinator counts a node as down after 1 s without a report.
const MAX_WAITING: usize = 2;

/// Maximum number of bytes read at once. The shares of 100 classes are 2 KiB.
const READ: usize = 4096;

#[derive(Debug)]
pub(crate) enum Event {
    /// A connection is established. The agent sends its reports here, and the connection ends when the sender
    /// is dropped.
    Up(mpsc::Sender<NodeReport>),
    /// The coordinator has sent shares to set.
    Shares {
        /// Number of the coordinator's run.
        run: u64,
        /// Shares in percent of the node. A correct coordinator sends one for each class.
        shares: Vec<f64>,
    },
    /// The connection has ended or failed, with the reason. Not sent if the agent itself gave it up.
    Down(String),
}

/// The coordinator to dial, and the identity of the agent.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) coordinator: String,
    pub(crate) node: String,
    pub(crate) token: Option<Token>,
    pub(crate) events: mpsc::Sender<Event>,
}

/// How a connection ended without an error.
enum End {
    /// The receiver of the events is gone.
    Unheard,
    /// The agent dropped the sender of its reports.
    Dropped,
}

/// Whether messages to `address` stay on this machine, judged by the address alone.
pub(crate) fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

impl Dial {
    /// Keeps a connection until the receiver of the events is gone.
    pub(crate) async fn keep(self) {
        let mut pause = PAUSE.0;
        loop {
            let began = Clock::start();
            match self.talk().await {
                Ok(End::Unheard) => return,
                Ok(End::Dropped) => {}
                Err(why) => {
                    if self.events.send(Event::Down(why)).await.is_err() {
                        return;
                    }
                }
            }
            // The pause is not reset after a short connection. So a coordinator that closes connections at once
            // is not dialled too often.
            if began.now() >= PAUSE.1 {
                pause = PAUSE.0;
            }
            clock::sleep(clock::jittered(pause)).await;
            pause = (2 * pause).min(PAUSE.1);
        }
    }

    /// Opens one connection and uses it until it ends.
    ///
    /// # Errors
    /// The reason why there is no connection, or why it ended.
    async fn talk(&self) -> Result<End, String> {
        let slow = |what: &str| format!("{what} within {} s", PATIENCE.as_secs());
        let connect = clock::within(PATIENCE, TcpStream::connect(self.coordinator.as_str())).await;
        let mut stream = connect.ok_or_else(|| slow("no connection"))?.map_err(|error| error.to_string())?;
        // A report is one small write that must be sent at once. A coordinator's machine that fails does not
        // close the connection.
        let set = stream.set_nodelay(true).and_then(|()| SockRef::from(&stream).set_tcp_user_timeout(Some(PATIENCE)));
        set.map_err(|error| error.to_string())?;

        let mut lines = Lines::default();
        let nonce = clock::random_bytes().map_err(|error| format!("/dev/urandom: {error}"))?;
        let (greeted, hello) = AgentLink::agent(self.token.as_ref(), &self.node, nonce);
        let exchange = async {
            send(&mut stream, &hello).await?;
            loop {
                if let Some(line) = lines.next_line().map_err(|error| error.to_string())? {
                    return Ok::<_, String>(line.to_vec());
                }
                receive(&mut stream, &mut lines).await?;
            }
        };
        let challenge = clock::within(PATIENCE, exchange).await.ok_or_else(|| slow("no answer"))??;
        let (mut link, proof) = greeted.challenged(&challenge).map_err(|error| error.to_string())?;
        send(&mut stream, &proof).await?;

        let (sender, mut reports) = mpsc::channel(MAX_WAITING);
        if self.events.send(Event::Up(sender)).await.is_err() {
            return Ok(End::Unheard);
        }
        loop {
            while let Some(line) = lines.next_line().map_err(|error| error.to_string())? {
                let event = match link.open(line).map_err(|error| error.to_string())? {
                    FromCoordinator::Shares { run, shares } => Event::Shares { run, shares },
                    FromCoordinator::Refused { why } => {
                        return Err(format!("the coordinator refuses: {}", why.escape_debug()));
                    }
                    FromCoordinator::Challenge { .. } => return Err("a second challenge came".to_owned()),
                };
                if self.events.send(event).await.is_err() {
                    return Ok(End::Unheard);
                }
            }
            tokio::select! {
                report = reports.recv() => {
                    let Some(report) = report else { return Ok(End::Dropped) };
                    let line = link.seal(&FromAgent::Report(report));
                    clock::within(PATIENCE, send(&mut stream, &line)).await.ok_or_else(|| slow("the coordinator does \
                        not take a report"))??;
                }
                read = receive(&mut stream, &mut lines) => read?,
            }
        }
    }
}

async fn send(stream: &mut TcpStream, line: &str) -> Result<(), String> {
    stream.write_all(line.as_bytes()).await.map_err(|error| error.to_string())
}

/// Reads available bytes. Nothing is lost if the future is cancelled.
async fn receive(stream: &mut TcpStream, lines: &mut Lines) -> Result<(), String> {
    let mut bytes = [0; READ];
    match stream.read(&mut bytes).await {
        Ok(0) => Err("the coordinator closed the connection".to_owned()),
        Ok(read) => {
            lines.push(bytes.get(..read).unwrap_or_default());
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine() {
        for (address, local) in [
            ("127.0.0.1:9903", true),
            ("[::1]:9903", true),
            ("localhost:9903", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.9:9903", false),
            ("coordinator.internal:9903", false),
        ] {
            assert_eq!(is_local(address), local, "{address}");
        }
    }
}
