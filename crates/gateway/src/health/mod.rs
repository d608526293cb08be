//! Active health checks of a node.
//!
//! Each check has its own connection, so that it tests the same path as a new client. It is a GET in the protocol of
//! the node, or a call of gRPC. A hash of the node spreads the checks over the interval, and each interval varies by a
//! tenth. So the checks of many nodes neither start together nor synchronise later.

mod http2;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use weirgate_config::{HealthCheck, HealthProbe, HealthVerdict};
use weirgate_engine::NodeEvent;
use weirgate_http_client::Request;

use crate::active_config::Endpoint;
use crate::gateway::Shared;
use crate::tls_files::TlsFiles;
use crate::upstream;

/// `User-Agent` of the checks.
const AGENT: &str = "weirgate-health";

/// Checks one node until the task is aborted.
pub(crate) async fn watch(endpoint: Arc<Endpoint>, check: HealthCheck, shared: Arc<Shared>) {
    let mut verdict = HealthVerdict::default();
    let mut round = 0u64;
    loop {
        // Between 0 and 1, different for each node and round.
        let share = (shared.hasher.hash_one((endpoint.id, round)) >> 11) as f64 / (1u64 << 53) as f64;
        let wait = if round == 0 { check.interval.mul_f64(share) } else { check.interval.mul_f64(0.9 + 0.2 * share) };
        weirgate_clock::sleep(wait.max(Duration::from_millis(1))).await;
        round += 1;
        let healthy = is_healthy(&endpoint, &check, &shared.tls).await;
        if let Some(up) = verdict.hear(healthy, &check) {
            shared.control.tell(endpoint.id, if up { NodeEvent::Up } else { NodeEvent::Down });
        }
    }
}

/// Makes one check.
async fn is_healthy(endpoint: &Endpoint, check: &HealthCheck, tls: &TlsFiles) -> bool {
    let host = check.host.as_deref().unwrap_or(endpoint.authority());
    let http2 = endpoint.settings.http2;
    let connecting = upstream::open(endpoint, tls, http2, None);
    match &check.probe {
        // The status decides, so the body is not read.
        HealthProbe::Path(path) if !http2 => {
            let request = Request::get(host, path).field("user-agent", AGENT);
            weirgate_http_client::status(connecting, request, check.timeout).await.is_ok_and(is_good)
        }
        probe => {
            let asked = async {
                let mut connection = http2::Connection::begin(connecting.await.ok()?).await.ok()?;
                match probe {
                    HealthProbe::Path(path) => connection.get(host, path).await.map(is_good),
                    HealthProbe::Grpc(service) => connection.serves(host, service).await,
                }
            };
            weirgate_clock::within(check.timeout, asked).await.flatten() == Some(true)
        }
    }
}

/// Whether a node that answers with `status` may get requests.
fn is_good(status: u16) -> bool {
    (200..400).contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_decides() {
        let decided = [101, 200, 204, 399, 404, 503].map(is_good);
        assert_eq!(decided, [false, true, true, true, false, false]);
    }
}
