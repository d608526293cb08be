//! HAProxy in four configurations: the usual first setup, physical partitions, tuned as far as its manual
//! goes, and one backend per class.
//!
//! Source: HAProxy 2.6, configuration manual ([`config`] names the sections) and management guide, Sec. 9.3
//! (runtime API). Source of the partitions: Blanquer et al., *Quorum* (NSDI 2005), Sec. 4.1.

mod classes;
mod config;
mod partition;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use self::config::{Backend, Style};
use super::knob::{Knob, PerSource, REST, SOURCE, Share, Slots, Span, is};
use super::launch::{Peer, SocketPath, check, version, write};
use super::terms::{Class, Pool, Server, pools};
use super::{Approach, Control, Gateway, Kind, Setting, State};
use crate::programs::Program;

/// Knobs of the two configurations that only spread load.
const PLAIN: &[Knob] = &[
    Knob {
        name: "maxconn",
        default: "workers",
        about: "maximum number of requests in a server: workers (as many as it has), a number, a multiple of its \
                share of the guaranteed load, or off",
        check: is::<Slots>,
    },
    Knob { name: "queue", default: "5s", about: "longest wait for a slot (timeout queue)", check: is::<Span> },
    SOURCE,
];

pub(super) const LEASTCONN: Kind = Kind {
    name: "haproxy-leastconn",
    about: "HAProxy with least connections and nothing else: a usual start, and the paper's load balancer",
    program: Some(Program::HaProxy),
    knobs: PLAIN,
    sweep: &["maxconn=off", "queue=60s"],
    start: |setting, approach| start(setting, approach, plain, Style::Plain),
};

pub(super) const PARTITION: Kind = Kind {
    name: "partition",
    about: "HAProxy with separate servers for each class, in proportion to rate x service time",
    program: Some(Program::HaProxy),
    knobs: PLAIN,
    sweep: &["maxconn=off", "queue=60s"],
    start: |setting, approach| start(setting, approach, partitioned, Style::Plain),
};

pub(super) const TUNED: Kind = Kind {
    name: "haproxy-tuned",
    about: "HAProxy with few requests in the servers, guaranteed rates before surplus, deadlines and a short queue",
    program: Some(Program::HaProxy),
    knobs: &[
        Knob {
            name: "maxconn",
            default: "2x",
            about: "maximum number of requests in a server: a number, or a multiple of its share of the guaranteed \
                    load",
            check: is::<Slots>,
        },
        Knob {
            name: "queue",
            default: "50%",
            about: "longest wait for a slot, as a share of the smallest guaranteed response time of the pool",
            check: is::<Share>,
        },
        Knob {
            name: "within",
            default: "105%",
            about: "share of a guaranteed rate that goes before all surplus",
            check: is::<Share>,
        },
        SOURCE,
    ],
    sweep: &[
        "maxconn=1.5x", "maxconn=4x", "maxconn=8x", "maxconn=workers", "queue=25%", "queue=90%", "within=100%",
        "within=120%",
    ],
    start: |setting, approach| start(setting, approach, tuned, Style::Tuned),
};

pub(super) const CLASSES: Kind = Kind {
    name: "haproxy-classes",
    about: "HAProxy with a backend for each class, which has its own few slots in each server and its own queue \
            timeout",
    program: Some(Program::HaProxy),
    knobs: &[
        Knob {
            name: "maxconn",
            default: "2x",
            about: "maximum number of requests of a guaranteed class in a server: a number, a multiple of its load \
                    there, workers, or off",
            check: is::<Slots>,
        },
        REST,
        Knob {
            name: "queue",
            default: "50%",
            about: "longest wait for a slot, as a share of the class's own guaranteed response time",
            check: is::<Share>,
        },
        SOURCE,
    ],
    sweep: &[
        "maxconn=4x", "maxconn=8x", "maxconn=workers", "maxconn=workers,rest=2", "rest=2", "rest=4", "queue=25%",
        "queue=90%",
    ],
    start: |setting, approach| start(setting, approach, classes::plan, Style::Tuned),
};

/// Builds backends from the policy's pools.
type Plan = for<'p> fn(&'p [Pool<'p>], &Approach) -> Result<Vec<Backend<'p>>, String>;

fn plain<'p>(pools: &'p [Pool<'p>], approach: &Approach) -> Result<Vec<Backend<'p>>, String> {
    pools
        .iter()
        .map(|pool| backend(pool.name.to_owned(), pool, pool.classes.iter().collect(), pool.servers.clone(), approach))
        .collect()
}

fn partitioned<'p>(pools: &'p [Pool<'p>], approach: &Approach) -> Result<Vec<Backend<'p>>, String> {
    let mut backends = Vec::new();
    for pool in pools {
        for (class, servers) in pool.classes.iter().zip(partition::divide(pool)?) {
            backends.push(backend(class.name.to_owned(), pool, vec![class], servers, approach)?);
        }
    }
    Ok(backends)
}

/// Returns a backend of a configuration that only spreads load.
fn backend<'p>(
    name: String,
    pool: &'p Pool<'p>,
    classes: Vec<&'p Class<'p>>,
    servers: Vec<Server<'p>>,
    approach: &Approach,
) -> Result<Backend<'p>, String> {
    let maxconn: Slots = approach.knob("maxconn")?;
    let bounded = |server: Server<'p>| match maxconn.of(server.slots, server.workers) {
        Ok(places) => Ok((places, server)),
        Err(why) => Err(format!("pool {}: maxconn: {why}", pool.name)),
    };
    let servers: Result<_, String> = servers.into_iter().map(bounded).collect();
    let Span(queue) = approach.knob("queue")?;
    Ok(Backend { name, pool, classes, servers: servers?, queue, within: 1.0 })
}

fn tuned<'p>(pools: &'p [Pool<'p>], approach: &Approach) -> Result<Vec<Backend<'p>>, String> {
    let maxconn: Slots = approach.knob("maxconn")?;
    let Share(queue) = approach.knob("queue")?;
    let Share(within) = approach.knob("within")?;
    pools
        .iter()
        .map(|pool| {
            let bounded = |server: &Server<'p>| match maxconn.of(server.slots, server.workers) {
                // A server has no more slots than workers, even if the policy needs more.
                Ok(places) => Ok((places.into_iter().chain(server.workers).min(), server.clone())),
                Err(why) => Err(format!("pool {}: maxconn: {why}", pool.name)),
            };
            Ok(Backend {
                name: pool.name.to_owned(),
                pool,
                classes: pool.classes.iter().collect(),
                servers: pool.servers.iter().map(bounded).collect::<Result<_, _>>()?,
                queue: pool.strictest().mul_f64(queue),
                within,
            })
        })
        .collect()
}

/// A running HAProxy.
#[derive(Debug)]
struct HaProxy {
    socket: SocketPath,
    /// For each node of the policy, every `backend/server` name that stands for it.
    names: Vec<Vec<String>>,
    /// Backend of each class of the policy, if every class has its own.
    own: Option<Vec<String>>,
}

/// Maximum time for an answer of the runtime API, which HAProxy serves between requests.
const ANSWER: Duration = Duration::from_secs(5);

fn start(setting: &Setting<'_>, approach: &Approach, plan: Plan, style: Style) -> Result<Gateway, String> {
    let program = Program::HaProxy.find()?;
    let pools = pools(setting)?;
    let backends = plan(&pools, approach)?;
    let source: PerSource = approach.knob("source")?;
    let socket = SocketPath::new();
    let peer = Peer::start("haproxy", setting, |address| {
        let text = config::text(approach, style, &backends, source, (address, &socket.0));
        let file = write(setting, "haproxy.cfg", &text)?;
        check(Command::new(&program).arg("-c").arg("-f").arg(&file))?;
        let mut command = Command::new(&program);
        // One process in the foreground, which ends when it is told to.
        command.arg("-db").arg("-f").arg(&file);
        Ok(command)
    })?;
    let policy = &setting.experiment.site.policy;
    let mut names = vec![Vec::new(); policy.nodes.len()];
    for backend in &backends {
        for (_, server) in &backend.servers {
            names[server.node].push(format!("{}/{}", backend.name, config::server_name(server)));
        }
    }
    let own = |class: &str| backends.iter().find(|backend| backend.classes.iter().any(|of| of.name == class));
    let alone = backends.iter().all(|backend| backend.classes.len() == 1);
    let own = alone.then(|| policy.classes.iter().filter_map(|class| Some(own(&class.name)?.name.clone())).collect());
    let version = name(&version(&program, "-v")?);
    Ok(Gateway { peer, version, control: Box::new(HaProxy { socket, names, own }) })
}

/// Shortens `HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/` to
/// `HAProxy 2.6.12-1+deb12u4`.
fn name(words: &str) -> String {
    format!("HAProxy {}", words.split_whitespace().nth(2).unwrap_or("of unknown version"))
}

/// Sends a command to the runtime API and returns its answer.
fn ask(socket: &Path, order: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("HAProxy's runtime API, `{order}`: {error}");
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER)).map_err(failed)?;
    writeln!(stream, "{order}").map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    Ok(answer)
}

impl Control for HaProxy {
    fn set_out(&mut self, _peer: &mut Peer, node: usize, out: bool) -> Result<(), String> {
        let names = self.names.get(node).ok_or_else(|| format!("the policy has no node {node}"))?;
        for name in names {
            let order = format!("set server {name} state {}", if out { "drain" } else { "ready" });
            // The answer to a command that succeeded is an empty line.
            match ask(&self.socket.0, &order)?.trim() {
                "" => {}
                words => return Err(format!("HAProxy's runtime API, `{order}`: {words}")),
            }
        }
        Ok(())
    }

    fn reload(&mut self, _peer: &mut Peer) -> Result<(), String> {
        // `-sf` starts a second process in parallel to the first, which is a different trial.
        Err("HAProxy loads its configuration in a new process, which the lab does not play".into())
    }

    fn state(&mut self) -> Option<State> {
        // All proxies (-1), with backends (2) and servers (4).
        let answer = ask(&self.socket.0, "show stat -1 6 -1").ok()?;
        state(&answer, self.own.as_deref())
    }
}

/// Parses the CSV of `show stat` (management guide, Sec. 9.1).
fn state(answer: &str, own: Option<&[String]>) -> Option<State> {
    let mut lines = answer.lines();
    let header: Vec<&str> = lines.next()?.trim_start_matches("# ").split(',').collect();
    let place = |name: &str| header.iter().position(|field| *field == name);
    let (proxy, server) = (place("pxname")?, place("svname")?);
    let (waiting, in_flight, max) = (place("qcur")?, place("scur")?, place("slim")?);
    let classes = own.map_or(0, <[_]>::len);
    let mut state = State { window: Some(0), waiting: vec![0; classes], ..State::default() };
    for line in lines.filter(|line| !line.is_empty()) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |place: usize| fields.get(place).and_then(|field| field.parse::<u32>().ok());
        if *fields.get(server)? == "BACKEND" {
            let class = own.and_then(|own| own.iter().position(|name| name == fields[proxy]));
            if let Some(class) = class {
                state.waiting[class] = number(waiting)?;
            }
        } else {
            state.outstanding += number(in_flight)?;
            // If one server has no bound, the sum has none.
            state.window = state.window.zip(number(max)).map(|(sum, max)| sum + max);
        }
    }
    Some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_by_the_names_of_their_columns() {
        let text = "# pxname,svname,qcur,qmax,scur,smax,slim,stot\nA,node1,0,0,3,9,4,7\nA,node2,0,0,2,9,4,7\n\
            A,BACKEND,5,9,10,9,800,7\nB,node3,0,0,1,1,4,7\nB,BACKEND,7,9,10,9,800,7\n\n";
        let own = ["A".to_owned(), "B".to_owned()];
        let read = state(text, Some(&own)).expect("it is sound");
        assert_eq!(read, State { window: Some(12), outstanding: 6, waiting: vec![5, 7], ..State::default() });
        assert_eq!(state(text, None).expect("it is sound").waiting, Vec::<u32>::new());
        let unbounded = text.replace("node3,0,0,1,1,4", "node3,0,0,1,1,");
        assert_eq!(state(&unbounded, None).expect("it is sound").window, None);
        assert_eq!(state("Unknown command.\n", None), None);
    }

    #[test]
    fn its_version_is_the_third_word() {
        let words = "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/\nStatus: ...";
        assert_eq!(name(words), "HAProxy 2.6.12-1+deb12u4");
    }
}
