//! Envoy's configuration, with the reason for every setting in it.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::gateways::Approach;
use crate::gateways::knob::{PerSource, Share, Slots, Span};
use crate::gateways::terms::{Class, HEALTH_PATH, Pool};

/// Value of `rtt` with which Envoy itself measures the ideal response time.
pub(super) const MEASURED: &str = "measured";

/// Text by which the admin interface shows a host that the endpoints file has taken out.
pub(super) const DRAINING: &str = "/eds_status_draining";

/// A set of servers with the classes that use it.
pub(super) struct Cluster<'p> {
    /// Unique name.
    pub(super) name: String,
    pub(super) pool: &'p Pool<'p>,
    pub(super) classes: Vec<&'p Class<'p>>,
    /// `None` if a filter limits the requests in flight instead.
    pub(super) breakers: Option<Breakers>,
}

impl Cluster<'_> {
    /// Returns the number of slots of all servers together, or `None` without a bound.
    fn places(&self) -> Option<u32> {
        let servers = u32::try_from(self.pool.servers.len()).unwrap_or(u32::MAX);
        Some(self.breakers?.each?.saturating_mul(servers))
    }
}

/// The bounds of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Breakers {
    /// Maximum number of connections to each server. With HTTP/1.1 this is the number of requests in flight
    /// there. `None` is no bound.
    pub(super) each: Option<u32>,
    /// Maximum number of requests that wait for a connection.
    pub(super) pending: u32,
}

/// The filter under comparison, with its parameters.
pub(super) enum Filter {
    /// No filter. Routes give up after this multiple of the class's limit.
    Off {
        deadline: f64,
    },
    Adaptive {
        per_class: bool,
        rtt: Option<f64>,
        buffer: f64,
        min: Slots,
        update: Duration,
        /// If set, routes of guaranteed classes give up after this multiple of the limit, and the other
        /// classes have no filter.
        deadline: Option<f64>,
    },
    Admission {
        per_class: bool,
        deadline: f64,
        threshold: f64,
        aggression: f64,
        window: Duration,
        rejection: f64,
    },
}

impl Filter {
    pub(super) fn adaptive(approach: &Approach) -> Result<Filter, String> {
        let rtt = match approach.knob::<String>("rtt")? {
            text if text == MEASURED => None,
            text => Some(text.parse::<Share>()?.0),
        };
        let (Share(buffer), Span(update)) = (approach.knob("buffer")?, approach.knob("update")?);
        let min = approach.knob("min")?;
        Ok(Filter::Adaptive { per_class: per_class(approach)?, rtt, buffer, min, update, deadline: None })
    }

    pub(super) fn admission(approach: &Approach) -> Result<Filter, String> {
        let share = |name| approach.knob(name).map(|Share(share)| share);
        let Span(window) = approach.knob("window")?;
        Ok(Filter::Admission {
            per_class: per_class(approach)?,
            deadline: share("deadline")?,
            threshold: share("threshold")?,
            aggression: share("aggression")?,
            window,
            rejection: share("rejection")?,
        })
    }

    fn per_class(&self) -> bool {
        match *self {
            Filter::Off { .. } => true,
            Filter::Adaptive { per_class, .. } | Filter::Admission { per_class, .. } => per_class,
        }
    }

    /// Returns the name of the filter for `class` of `pool`, if one applies.
    fn name(&self, pool: &Pool<'_>, class: &Class<'_>) -> Option<String> {
        let goes = match self {
            Filter::Off { .. } => false,
            // A class without a guarantee already has a small fixed bound in its cluster.
            Filter::Adaptive { deadline: Some(_), .. } => class.floor.is_some(),
            Filter::Adaptive { .. } | Filter::Admission { .. } => true,
        };
        let name = if self.per_class() { format!("class-{}", class.name) } else { format!("pool-{}", pool.name) };
        goes.then_some(name)
    }

    /// Returns the time-out from the last byte of a request to the last byte of its answer.
    fn timeout(&self, class: &Class<'_>) -> Duration {
        match (self, class.limit) {
            (Filter::Off { deadline }, Some(limit))
            | (Filter::Adaptive { deadline: Some(deadline), .. }, Some(limit))
            | (Filter::Admission { deadline, .. }, Some(limit)) => limit.mul_f64(*deadline),
            _ => class.timeouts.total,
        }
    }
}

fn per_class(approach: &Approach) -> Result<bool, String> {
    Ok(approach.knob::<String>("per")? == "class")
}

/// A time in Envoy's notation.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.0.as_secs_f64())
    }
}

/// The servers of a pool, in the form of Envoy's endpoint discovery.
#[derive(Debug)]
pub(super) struct Endpoints {
    pub(super) pool: String,
    /// File from which Envoy reads them. A file holds one pool.
    pub(super) file: PathBuf,
    /// Node index in the policy, name, address and weight.
    servers: Vec<(usize, String, SocketAddr, u32)>,
}

impl Endpoints {
    pub(super) fn new(pool: &Pool<'_>, directory: &Path) -> Endpoints {
        let servers = pool.servers.iter();
        let servers = servers.map(|server| (server.node, server.label.to_owned(), server.address, server.weight));
        let file = directory.join(format!("{}.yaml", pool.name));
        Endpoints { pool: pool.name.to_owned(), file, servers: servers.collect() }
    }

    /// Returns the names of a node's hosts in `cluster`, as the admin interface writes them.
    pub(super) fn of_node(&self, node: usize, cluster: &str) -> impl Iterator<Item = String> {
        let servers = self.servers.iter().filter(move |(of, ..)| *of == node);
        servers.map(move |(_, _, address, _)| format!("{cluster}::{address}"))
    }

    /// Returns the text of the file. Nodes marked in `out` drain.
    pub(super) fn text(&self, out: &[bool]) -> String {
        let mut text = format!(
            "# The servers of {pool}. DRAINING gets no new requests and finishes those in flight.
resources:
- \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: \"{pool}\"
  endpoints:
  - lb_endpoints:
",
            pool = self.pool
        );
        for (node, label, address, weight) in &self.servers {
            let health = if out[*node] { "DRAINING" } else { "HEALTHY" };
            let (ip, port) = (address.ip(), address.port());
            let _ = write!(
                text,
                "    # {label}
    - health_status: {health}
      load_balancing_weight: {weight}
      endpoint: {{ address: {{ socket_address: {{ address: \"{ip}\", port_value: {port} }} }} }}
"
            );
        }
        text
    }
}

/// Returns the whole configuration.
pub(super) fn text(
    approach: &Approach,
    filter: &Filter,
    clusters: &[Cluster<'_>],
    PerSource(source): PerSource,
    (address, admin): (SocketAddr, &Path),
    endpoints: &[Endpoints],
) -> String {
    let mut text = format!(
        include_str!("head.txt"),
        approach = approach,
        about = approach.kind().about,
        admin = admin.display(),
        ip = address.ip(),
        port = address.port(),
    );
    if let Some(rate) = source {
        text.push_str(&per_source(rate));
    }
    for (name, cluster, classes) in filters(filter, clusters) {
        write_filter(&mut text, filter, &name, cluster, &classes);
    }
    text.push_str(include_str!("router.txt"));
    routes(&mut text, filter, clusters);
    text.push_str("  clusters:\n");
    for cluster in clusters {
        if let Some(endpoints) = endpoints.iter().find(|of| of.pool == cluster.pool.name) {
            write_cluster(&mut text, cluster, &endpoints.file);
        }
    }
    text
}

/// Returns the filter that limits the requests of one client address.
fn per_source(rate: f64) -> String {
    format!(include_str!("per-source.txt"), burst = PerSource::burst(rate), window = Seconds(PerSource::WINDOW),)
}

/// Returns every filter with the classes that it applies to.
fn filters<'a, 'p>(filter: &Filter, clusters: &'a [Cluster<'p>]) -> Vec<(String, &'a Cluster<'p>, Vec<&'p Class<'p>>)> {
    let mut filters: Vec<(String, &Cluster<'_>, Vec<&Class<'_>>)> = Vec::new();
    for (cluster, class) in members(clusters) {
        let Some(name) = filter.name(cluster.pool, class) else { continue };
        match filters.iter_mut().find(|(other, ..)| *other == name) {
            Some((.., classes)) => classes.push(class),
            None => filters.push((name, cluster, vec![class])),
        }
    }
    filters
}

fn members<'a, 'p>(clusters: &'a [Cluster<'p>]) -> impl Iterator<Item = (&'a Cluster<'p>, &'p Class<'p>)> {
    clusters.iter().flat_map(|cluster| cluster.classes.iter().map(move |class| (cluster, *class)))
}

fn write_filter(text: &mut String, filter: &Filter, name: &str, cluster: &Cluster<'_>, classes: &[&Class<'_>]) {
    let _ = write!(text, "          - name: \"{name}\"\n            disabled: true\n            typed_config:\n");
    match filter {
        Filter::Off { .. } => {}
        Filter::Adaptive { rtt, buffer, min, update, .. } => {
            let ideal = match rtt.and_then(|share| Some(ideal(classes)?.mul_f64(share))) {
                Some(ideal) => format!(
                    "# The policy gives the time of a request on an unloaded node. To measure it, Envoy would let
                  # hardly any requests in.
                  fixed_value: {}",
                    Seconds(ideal)
                ),
                None => "# Measured once a minute, from 50 requests, at the minimum limit: Envoy's defaults.
                  interval: 60s
                  request_count: 50
                  jitter: { value: 15 }"
                    .to_owned(),
            };
            let owed =
                classes.iter().filter(|class| class.floor.is_some()).map(|class| class.slots()).sum::<Option<f64>>();
            let owed = owed.filter(|slots| *slots > 0.0);
            // If the load is unknown or nothing is guaranteed, Envoy's own minimum limit applies. Breakers
            // have set theirs by the same multiple.
            let min = match (cluster.breakers, min.of(owed, cluster.pool.workers())) {
                (Some(_), _) => cluster.places(),
                (None, min) => min.ok().flatten(),
            };
            let min = match min {
                Some(min) => format!(
                    "
                  # The limit stays high enough for the guaranteed rates.
                  min_concurrency: {min}"
                ),
                None => String::new(),
            };
            let _ = write!(
                text,
                include_str!("adaptive.txt"),
                ideal = ideal,
                min = min,
                update = Seconds(*update),
                buffer = buffer * 100.0,
            );
        }
        Filter::Admission { threshold, aggression, window, rejection, .. } => {
            let _ = write!(
                text,
                include_str!("admission.txt"),
                aggression = aggression,
                // Envoy's window is a whole number of seconds.
                window = format_args!("{}s", window.as_secs().max(1)),
                threshold = threshold * 100.0,
                rejection = rejection * 100.0,
            );
        }
    }
}

/// Returns the mean declared service time of `classes`, weighted by guaranteed rate, or `None` if one declares none.
fn ideal(classes: &[&Class<'_>]) -> Option<Duration> {
    let (mut time, mut rate) = (0.0, 0.0);
    for class in classes {
        // Without a floor the rate is unknown, and one request per second is assumed.
        let floor = class.floor.unwrap_or(1.0);
        time += floor * class.service?.as_secs_f64();
        rate += floor;
    }
    Some(Duration::from_secs_f64(time / rate))
}

fn routes(text: &mut String, filter: &Filter, clusters: &[Cluster<'_>]) {
    for (cluster, class) in members(clusters) {
        let condition = format!(", headers: [{{ name: x-class, string_match: {{ exact: \"{}\" }} }}]", class.name);
        route(text, filter, cluster, class, &condition);
    }
    if let Some((cluster, class)) = members(clusters).find(|(_, class)| class.last) {
        text.push_str("              # A request without a listed class belongs to the last one, as in the policy.\n");
        route(text, filter, cluster, class, "");
    }
}

fn route(text: &mut String, filter: &Filter, cluster: &Cluster<'_>, class: &Class<'_>, condition: &str) {
    let _ = writeln!(text, "              - match: {{ prefix: \"/\"{condition} }}");
    if let Some(name) = filter.name(cluster.pool, class) {
        let _ = write!(
            text,
            "                typed_per_filter_config:
                  \"{name}\": {{ \"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {{}} }}
"
        );
    }
    let _ = write!(
        text,
        "                route:
                  cluster: \"{cluster}\"
                  timeout: {timeout}
",
        cluster = cluster.name,
        timeout = Seconds(filter.timeout(class)),
    );
    if class.retry.max_retries > 0 {
        let _ = writeln!(
            text,
            "                  # A request that met a failing server is retried at another.\n                  \
             retry_policy: {{ retry_on: \"connect-failure,refused-stream,reset\", num_retries: {} }}",
            class.retry.max_retries
        );
    }
}

fn write_cluster(text: &mut String, cluster: &Cluster<'_>, endpoints: &Path) {
    let (pool, classes) = (cluster.pool, || cluster.classes.iter().copied());
    let longest = |time: fn(&Class<'_>) -> Duration| Seconds(classes().map(time).max().unwrap_or_default());
    let ratio = classes().map(|class| class.retry.ratio).fold(0.0, f64::max);
    let health = pool.health;
    let _ = write!(
        text,
        include_str!("cluster.txt"),
        HEALTH_PATH = HEALTH_PATH,
        name = cluster.name,
        pool = pool.name,
        breakers = breakers(cluster),
        connect = longest(|class| class.timeouts.connect),
        file = endpoints.display(),
        directory = endpoints.parent().unwrap_or(Path::new("/")).display(),
        interval = Seconds(health.interval),
        timeout = Seconds(health.timeout),
        fall = health.fall,
        rise = health.rise,
        budget = ratio * 100.0,
        idle = Seconds(pool.idle.1),
    );
    if pool.ejection.consecutive_failures > 0 {
        let _ = write!(
            text,
            include_str!("ejection.txt"),
            failures = pool.ejection.consecutive_failures,
            base = Seconds(pool.ejection.base),
            share = (pool.ejection.max_share * 100.0).round(),
        );
    }
}

/// Returns the circuit breakers, to which the retry budget is added.
fn breakers(cluster: &Cluster<'_>) -> String {
    let Some(Breakers { each, pending }) = cluster.breakers else {
        return "    # The filter limits the requests, not Envoy's own bound of 1024. Retries as in the policy.
    circuit_breakers:
      thresholds:
      - max_connections: 65535
        max_pending_requests: 65535
        max_requests: 65535
"
        .to_owned();
    };
    let each = each.map(|each| {
        format!(
            "      # Over HTTP/1.1 a connection carries one request at a time: few are in a server, the rest wait here.
      per_host_thresholds: [{{ max_connections: {each} }}]
"
        )
    });
    let requests = cluster.places().unwrap_or(65_535);
    format!(
        "    # These slots and this queue are for this class alone. Retries as in the policy.
    circuit_breakers:
{each}      thresholds:
      - max_connections: {requests}
        max_requests: {requests}
        # When this many wait, further requests get 503 at once.
        max_pending_requests: {pending}
",
        each = each.unwrap_or_default(),
    )
}
