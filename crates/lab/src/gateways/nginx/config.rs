//! nginx's configuration, with the reason for every line in it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::gateways::Approach;
use crate::gateways::knob::{Millis, PerSource, Share, Slots};
use crate::gateways::terms::{Class, Pool, Server};

/// Numbers derived from the policy and the knobs.
pub(super) struct Figures {
    pools: Vec<PoolFigures>,
    /// Requests per second of one client address, if they are limited.
    source: Option<f64>,
}

struct PoolFigures {
    classes: Vec<ClassFigures>,
    /// One entry per server.
    max_conns: Vec<Option<u32>>,
}

struct ClassFigures {
    /// Requests per second and burst size. `None` is no bound.
    rate: Option<(f64, u32)>,
    /// Maximum number of requests in flight.
    conn: Option<u32>,
}

/// Limit on admitted requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rate {
    /// A share of the guaranteed rate.
    Share(f64),
    /// No limit.
    Off,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        match text.parse() {
            Ok(Share(share)) => Ok(Rate::Share(share)),
            Err(_) if text == "off" => Ok(Rate::Off),
            Err(why) => Err(format!("{why}, or off")),
        }
    }
}

/// Assumed response-time limit of a class without a guaranteed response time. The burst is derived from it.
const PATIENCE: Duration = Duration::from_secs(1);

impl Figures {
    /// Derives the numbers for `pools` from the knobs of `approach`.
    ///
    /// # Errors
    /// A knob is a multiple of a number that the policy does not state.
    pub(super) fn new(pools: &[Pool<'_>], approach: &Approach) -> Result<Figures, String> {
        let rate: Rate = approach.knob("rate")?;
        let Share(burst) = approach.knob("burst")?;
        let (conn, rest): (Slots, Slots) = (approach.knob("conn")?, approach.knob("rest")?);
        let max_conns: Slots = approach.knob("max_conns")?;
        let of_class = |class: &Class<'_>, spare: Option<f64>, workers: Option<u32>| {
            let rate = class.floor.and_then(|floor| {
                let Rate::Share(share) = rate else { return None };
                let rate = floor * share;
                let early = rate * class.limit.unwrap_or(PATIENCE).as_secs_f64() * burst;
                Some((rate, (early.ceil() as u32).max(1)))
            });
            let (name, slots, base) = match class.floor {
                Some(_) => ("conn", conn, class.slots()),
                None => ("rest", rest, spare),
            };
            let conn = slots.of(base, workers).map_err(|why| format!("class {}: {name}: {why}", class.name))?;
            Ok(ClassFigures { rate, conn })
        };
        let of_pool = |pool: &Pool<'_>| {
            // A class without a floor has no rate. It gets the slots that no guarantee needs, but at least one.
            let promised: f64 = pool.classes.iter().filter_map(Class::slots).sum();
            let spare = pool.slots().map(|slots| (slots - promised).max(0.0));
            let workers = pool.workers();
            let classes: Result<_, String> = pool.classes.iter().map(|class| of_class(class, spare, workers)).collect();
            let max = |server: &Server<'_>| {
                max_conns
                    .of(server.slots, server.workers)
                    .map_err(|why| format!("pool {}: max_conns: {why}", pool.name))
            };
            let max_conns: Result<_, String> = pool.servers.iter().map(max).collect();
            Ok(PoolFigures { classes: classes?, max_conns: max_conns? })
        };
        let PerSource(source) = approach.knob("source")?;
        Ok(Figures { pools: pools.iter().map(of_pool).collect::<Result<_, String>>()?, source })
    }
}

/// Returns the whole configuration.
pub(super) fn text(approach: &Approach, figures: &Figures, pools: &[Pool<'_>], address: SocketAddr) -> String {
    let mut text = format!("# {approach}: {}.\n{HEAD}", approach.kind().about);
    let classes = || pools.iter().flat_map(|pool| pool.classes.iter().map(move |class| (pool, class)));
    if let Some((_, last)) = classes().find(|(_, class)| class.last) {
        text.push_str("\n    # A request without a listed class belongs to the last one, as in the policy.\n");
        map(&mut text, "$http_x_class", "$class", last.name, classes().map(|(_, class)| (class.name, class.name)));
    }
    let last_pool = classes().find(|(_, class)| class.last).map_or("", |(pool, _)| pool.name);
    map(&mut text, "$class", "$pool", last_pool, classes().map(|(pool, class)| (class.name, pool.name)));
    for (pool, PoolFigures { classes, .. }) in pools.iter().zip(&figures.pools) {
        for (class, figures) in pool.classes.iter().zip(classes) {
            zones(&mut text, class, figures);
        }
    }
    if let Some(rate) = figures.source {
        let _ = write!(
            text,
            "
    # Requests of one client address, which the load gives in X-Forwarded-For. 10 MB are 80,000 addresses.
    limit_req_zone $http_x_forwarded_for zone=source:10m rate={};
",
            rate_of(rate)
        );
    }
    for (pool, figures) in pools.iter().zip(&figures.pools) {
        upstream(&mut text, pool, figures);
    }
    server(&mut text, pools, figures, address);
    text.push_str("}\n");
    text
}

const HEAD: &str = include_str!("head.txt");

fn map<'p>(text: &mut String, from: &str, to: &str, default: &str, entries: impl Iterator<Item = (&'p str, &'p str)>) {
    let _ = writeln!(text, "    map {from} {to} {{\n        default \"{default}\";");
    for (name, value) in entries {
        let _ = writeln!(text, "        \"{name}\" \"{value}\";");
    }
    text.push_str("    }\n");
}

/// Returns the name of a class's zones and variable. Class names may contain characters that variable names may not.
fn zone(class: &Class<'_>) -> String {
    format!("{}_{}", class.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"), class.index + 1)
}

/// Writes a class's counters. They count requests that have a key, and only the requests of this class have one.
fn zones(text: &mut String, class: &Class<'_>, figures: &ClassFigures) {
    let (name, zone) = (class.name, zone(class));
    if figures.rate.is_none() && figures.conn.is_none() {
        return;
    }
    let _ =
        writeln!(text, "\n    # Class {name}: only its requests have a key here (limit_req_zone, limit_conn_zone).");
    map(text, "$class", &format!("$of_{zone}"), "", std::iter::once((name, "1")));
    if let Some((rate, _)) = figures.rate {
        let _ = writeln!(text, "    limit_req_zone $of_{zone} zone=rate_{zone}:64k rate={};", rate_of(rate));
    }
    if figures.conn.is_some() {
        let _ = writeln!(text, "    limit_conn_zone $of_{zone} zone=conn_{zone}:64k;");
    }
}

/// Returns a rate as nginx accepts it: a whole number, per second or per minute.
fn rate_of(rate: f64) -> String {
    if rate.fract() == 0.0 { format!("{rate}r/s") } else { format!("{}r/m", (rate * 60.0).round().max(1.0)) }
}

fn upstream(text: &mut String, pool: &Pool<'_>, figures: &PoolFigures) {
    let (idle, idle_time) = pool.idle;
    let _ = write!(
        text,
        include_str!("upstream.txt"),
        name = pool.name,
        idle = idle.saturating_mul(pool.servers.len()).max(1),
        idle_time = Millis(idle_time),
    );
    for (server, max) in pool.servers.iter().zip(&figures.max_conns) {
        let max = max.map(|max| format!(" max_conns={max}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "        server {} weight={}{max} max_fails={} fail_timeout={}s; # {} {}",
            server.address,
            server.weight,
            pool.ejection.consecutive_failures,
            // nginx accepts whole seconds here, at least one.
            pool.ejection.base.as_secs().max(1),
            mark(server.node),
            server.label,
        );
    }
    text.push_str("    }\n");
}

fn server(text: &mut String, pools: &[Pool<'_>], figures: &Figures, address: SocketAddr) {
    let classes = || pools.iter().flat_map(|pool| &pool.classes);
    let longest = |time: fn(&Class<'_>) -> Duration| Millis(classes().map(time).max().unwrap_or_default());
    let tries = 1 + u32::from(classes().map(|class| class.retry.max_retries).max().unwrap_or_default());
    let _ = write!(
        text,
        "
    server {{
        # Linux's default bound on connections that are not yet accepted.
        listen {address} backlog=4096;
"
    );
    for (pool, PoolFigures { classes, .. }) in pools.iter().zip(&figures.pools) {
        for (class, ClassFigures { rate, conn }) in pool.classes.iter().zip(classes) {
            let zone = zone(class);
            if let Some((_, early)) = rate {
                let _ = writeln!(
                    text,
                    "        # {}: early requests are delayed to the rate. Early requests beyond the burst are refused.
        limit_req zone=rate_{zone} burst={early};",
                    class.name
                );
            }
            if let Some(conn) = conn {
                let _ = writeln!(
                    text,
                    "        # {}: requests in flight.\n        limit_conn conn_{zone} {conn};",
                    class.name
                );
            }
        }
    }
    if let Some(rate) = figures.source {
        let _ = writeln!(
            text,
            "        # One client address: what comes at once, and refusal beyond it.\n        limit_req zone=source \
             burst={} nodelay;",
            PerSource::burst(rate)
        );
    }
    let _ = write!(
        text,
        include_str!("location.txt"),
        tries = tries,
        connect = longest(|class| class.timeouts.connect),
        first_byte = longest(|class| class.timeouts.first_byte),
    );
}

/// Returns the mark of a node's line. The node's address may occur in several pools.
fn mark(node: usize) -> String {
    format!("node{}:", node + 1)
}

/// Returns `text` with the nodes marked in `out` set to down, which is nginx's way of planned maintenance.
pub(super) fn with_down(text: &str, out: &[bool]) -> String {
    let marks: Vec<String> =
        (0..out.len()).filter(|node| out[*node]).map(|node| format!("; # {} ", mark(node))).collect();
    let mut marked = String::with_capacity(text.len());
    for line in text.lines() {
        match marks.iter().find_map(|mark| Some((line.split_once(mark.as_str())?, mark))) {
            Some(((server, label), mark)) => _ = writeln!(marked, "{server} down{mark}{label}"),
            None => _ = writeln!(marked, "{line}"),
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateways::golden::{addresses, example, golden, own_address, setting};
    use crate::gateways::terms::pools;

    /// Returns nginx's configuration for the example.
    fn written(knobs: &str) -> Result<String, String> {
        let (experiment, addresses) = (example(&[]), addresses());
        let pools = pools(&setting(&experiment, &addresses))?;
        let approach = Approach::parse(&format!("nginx:{knobs}"))?;
        Ok(text(&approach, &Figures::new(&pools, &approach)?, &pools, own_address()))
    }

    #[test]
    fn golden_text_of_the_example() {
        golden("nginx.conf", &written("").unwrap());
    }

    #[test]
    fn rates_and_places_are_what_the_knobs_say() {
        let off = written("rate=off,rest=3,max_conns=workers").unwrap();
        assert!(!off.contains("limit_req zone=") && off.contains("limit_conn conn_rest_3 3;"), "{off}");
        assert!(off.contains("max_conns=8"), "{off}");
        assert!(written("rate=200%").unwrap().contains("zone=rate_gold_1:64k rate=200r/s;"));
        // The bound covers all servers together.
        assert!(written("conn=workers").unwrap().contains("limit_conn conn_gold_1 16;"));
        assert!(written("rate=none").unwrap_err().contains("or off"));
        let source = written("source=0.5").unwrap();
        assert!(source.contains("limit_req_zone $http_x_forwarded_for zone=source:10m rate=30r/m;"), "{source}");
        assert!(source.contains("limit_req zone=source burst=5 nodelay;"), "{source}");
    }

    #[test]
    fn nodes_are_marked_down_wherever_their_addresses_stand() {
        let text = "upstream a {\n    server 127.0.0.1:80; # node1: n1\n}\nupstream b {\n    server 127.0.0.1:80; # node2: n1\n    \
            server 127.0.0.1:81; # node12: n2\n}\n";
        let down = with_down(text, &[false, true]);
        assert_eq!(down, text.replace("80; # node2: n1", "80 down; # node2: n1"));
        assert_eq!(with_down(text, &[false; 12]), text);
    }
}
