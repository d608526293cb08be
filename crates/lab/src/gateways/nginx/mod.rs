//! nginx with a rate, a burst and a number of connections per class.
//!
//! Source: nginx.org, modules ngx_http_limit_req, ngx_http_limit_conn and ngx_http_upstream, and
//! "Controlling nginx" for the reload.

mod config;

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use self::config::{Figures, Rate};
use super::knob::{Knob, SOURCE, Share, Slots, is};
use super::launch::{Peer, check, version, write};
use super::terms::pools;
use super::{Approach, Control, Gateway, Kind, Setting};
use crate::programs::Program;

pub(super) const NGINX: Kind = Kind {
    name: "nginx",
    about: "nginx with least connections, and with a rate, a burst and a number of connections for each class",
    program: Some(Program::Nginx),
    knobs: &[
        Knob {
            name: "rate",
            default: "100%",
            about: "requests admitted per second, as a share of the guaranteed rate, or off",
            check: is::<Rate>,
        },
        Knob {
            name: "burst",
            default: "50%",
            about: "longest delay by the rate limit, as a share of the class's guaranteed response time",
            check: is::<Share>,
        },
        Knob {
            name: "conn",
            default: "4x",
            about: "maximum number of requests of a guaranteed class in flight: a number, a multiple of its load, \
                    workers, or off",
            check: is::<Slots>,
        },
        Knob {
            name: "rest",
            default: "4x",
            about: "maximum number of requests of a class without a guarantee in flight: a number, a multiple of the \
                    slots that no class is promised, workers, or off",
            check: is::<Slots>,
        },
        Knob {
            name: "max_conns",
            default: "8x",
            about: "maximum number of requests in a server: a number, a multiple of its share of the guaranteed load, \
                    workers, or off",
            check: is::<Slots>,
        },
        SOURCE,
    ],
    sweep: &[
        "rate=110%",
        "rate=150%",
        "rate=200%",
        "rate=off",
        "burst=90%",
        "conn=8x",
        "rest=4",
        "conn=workers,rest=4,max_conns=workers",
    ],
    start: |setting, approach| start(setting, approach),
};

#[derive(Debug)]
struct Nginx {
    program: PathBuf,
    /// The configuration with all nodes in service, and its file.
    text: String,
    file: PathBuf,
    /// Whether each node of the policy is taken out.
    out: Vec<bool>,
}

fn start(setting: &Setting<'_>, approach: &Approach) -> Result<Gateway, String> {
    let program = Program::Nginx.find()?;
    let pools = pools(setting)?;
    let figures = Figures::new(&pools, approach)?;
    let prepared = std::cell::RefCell::new((String::new(), PathBuf::new()));
    let peer = Peer::start("nginx", setting, |address| {
        let text = config::text(approach, &figures, &pools, address);
        let file = write(setting, "nginx.conf", &text)?;
        check(invoke(&program, &file).arg("-t"))?;
        *prepared.borrow_mut() = (text, file.clone());
        Ok(invoke(&program, &file))
    })?;
    let (text, file) = prepared.into_inner();
    let words = version(&program, "-v")?;
    let version = format!("nginx {}", words.trim().rsplit('/').next().unwrap_or_default());
    let out = vec![false; setting.addresses.len()];
    Ok(Gateway { peer, version, control: Box::new(Nginx { program, text, file, out }) })
}

/// Returns the nginx command for this configuration. It writes its files to the same directory and its
/// messages to standard error.
fn invoke(program: &Path, file: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("-p").arg(file.parent().unwrap_or(Path::new("/"))).args(["-e", "stderr", "-c"]).arg(file);
    command
}

impl Nginx {
    /// Starts a new worker with the configuration in the file. Returns when no old worker accepts connections.
    fn apply(&self, peer: &mut Peer) -> Result<(), String> {
        check(invoke(&self.program, &self.file).arg("-t"))?;
        let before = workers(peer.id())?;
        let master = Pid::from_raw(peer.id() as i32).ok_or("nginx has no process id")?;
        kill_process(master, Signal::HUP).map_err(|error| format!("nginx takes no signal: {error}"))?;
        peer.wait_for_order("nginx serves with its new configuration", |peer| {
            let now = workers(peer.id())?;
            // Old workers may still finish their requests. Their titles then say that they shut down.
            Ok(!now.is_empty() && now.iter().all(|worker| !before.contains(worker)))
        })
    }
}

/// Returns the workers of a master that accept connections.
fn workers(master: u32) -> Result<Vec<u32>, String> {
    let failed = |error: std::io::Error| format!("/proc: {error}");
    let mut workers = Vec::new();
    for entry in std::fs::read_dir("/proc").map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process that has exited meanwhile is no worker.
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        let Ok(title) = std::fs::read_to_string(entry.path().join("cmdline")) else { continue };
        let child =
            status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|of| of.trim() == master.to_string()));
        // A worker that has just been forked still has its master's title. It counts once it works.
        if child && title.starts_with("nginx: worker process") && !title.contains("shutting down") {
            workers.push(id);
        }
    }
    Ok(workers)
}

impl Control for Nginx {
    fn set_out(&mut self, peer: &mut Peer, node: usize, out: bool) -> Result<(), String> {
        *self.out.get_mut(node).ok_or_else(|| format!("the policy has no node {node}"))? = out;
        std::fs::write(&self.file, config::with_down(&self.text, &self.out))
            .map_err(|error| format!("{}: {error}", self.file.display()))?;
        self.apply(peer)
    }

    fn reload(&mut self, peer: &mut Peer) -> Result<(), String> {
        self.apply(peer)
    }
}
