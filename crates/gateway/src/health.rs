//! Active health checks of a node.
//!
//! Each check is a GET on its own connection, so that it tests the same path as a new client. A hash of the
//! node spreads the checks over the interval, and each interval varies by a tenth. So the checks of many
//! nodes neither start together nor synchronise later.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use weirgate_config::{HealthCheck, HealthVerdict};
use weirgate_engine::NodeEvent;

use crate::edition::Target;
use crate::gateway::Shared;
use crate::polling;

/// Checks one node until the task is aborted.
pub(crate) async fn watch(target: Arc<Target>, check: HealthCheck, shared: Arc<Shared>) {
    let mut verdict = HealthVerdict::default();
    let mut round = 0u64;
    loop {
        // Between 0 and 1, different for each node and round.
        let share = (shared.hasher.hash_one((target.id, round)) >> 11) as f64 / (1u64 << 53) as f64;
        let wait = if round == 0 { check.interval.mul_f64(share) } else { check.interval.mul_f64(0.9 + 0.2 * share) };
        weirgate_clock::sleep(wait.max(Duration::from_millis(1))).await;
        round += 1;
        let healthy = weirgate_clock::within(check.timeout, probe(&target, &check)).await.unwrap_or(false);
        if let Some(up) = verdict.hear(healthy, &check) {
            shared.control.tell(target.id, if up { NodeEvent::Up } else { NodeEvent::Down });
        }
    }
}

/// Makes one check.
async fn probe(target: &Target, check: &HealthCheck) -> bool {
    let asked = async {
        let host = check.host.as_deref().unwrap_or(&target.address);
        let request = format!(
            "GET {} HTTP/1.1\r\nhost: {host}\r\nuser-agent: weirgate-health\r\nconnection: close\r\n\r\n",
            check.path
        );
        let mut stream = polling::send(&target.address, &request).await?;
        // Only the first 12 bytes matter, for example "HTTP/1.1 200".
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        Ok::<_, std::io::Error>(head)
    };
    asked.await.is_ok_and(|head| is_healthy(&head))
}

fn is_healthy(head: &[u8; 12]) -> bool {
    matches!(head, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0' | b'1', b' ', b'2' | b'3', b'0'..=b'9', b'0'..=b'9'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_decides() {
        for (line, healthy) in [
            (b"HTTP/1.1 200", true),
            (b"HTTP/1.0 399", true),
            (b"HTTP/1.1 404", false),
            (b"HTTP/1.1 503", false),
            (b"HTTP/2.0 200", false),
            (b"SSH-2.0-Open", false),
        ] {
            assert_eq!(is_healthy(line), healthy);
        }
    }
}
