//! An experiment of `experiments/` on real sockets: its nodes, the gateway as a process, and its traffic.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use weirgate_emulator::clock;
use weirgate_experiment::{Experiment, load_experiment_file};
use weirgate_http_client::blocking::exchange;
use weirgate_http_client::{Address, Limits, Request};
use weirgate_lab::gateways::{Approach, Gateway, Setting, Source};
use weirgate_lab::load::{self, Plan, Running, Template};
use weirgate_lab::nodes::Nodes;
use weirgate_lab::trial::Cpus;
use weirgate_spanned_yaml::overrides::Override;

use crate::usage::Usage;

/// Maximum number of connections of one traffic source.
const CONNECTIONS: usize = 512;

/// Time from the end of all preparations to the first request, in which the threads start.
const LEAD: Duration = Duration::from_millis(200);

/// Limits of a request to the admin API. The page of a few classes has some ten kilobytes.
const LIMITS: Limits = Limits::new(Duration::from_secs(5), 4 << 20);

/// A running gateway before its nodes.
pub(crate) struct Stage {
    pub(crate) experiment: Experiment,
    pub(crate) nodes: Nodes,
    pub(crate) gateway: Gateway,
    /// Directory of its policy and log.
    _directory: TempDir,
    cpus: Cpus,
}

/// The files of a run.
pub(crate) struct Files<'a> {
    /// The program `weirgate`.
    pub(crate) program: PathBuf,
    /// The experiment.
    pub(crate) experiment: PathBuf,
    /// Changes to it, as for `--set`.
    pub(crate) changes: &'a [String],
}

impl Files<'_> {
    /// Returns the changes, parsed.
    pub(crate) fn overrides(&self) -> Result<Vec<Override>, String> {
        self.changes.iter().map(|text| text.parse::<Override>().map_err(|error| error.to_string())).collect()
    }

    /// Returns the source of Weirgate's policy.
    pub(crate) fn source(&self) -> Result<Source, String> {
        let (program, file) = (self.program.clone(), self.experiment.clone());
        Ok(Source { program, file, overrides: self.overrides()?, detached: false })
    }
}

impl Stage {
    /// Starts nodes and gateway. `replaced` gives another address to a node of the policy, by its number.
    ///
    /// # Errors
    /// A file has mistakes, or a part does not start. The message quotes it.
    pub(crate) fn start(files: &Files<'_>, replaced: &[(usize, SocketAddr)]) -> Result<Stage, String> {
        let overrides = files.overrides()?;
        let loaded = load_experiment_file(&files.experiment, &overrides).map_err(|errors| errors.to_string())?;
        let experiment = loaded.experiment;
        let cpus = Cpus::of_this_machine()?;
        let nodes = Nodes::start(&experiment, 1, cpus.nodes)?;
        let mut addresses = nodes.addresses().to_vec();
        for (node, address) in replaced {
            addresses[*node] = *address;
        }
        let directory = tempfile::Builder::new().prefix("weirgate-endurance-").tempdir();
        let directory = directory.map_err(|error| format!("temporary directory: {error}"))?;
        let gateway = Approach::parse("weirgate")?.start(&Setting {
            experiment: &experiment,
            source: Some(&files.source()?),
            addresses: &addresses,
            directory: directory.path(),
            cpu: cpus.gateway,
        })?;
        Ok(Stage { experiment, nodes, gateway, _directory: directory, cpus })
    }

    /// Starts the experiment's traffic.
    ///
    /// # Errors
    /// The load generator cannot start.
    pub(crate) fn load(&self, seed: u64) -> Result<Running, String> {
        let experiment = &self.experiment;
        let templates: Vec<Template> =
            (0..experiment.traffic.len()).map(|traffic| Template::emulated(experiment, traffic)).collect();
        let load = load::start(&Plan {
            experiment,
            seed,
            target: self.gateway.address(),
            templates: &templates,
            start: clock::now() + clock::nanos(LEAD),
            cpu: self.cpus.load,
            connections: CONNECTIONS,
            max_requests: load::MAX_REQUESTS,
        });
        load.map_err(|error| format!("load generator: {error}"))
    }

    /// Returns the number of requests of `class` that the gateway has shed, per reason, as its metrics have them.
    ///
    /// # Errors
    /// The admin API does not answer.
    pub(crate) fn shed(&self, class: &str) -> Result<String, String> {
        let address = self.gateway.admin().unwrap_or_default();
        let address = Address::Unix(address.trim_start_matches("unix:").into());
        let answer = exchange(&address, Request::get("localhost", "/metrics"), &LIMITS);
        let text = answer.map_err(|error| format!("admin API: /metrics: {error}"))?.text();
        let of_class = format!("class=\"{class}\"");
        let lines = text.lines().filter(|line| line.starts_with("weirgate_shed_total{") && line.contains(&of_class));
        let counts = lines.filter_map(|line| {
            let (reason, count) = line.split_once("reason=\"")?.1.split_once('"')?;
            let count = count.rsplit(' ').next()?;
            (count != "0").then(|| format!("{reason}: {count}"))
        });
        Ok(counts.collect::<Vec<_>>().join(", "))
    }

    /// Returns the resources that the gateway uses now.
    ///
    /// # Errors
    /// It has ended. The message quotes its last output.
    pub(crate) fn usage(&mut self) -> Result<Usage, String> {
        match self.gateway.ended() {
            Some(why) => Err(why),
            None => Usage::of(self.gateway.process()),
        }
    }
}

/// Raises the limit on open files of this process and of those that it starts to `count`, beyond the hard limit if
/// this user may.
///
/// # Errors
/// The system refuses. The limit is then the hard one.
pub(crate) fn allow_descriptors(count: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(count));
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum }).map_err(|error| {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let hard = limit.maximum.unwrap_or(u64::MAX);
        format!("{count} open files are needed and {hard} are allowed ({error}); `ulimit -Hn {count}` raises it")
    })
}
