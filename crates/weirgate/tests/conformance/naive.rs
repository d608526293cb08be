//! A proxy with the classic mistakes, to show that the judge finds them. It ends lines at a bare LF, knows
//! only `Content-Length`, passes heads on as they are, and shares its connections to the node.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::message::find;
use crate::recorder::lane_of;

type Idle = Arc<Mutex<HashMap<Ipv4Addr, TcpStream>>>;

/// Starts the proxy on a free port in front of the nodes at `port`.
pub(crate) async fn start(port: u16) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let idle = Idle::default();
    tokio::spawn(async move {
        while let Ok((client, peer)) = listener.accept().await {
            let lane = lane_of(peer).expect("clients use IPv4");
            tokio::spawn(serve(client, lane, port, idle.clone()));
        }
    });
    address
}

/// Serves one client. `None` ends it.
async fn serve(mut client: TcpStream, lane: Ipv4Addr, port: u16, idle: Idle) -> Option<()> {
    let (mut bytes, mut reply) = (Vec::new(), Vec::new());
    loop {
        let head = take(&mut client, &mut bytes, head_length).await?;
        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let length = text.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
        let body = take(&mut client, &mut bytes, |bytes| (bytes.len() >= length).then_some(length)).await?;
        let known = idle.lock().await.remove(&lane);
        let mut node = match known {
            Some(node) => node,
            None => TcpStream::connect((lane, port)).await.ok()?,
        };
        node.write_all(&[head, body].concat()).await.ok()?;
        let answer = take(&mut node, &mut reply, answer_length).await?;
        idle.lock().await.insert(lane, node);
        client.write_all(&answer).await.ok()?;
    }
}

/// Reads until `length` finds a whole part at the front of `bytes`, and takes it.
async fn take(stream: &mut TcpStream, bytes: &mut Vec<u8>, length: impl Fn(&[u8]) -> Option<usize>) -> Option<Vec<u8>> {
    loop {
        if let Some(length) = length(bytes) {
            return Some(bytes.drain(..length).collect());
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn head_length(bytes: &[u8]) -> Option<usize> {
    let ends = [find(bytes, b"\n\r\n").map(|at| at + 3), find(bytes, b"\n\n").map(|at| at + 2)];
    ends.into_iter().flatten().min()
}

/// Returns the length of an answer. Each answer of the node has a `Content-Length`.
fn answer_length(bytes: &[u8]) -> Option<usize> {
    let head = find(bytes, b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let length: usize = text.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    (bytes.len() >= head + length).then_some(head + length)
}
