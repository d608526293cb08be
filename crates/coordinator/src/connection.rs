//! One agent's connection, from its first byte to its end.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use weirgate_clock as clock;
use weirgate_wire::{CoordinatorLink, FromAgent, FromCoordinator, Lines};

use crate::shared_state::SharedState;

/// Maximum time from the connection to the agent's proof. Agents on the other side of the world need a
/// second.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// Maximum time without input before a connection is closed. A silent node counts as down after 1 s, and its
/// machine may have failed without closing the connection.
const SILENT: Duration = Duration::from_secs(5);

/// Timeout for sending shares. An agent that does not read is of no use.
const WRITE: Duration = Duration::from_secs(2);

/// Maximum number of bytes read at once. A report of twenty classes is 1 KiB.
const READ: usize = 4096;

/// Maximum number of characters repeated from a name that an unauthenticated peer sent.
const MAX_QUOTED: usize = 64;

/// Serves one connection. `place` is given back after the agent has proven its identity.
pub(crate) async fn serve(mut stream: TcpStream, peer: SocketAddr, shared: &SharedState, place: OwnedSemaphorePermit) {
    let mut lines = Lines::default();
    let proven = clock::within(HANDSHAKE, handshake(&mut stream, &mut lines, shared)).await;
    drop(place);
    let proven = proven.unwrap_or_else(|| Err(format!("it has not named its node within {} s", HANDSHAKE.as_secs())));
    let (node, mut link) = match proven {
        Ok(proven) => proven,
        Err(why) => return shared.refused(peer, &why),
    };
    let mut attachment = shared.attach(node, peer);
    let why = loop {
        match heard(&mut lines, &mut link, |report| shared.report(node, attachment.connection, report)) {
            Ok(()) => {}
            Err(why) => break why,
        }
        let line = tokio::select! {
            read = clock::within(SILENT, receive(&mut stream, &mut lines)) => match read {
                Some(Ok(())) => continue,
                Some(Err(why)) => break why,
                None => break format!("it has sent nothing for {} s", SILENT.as_secs()),
            },
            changed = attachment.shares.changed() => match changed {
                Ok(()) => {
                    let Some(shares) = attachment.shares.borrow_and_update().clone() else { continue };
                    link.seal(&FromCoordinator::Shares { run: shares.run, shares: shares.shares })
                }
                Err(_) => {
                    let why = "another connection speaks for this node".to_owned();
                    let line = link.seal(&FromCoordinator::Refused { why: why.clone() });
                    // Tell the earlier agent the reason, if it still reads.
                    let _ = clock::within(WRITE, stream.write_all(line.as_bytes())).await;
                    break why;
                }
            },
        };
        match clock::within(WRITE, stream.write_all(line.as_bytes())).await {
            Some(Ok(())) => {}
            Some(Err(error)) => break error.to_string(),
            None => break format!("it has not taken its shares within {} s", WRITE.as_secs()),
        }
    };
    shared.detach(node, attachment.connection, &why);
}

/// Exchanges the first three lines. They identify the node and prove that the agent has the node's token.
async fn handshake(
    stream: &mut TcpStream,
    lines: &mut Lines,
    shared: &SharedState,
) -> Result<(usize, CoordinatorLink), String> {
    // Shares are one small write that must be sent at once.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let line = next(stream, lines).await?;
    let greeting = match CoordinatorLink::greeting(&line) {
        Ok(greeting) => greeting,
        Err(error) => return Err(refuse(stream, &error.to_string()).await),
    };
    let Some(node) = shared.agents().node(&greeting.node) else {
        let name: String = greeting.node.chars().take(MAX_QUOTED).collect();
        return Err(refuse(stream, &format!("the coordinator's policy has no node {name:?}")).await);
    };
    let nonce = clock::random_bytes().map_err(|error| format!("no random bytes: {error}"))?;
    let (challenged, line) = CoordinatorLink::coordinator(shared.agents().token(node), &greeting, nonce);
    send(stream, &line).await?;
    let line = next(stream, lines).await?;
    let link = challenged.proven(&line).map_err(|error| format!("as node {:?}: {error}", greeting.node))?;
    Ok((node, link))
}

/// Tells an unauthenticated peer why it is refused.
async fn refuse(stream: &mut TcpStream, why: &str) -> String {
    // It may have left.
    let _ = send(stream, &CoordinatorLink::refusal(why)).await;
    why.to_owned()
}

/// Processes all complete lines received so far.
fn heard(
    lines: &mut Lines,
    link: &mut CoordinatorLink,
    mut report: impl FnMut(weirgate_wire::NodeReport) -> Result<(), String>,
) -> Result<(), String> {
    while let Some(line) = lines.next_line().map_err(|error| error.to_string())? {
        match link.open(line).map_err(|error| error.to_string())? {
            FromAgent::Report(one) => report(one)?,
            FromAgent::Hello { .. } | FromAgent::Proof { .. } => return Err("it has already named its node".to_owned()),
        }
    }
    Ok(())
}

async fn next(stream: &mut TcpStream, lines: &mut Lines) -> Result<Vec<u8>, String> {
    loop {
        if let Some(line) = lines.next_line().map_err(|error| error.to_string())? {
            return Ok(line.to_vec());
        }
        receive(stream, lines).await?;
    }
}

/// Reads available bytes. Nothing is lost if the future is cancelled.
async fn receive(stream: &mut TcpStream, lines: &mut Lines) -> Result<(), String> {
    let mut bytes = [0; READ];
    match stream.read(&mut bytes).await {
        Ok(0) => Err("it closed the connection".to_owned()),
        Ok(read) => {
            lines.push(bytes.get(..read).unwrap_or_default());
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

async fn send(stream: &mut TcpStream, line: &str) -> Result<(), String> {
    stream.write_all(line.as_bytes()).await.map_err(|error| error.to_string())
}
