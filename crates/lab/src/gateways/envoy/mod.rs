//! Envoy in three configurations: with its adaptive concurrency filter, with its admission control filter,
//! and with one cluster with circuit breakers per class.
//!
//! Source: envoyproxy.io, "Adaptive Concurrency", "Admission Control", "Circuit breaking", and "Endpoint
//! discovery service (EDS)" with file subscriptions, through which nodes are taken out.

mod classes;
mod config;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use weirgate_files::ORDINARY;
use weirgate_http_client::blocking::exchange;
use weirgate_http_client::{Address, Limits, Request};

use self::config::{Cluster, Endpoints, Filter};
use super::knob::{Knob, PerSource, REST, SOURCE, Share, Slots, Span, is};
use super::launch::{Peer, SocketPath, check, subdirectory, version, write};
use super::terms::{Pool, pools};
use super::{Approach, Control, Gateway, Kind, Setting};
use crate::programs::Program;

/// Selects one filter per class, or one for all classes of a pool.
const PER: Knob = Knob {
    name: "per",
    default: "class",
    about: "one filter for each class, or one for all of a pool: class or pool",
    check: |text| match text {
        "class" | "pool" => Ok(()),
        _ => Err("write class or pool".into()),
    },
};

pub(super) const ADAPTIVE: Kind = Kind {
    name: "envoy-adaptive",
    about: "Envoy with its adaptive concurrency filter: a gradient limiter on response times",
    program: Some(Program::Envoy),
    knobs: &[
        PER,
        Knob {
            name: "rtt",
            default: "100%",
            about: "the ideal response time: a share of the declared service time (measured where none is declared), \
                    or measured",
            check: |text| if text == config::MEASURED { Ok(()) } else { is::<Share>(text) },
        },
        Knob {
            name: "buffer",
            default: "25%",
            about: "excess over the ideal that is no congestion, at most 100%",
            check: |text| match text.parse()? {
                Share(share) if share <= 1.0 => Ok(()),
                _ => Err("Envoy takes at most 100%".into()),
            },
        },
        Knob {
            name: "min",
            default: "4x",
            about: "minimum limit: a number, a multiple of the guaranteed load, or off (Envoy's own, 3)",
            check: is::<Slots>,
        },
        Knob { name: "update", default: "100ms", about: "time between two changes of the limit", check: is::<Span> },
        SOURCE,
    ],
    sweep: &[
        "per=pool", "rtt=measured", "rtt=measured,min=8x", "rtt=200%", "rtt=400%", "min=2x", "min=8x",
        "per=pool,rtt=measured,min=off",
    ],
    start: |setting, approach| start(setting, approach, Filter::adaptive(approach)?, pooled),
};

pub(super) const ADMISSION: Kind = Kind {
    name: "envoy-admission",
    about: "Envoy with its admission control filter: rejects at random as deadlines are missed",
    program: Some(Program::Envoy),
    knobs: &[
        PER,
        Knob {
            name: "deadline",
            default: "100%",
            about: "time after which a request has failed, as a share of the guaranteed response time",
            check: is::<Share>,
        },
        Knob { name: "threshold", default: "95%", about: "success rate below which it rejects", check: percent },
        Knob {
            name: "aggression",
            default: "100%",
            about: "aggression: rejection grows with its inverse as a power, at least 100%",
            check: |text| match text.parse()? {
                Share(share) if share >= 1.0 => Ok(()),
                _ => Err("Envoy takes at least 100%".into()),
            },
        },
        Knob { name: "window", default: "30s", about: "period over which success is counted", check: is::<Span> },
        Knob { name: "rejection", default: "80%", about: "maximum share of requests rejected", check: percent },
        SOURCE,
    ],
    sweep: &[
        "per=pool", "deadline=50%", "threshold=80%", "threshold=99%", "aggression=200%", "window=5s", "rejection=95%",
        "window=5s,rejection=95%",
    ],
    start: |setting, approach| start(setting, approach, Filter::admission(approach)?, pooled),
};

pub(super) const CLASSES: Kind = Kind {
    name: "envoy-classes",
    about: "Envoy with a cluster and circuit breakers for each class, and a gradient limit that measures its ideal time",
    program: Some(Program::Envoy),
    knobs: &[
        Knob {
            name: "requests",
            default: "2x",
            about: "maximum number of requests of a guaranteed class in a server: a number, a multiple of its load \
                    there, workers, or off",
            check: is::<Slots>,
        },
        REST,
        Knob {
            name: "pending",
            default: "50%",
            about: "maximum number of waiting requests: as many as the guaranteed rate serves in this share of the \
                    class's limit",
            check: is::<Share>,
        },
        Knob {
            name: "waiting",
            default: "1024",
            about: "maximum number of waiting requests of a class without a guarantee",
            check: |text| text.parse::<u32>().map(drop).map_err(|_| "write a number such as 16".to_owned()),
        },
        Knob {
            name: "deadline",
            default: "200%",
            about: "time after which a request is given up, as a share of the class's guaranteed response time",
            check: is::<Share>,
        },
        Knob {
            name: "rtt",
            default: config::MEASURED,
            about: "the ideal response time of the gradient limit, measured, or off: no such limit",
            check: |text| match text {
                config::MEASURED | "off" => Ok(()),
                _ => Err("write measured or off".into()),
            },
        },
        SOURCE,
    ],
    sweep: &[
        "requests=4x", "requests=8x", "requests=workers", "requests=workers,rest=2", "rest=4", "pending=90%",
        "rtt=off", "requests=workers,rtt=off",
    ],
    start: |setting, approach| start(setting, approach, classes::filter(approach)?, classes::clusters),
};

fn percent(text: &str) -> Result<(), String> {
    match text.parse()? {
        Share(share) if share <= 1.0 => Ok(()),
        _ => Err("write a percentage up to 100%".into()),
    }
}

#[derive(Debug)]
struct Envoy {
    socket: SocketPath,
    /// One entry per pool.
    endpoints: Vec<Endpoints>,
    /// Name of every cluster, and the pool that it uses.
    clusters: Vec<(String, String)>,
    /// Whether each node of the policy is taken out.
    out: Vec<bool>,
}

/// Limits of a request to the admin interface. Its thread shares the CPU with the worker thread. Its pages have some
/// kilobytes.
const LIMITS: Limits = Limits::new(Duration::from_secs(5), 4 << 20);

/// Builds clusters from the policy's pools.
type Plan = for<'p> fn(&'p [Pool<'p>], &Approach) -> Result<Vec<Cluster<'p>>, String>;

/// Returns one cluster per pool. It has no bound, because the filter limits the requests in flight.
fn pooled<'p>(pools: &'p [Pool<'p>], _approach: &Approach) -> Result<Vec<Cluster<'p>>, String> {
    let cluster = |pool: &'p Pool<'p>| Cluster {
        name: pool.name.to_owned(),
        pool,
        classes: pool.classes.iter().collect(),
        breakers: None,
    };
    Ok(pools.iter().map(cluster).collect())
}

fn start(setting: &Setting<'_>, approach: &Approach, filter: Filter, plan: Plan) -> Result<Gateway, String> {
    let program = Program::Envoy.find()?;
    let pools = pools(setting)?;
    let clusters = plan(&pools, approach)?;
    // The files need a directory of their own, because Envoy reads them again whenever a file is moved into it.
    let directory = subdirectory(setting, "endpoints")?;
    let endpoints: Vec<Endpoints> = pools.iter().map(|pool| Endpoints::new(pool, &directory)).collect();
    let out = vec![false; setting.addresses.len()];
    for pool in &endpoints {
        replace(&pool.file, &pool.text(&out))?;
    }
    let source: PerSource = approach.knob("source")?;
    let socket = SocketPath::new();
    let peer = Peer::start("envoy", setting, |address| {
        let text = config::text(approach, &filter, &clusters, source, (address, &socket.0), &endpoints);
        let file = write(setting, "envoy.yaml", &text)?;
        check(Command::new(&program).args(["--mode", "validate", "--log-level", "warn", "-c"]).arg(&file))?;
        let mut command = Command::new(&program);
        // The budget of every approach is one CPU. Nothing is handed over between processes.
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warn", "-c"]).arg(&file);
        Ok(command)
    })?;
    let version = name(&version(&program, "--version")?);
    let clusters = clusters.into_iter().map(|cluster| (cluster.name, cluster.pool.name.to_owned())).collect();
    Ok(Gateway { peer, version, control: Box::new(Envoy { socket, endpoints, clusters, out }) })
}

/// Shortens `PATH  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL` to `Envoy 1.40.0`.
fn name(words: &str) -> String {
    format!("Envoy {}", words.split('/').rev().nth(3).unwrap_or("of unknown version").trim())
}

/// Replaces a file in one step by a move, because Envoy reads it when a file is moved into the directory.
fn replace(file: &Path, text: &str) -> Result<(), String> {
    weirgate_files::replace(file, ORDINARY, text.as_bytes()).map_err(|error| format!("{}: {error}", file.display()))
}

/// Sends a request to the admin interface and returns the body of its answer.
fn ask(socket: &Path, path: &str) -> Result<String, String> {
    let answer = exchange(&Address::Unix(socket.to_owned()), Request::get("lab", path), &LIMITS);
    let answer = answer.map_err(|error| format!("Envoy's admin interface, {path}: {error}"))?;
    Ok(answer.text())
}

impl Control for Envoy {
    fn reload(&mut self, _peer: &mut Peer) -> Result<(), String> {
        Err("Envoy loads its bootstrap file once; a new one needs a new process, which the lab does not play".into())
    }

    fn set_out(&mut self, peer: &mut Peer, node: usize, out: bool) -> Result<(), String> {
        *self.out.get_mut(node).ok_or_else(|| format!("the policy has no node {node}"))? = out;
        for pool in &self.endpoints {
            replace(&pool.file, &pool.text(&self.out))?;
        }
        let of_cluster = |(cluster, pool): &(String, String)| -> Vec<String> {
            self.endpoints.iter().filter(|of| of.pool == *pool).flat_map(|of| of.of_node(node, cluster)).collect()
        };
        let hosts: Vec<String> = self.clusters.iter().flat_map(of_cluster).collect();
        let socket = &self.socket.0;
        peer.wait_for_order("Envoy has read its endpoints", |_| {
            let clusters = ask(socket, "/clusters")?;
            let draining = |host: &str| {
                let health = format!("{host}::health_flags::");
                clusters
                    .lines()
                    .any(|line| line.strip_prefix(&health).is_some_and(|flags| flags.contains(config::DRAINING)))
            };
            Ok(hosts.iter().all(|host| draining(host) == out))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_version_stands_between_slashes() {
        let words =
            "\n/a/b/envoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL\n\n";
        assert_eq!(name(words), "Envoy 1.40.0");
    }
}
