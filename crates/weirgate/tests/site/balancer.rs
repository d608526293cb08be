//! HAProxy in front of the gateways of a site, configured as `docs/guide/site.md` says. Skipped loudly without HAProxy
//! or namespaces.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use weirgate_http_client::blocking::exchange;
use weirgate_http_client::{Address, Limits, Request};

use crate::gateway::{Plan, Site, free_port};

/// Requests in a row that must be answered before clients count as served: some for each gateway.
const ROW: usize = 30;

/// HAProxy, as a child.
struct Balancer {
    process: Child,
    address: SocketAddr,
}

impl Balancer {
    /// Starts it in front of the gateways.
    fn start(site: &Site) -> Option<Balancer> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let server = |name: &str| format!("    server {name} {}:8080\n", site.net.data(Some(name)));
        let servers: String = site.gateways.iter().map(|gateway| server(&gateway.name)).collect();
        let text = format!(
            "defaults\n    timeout connect 2s\n    timeout client 30s\n    timeout server 30s\n\
             frontend clients\n    mode tcp\n    bind {address}\n    default_backend gateways\n\
             backend gateways\n    mode tcp\n    balance leastconn\n    option httpchk GET /ready\n\
             \x20   option redispatch 1\n    retries 3\n    default-server check port 9900 check-ssl verify none \
             inter 500ms fall 2 rise 2 on-marked-down shutdown-sessions send-proxy-v2\n{servers}"
        );
        let file = site.folder().join("haproxy.cfg");
        std::fs::write(&file, text).expect("the folder is writable");
        match Command::new("haproxy").arg("-db").arg("-f").arg(&file).stderr(Stdio::null()).spawn() {
            Ok(process) => Some(Balancer { process, address }),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: no haproxy: {error}");
                None
            }
        }
    }

    /// Whether a client gets an answer on a connection of its own.
    fn serves(&self) -> bool {
        let limits = Limits::new(Duration::from_secs(10), 1 << 16);
        let answer = exchange(&Address::Tcp(self.address.to_string()), Request::get("a.test", "/gold"), &limits);
        answer.is_ok_and(|answer| answer.status == 200)
    }

    /// Waits until clients are served by every connection.
    fn wait(&self, site: &Site, what: &str) {
        let mut row = 0;
        site.wait(what, |_| {
            row = if (0..ROW).all(|_| self.serves()) { row + 1 } else { 0 };
            row == 2
        });
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn clients_of_a_balancer_are_served_while_gateways_come_and_go() {
    let plan = Plan { is_shared: true, ..Plan::new(3, "") };
    let Some(mut site) = Site::of(&plan) else { return };
    site.elected();
    for gateway in &site.gateways {
        let listed = |text: String| {
            text.replace("listen: 0.0.0.0:8080", "listen: { address: 0.0.0.0:8080, proxy_protocol: [10.231.1.1] }")
        };
        gateway.reload(listed);
    }
    let Some(balancer) = Balancer::start(&site) else { return };
    balancer.wait(&site, "clients are served");
    site.gateways[0].kill();
    balancer.wait(&site, "clients are served by the others");
    site.gateways[0].begin(&site.net);
    site.elected();
    balancer.wait(&site, "clients are served by all");
    site.gateways[1].end("TERM");
    balancer.wait(&site, "clients are served by the others of one that has ended");
    let elected = site.elected();
    site.gateways[elected].kill();
    site.elected();
    balancer.wait(&site, "clients are served by the only one that is left");
}
