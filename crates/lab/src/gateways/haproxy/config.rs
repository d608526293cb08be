//! HAProxy's configuration, with the reason for every line in it.
//!
//! Sections are those of the configuration manual of HAProxy 2.6: 3 (global), 4.2 (proxies), 5.2 (servers),
//! 7.3 (samples).

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::gateways::Approach;
use crate::gateways::knob::{Millis, PerSource};
use crate::gateways::terms::{Class, HEALTH_PATH, Pool, Server};

/// The extent of HAProxy's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Only load balancing.
    Plain,
    /// Every setting that helps to keep the policy.
    Tuned,
}

/// A set of servers and the classes that use it.
pub(super) struct Backend<'p> {
    /// Unique name.
    pub(super) name: String,
    pub(super) pool: &'p Pool<'p>,
    pub(super) classes: Vec<&'p Class<'p>>,
    /// The servers, each with its `maxconn`.
    pub(super) servers: Vec<(Option<u32>, Server<'p>)>,
    /// Maximum time in the queue.
    pub(super) queue: Duration,
    /// Share of a guaranteed rate that goes ahead of all surplus.
    pub(super) within: f64,
}

/// Returns a server's name. HAProxy does not accept all names of nodes.
pub(super) fn server_name(server: &Server<'_>) -> String {
    format!("node{}", server.node + 1)
}

/// Returns the whole configuration.
pub(super) fn text(
    approach: &Approach,
    style: Style,
    backends: &[Backend<'_>],
    PerSource(source): PerSource,
    (address, socket): (SocketAddr, &Path),
) -> String {
    let mut text = format!(
        "# {approach}: {about}.
# Sections are those of HAProxy's configuration manual.

global
    # One CPU is the budget of every approach (3.1).
    nbthread 1
    # The lab takes servers out and reads statistics here (3.1, and management guide 9.3).
    stats socket {socket} mode 600 level admin
",
        about = approach.kind().about,
        socket = socket.display(),
    );
    text.push_str(match style {
        Style::Plain => PLAIN_DEFAULTS,
        Style::Tuned => TUNED_DEFAULTS,
    });
    frontend(&mut text, backends, source, address);
    for backend in backends {
        write_backend(&mut text, style, backend);
    }
    text
}

const PLAIN_DEFAULTS: &str = "
defaults
    mode http
    # As in the haproxy.cfg that Debian installs.
    timeout connect 5s
    timeout client 50s
    timeout server 50s
";

const TUNED_DEFAULTS: &str = include_str!("defaults.txt");

fn frontend(text: &mut String, backends: &[Backend<'_>], source: Option<f64>, address: SocketAddr) {
    let classes = || backends.iter().flat_map(|backend| backend.classes.iter().map(move |class| (backend, class)));
    let names: Vec<&str> = classes().map(|(_, class)| class.name).collect();
    let _ = write!(text, "\nfrontend clients\n    bind {address}\n");
    if let Some((_, last)) = classes().find(|(_, class)| class.last) {
        let _ = write!(
            text,
            "    # A request without a listed class belongs to the last one, as in the policy.
    http-request set-var(txn.class) req.hdr(x-class)
    http-request set-var(txn.class) str({last}) unless {{ req.hdr(x-class) -m str {names} }}
",
            last = last.name,
            names = names.join(" "),
        );
    }
    if let Some(rate) = source {
        let window = PerSource::WINDOW.as_secs();
        let _ = write!(
            text,
            "    # Requests of one client address, which the load gives in X-Forwarded-For, in the last {window} seconds
    # (4.2, http-request track-sc1 and deny, and 7.3.3, sc1_http_req_rate).
    stick-table type string len 64 size 100k expire 60s store http_req_rate({window}s)
    http-request track-sc1 req.hdr(x-forwarded-for)
    http-request deny deny_status 429 if {{ sc1_http_req_rate gt {} }}
",
            PerSource::burst(rate)
        );
    }
    for (backend, class) in classes() {
        let _ = writeln!(text, "    use_backend {} if {{ var(txn.class) -m str {} }}", backend.name, class.name);
    }
}

fn write_backend(text: &mut String, style: Style, backend: &Backend<'_>) {
    let Backend { name, pool, classes, servers, queue, .. } = backend;
    let health = pool.health;
    let _ = write!(
        text,
        include_str!("backend.txt"),
        name = name,
        HEALTH_PATH = HEALTH_PATH,
        queue = Millis(*queue),
        timeout = Millis(health.timeout),
        interval = Millis(health.interval),
        fall = health.fall,
        rise = health.rise,
    );
    if style == Style::Tuned {
        tuned_backend(text, backend);
        // A single class has no other class's surplus to be ranked against.
        if classes.len() > 1 {
            precedence(text, backend);
        }
    }
    if servers.iter().any(|(maxconn, _)| maxconn.is_some()) {
        text.push_str("    # Further requests wait here in order, and not in the server (5.2, maxconn).\n");
    }
    for (maxconn, server) in servers {
        let maxconn = maxconn.map(|max| format!(" maxconn {max}")).unwrap_or_default();
        let (address, weight) = (server.address, server.weight);
        let _ = writeln!(
            text,
            "    # {}\n    server {} {address} weight {weight}{maxconn}",
            server.label,
            server_name(server)
        );
    }
}

/// Writes the further settings of a tuned backend, which it has with one class as well as with several.
fn tuned_backend(text: &mut String, backend: &Backend<'_>) {
    let longest = |time: fn(&Class<'_>) -> Duration| {
        Millis(backend.classes.iter().map(|class| time(class)).max().unwrap_or_default())
    };
    let retries = backend.classes.iter().map(|class| class.retry.max_retries).max().unwrap_or_default();
    let _ = write!(
        text,
        "    # As in the policy.
    timeout connect {connect}
    timeout server {server}
    retries {retries}
    # Idle connections, per server (5.2).
    default-server pool-max-conn {idle} pool-purge-delay {purge}
",
        connect = longest(|class| class.timeouts.connect),
        server = longest(|class| class.timeouts.first_byte),
        idle = backend.pool.idle.0,
        purge = Millis(backend.pool.idle.1),
    );
    let failures = backend.pool.ejection.consecutive_failures;
    if failures > 0 {
        let _ = write!(
            text,
            "    # Passive ejection. The checks bring a server back (5.2, observe).
    default-server observe layer7 error-limit {failures} on-error mark-down
"
        );
    }
}

/// Puts guaranteed rates ahead of surplus, and the nearer deadline first among equals.
fn precedence(text: &mut String, backend: &Backend<'_>) {
    text.push_str(
        "    # Requests within the guaranteed rate of a class go before all surplus. A request is within the rate if
    # fewer such requests than guaranteed came in the last second. If all requests counted, a class that sends more
    # would lose its floor (4.2, http-request sc-inc-gpc0, and 7.3.3, sc0_gpc0_rate).
    stick-table type string len 64 size 1k store gpc0,gpc0_rate(1s)
    http-request track-sc0 var(txn.class)
",
    );
    for class in &backend.classes {
        let is = format!("{{ var(txn.class) -m str {} }}", class.name);
        if let Some(floor) = class.floor {
            let rate = (floor * backend.within).ceil();
            let _ =
                writeln!(text, "    http-request set-var(txn.within) bool(true) if {is} {{ sc0_gpc0_rate lt {rate} }}");
        }
        if let Some(limit) = class.limit {
            // HAProxy's queues handle offsets of at most 524 s.
            let offset = limit.as_millis().min(500_000);
            let _ = writeln!(
                text,
                "    # Among equals, the earlier deadline goes first (4.2, set-priority-offset).\n    http-request \
                 set-priority-offset int({offset}) if {is}"
            );
        }
    }
    text.push_str(
        "    http-request sc-inc-gpc0(0) if { var(txn.within) -m bool }
    http-request set-priority-class int(1) unless { var(txn.within) -m bool }
",
    );
}
