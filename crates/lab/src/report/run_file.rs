//! `run.json`: all results of one lab run, as plain data.
//!
//! The numbers of verdicts are rounded to three decimals on writing, as `weirgate sim --format json` does.
//! All other numbers stay exact to the last bit.

use std::io;

use serde::{Deserialize, Serialize};
use weirgate_verdict::Verdict;
use weirgate_verdict::report::{Group, Outline, Series};

/// Version of the format that this program writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// One run of the lab: one experiment, several approaches, several seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// Version of the format: [`VERSION`].
    pub version: u32,
    /// Start of the run, as in RFC 3339.
    pub date: String,
    /// The command line that started it.
    pub command: String,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Number of seconds of the experiment played per second. 1 plays the file as it is.
    pub time_compression: f64,
    /// Notes on the run as a whole.
    pub notes: Vec<String>,
    /// Summary of the experiment.
    pub experiment: Outline,
    /// Every trial. Approaches are shown in the order of their first trial.
    pub trials: Vec<Trial>,
    /// Text of the experiment file as it was run.
    pub experiment_file: String,
    /// Configuration files of the gateways.
    pub configuration: Vec<ConfigFile>,
}

/// One approach with one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The approach, such as `weirgate`, `quorum` or `haproxy-tuned:maxconn=4`.
    pub approach: String,
    /// The gateway's program and version, such as `HAProxy 2.6.12`.
    pub version: String,
    /// The seed of its traffic.
    pub seed: u64,
    /// The judge's verdict.
    pub verdict: Verdict,
    /// The run over time. Figures show the first trial of an approach that has it.
    pub series: Option<Series>,
    /// Evidence that the measurement can be trusted.
    pub evidence: Evidence,
    /// Response times of served requests.
    pub latency: Vec<Quantiles>,
    /// How the clients with a name fared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Clients>,
    /// Notes on this trial.
    pub notes: Vec<String>,
}

/// Evidence that a trial's measurement can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Number of requests that the load generator sent.
    pub sent: u64,
    /// Number of them that were served.
    pub served: u64,
    /// Number of them that the gateway shed or refused.
    pub shed: u64,
    /// Number of them that failed.
    pub failed: u64,
    /// Number of them that their client gave up.
    pub left: u64,
    /// Number of them that the end of the trial cut off.
    pub cut: u64,
    /// Requests without a known outcome.
    pub lost: Ids,
    /// Requests that nodes answered more than once.
    pub doubled: Ids,
    /// Requests that reached a node without having been sent.
    pub phantom: Ids,
    /// Lateness of sending after the planned instants.
    pub generator_late_ms: Lateness,
    /// Lateness of the nodes' replies after the planned instants.
    pub node_late_ms: Lateness,
    /// Time from the planned instant of a shed request to the gateway's refusal.
    #[serde(default)]
    pub shed_after_ms: Lateness,
    /// CPU time of all the gateway's processes per sent request, in microseconds.
    pub gateway_cpu_us: Option<f64>,
}

/// Requests that violate an invariant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    /// Number of requests.
    pub count: u64,
    /// Ids of some of them.
    pub examples: Vec<String>,
}

/// Lateness in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// Quantiles of the response times of a class in a phase, in milliseconds. Each is one line of `latency.csv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Name of the phase.
    pub phase: String,
    /// Name of the class.
    pub class: String,
    /// Number of served requests.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// Maximum.
    pub max: f64,
}

/// How clients with a name fared in a phase, without its first seconds, in which it settles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clients {
    /// Name of the phase.
    pub phase: String,
    /// Name of the clients.
    pub clients: String,
    /// Number of their requests that were served.
    pub served: u64,
    /// Number of their requests that were refused or failed, or whose client left.
    pub unserved: u64,
    /// 95th percentile of the response times of served requests, in milliseconds. `None` if none was served.
    pub p95_ms: Option<f64>,
}

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the CPU.
    pub cpu: String,
    /// Use of each core.
    pub cores: Vec<CoreUse>,
    /// Kernel version.
    pub kernel: String,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

/// A core and its use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreUse {
    /// Number of the core.
    pub core: usize,
    /// Its use in words, such as `gateway and load`.
    pub used_for: String,
}

/// A configuration file of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigFile {
    /// The approach.
    pub approach: String,
    /// Its path from the run directory, such as `config/haproxy/haproxy.cfg`.
    pub path: String,
    /// Its text, or `None` if it is too long or no text.
    pub text: Option<String>,
}

impl Machine {
    /// Describes this machine.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn here(cores: Vec<CoreUse>) -> io::Result<Machine> {
        let field = |file: &str, name: &str| -> io::Result<Option<String>> {
            let text = std::fs::read_to_string(file)?;
            let value = |line: &str| {
                line.split_once(':').filter(|(key, _)| key.trim() == name).map(|(_, v)| v.trim().to_owned())
            };
            Ok(text.lines().find_map(value))
        };
        let memory = field("/proc/meminfo", "MemTotal")?;
        let kib = memory.and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(Machine {
            // Some architectures do not report a model.
            cpu: field("/proc/cpuinfo", "model name")?.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores,
            kernel: format!("Linux {}", std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim()),
            memory_mib: kib.unwrap_or(0) / 1024,
        })
    }
}

impl Evidence {
    /// Returns whether every sent request was served, shed, failed, left, cut off or lost.
    pub fn adds_up(&self) -> bool {
        let fates = [self.served, self.shed, self.failed, self.left, self.cut, self.lost.count];
        fates.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count)) == Some(self.sent)
    }

    /// Returns the reasons to doubt the trial, in words. Empty if there are none.
    pub fn doubts(&self) -> Vec<String> {
        let ids = [(&self.lost, "lost"), (&self.doubled, "doubled"), (&self.phantom, "phantom")];
        let told = ids.into_iter().filter(|(ids, _)| ids.count > 0).map(|(ids, what)| match ids.examples.as_slice() {
            [] => format!("{} {what}", ids.count),
            some => format!("{} {what}, such as {}", ids.count, some.join(", ")),
        });
        told.chain((!self.adds_up()).then(|| "the counts do not add up".to_owned())).collect()
    }
}

impl RunFile {
    /// Returns the trials grouped by approach.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for trial in &self.trials {
            let known = groups.iter().position(|group| group.discipline == trial.approach);
            let index = known.unwrap_or_else(|| {
                groups.push(Group { discipline: trial.approach.clone(), ..Group::default() });
                groups.len() - 1
            });
            let group = &mut groups[index];
            group.verdicts.push(trial.verdict.clone());
            if group.series.is_none() {
                group.series.clone_from(&trial.series);
            }
        }
        groups
    }

    /// Returns a description of the first inconsistency among the fields, if there is one.
    pub(super) fn nonsense(&self) -> Option<String> {
        let mut seen = Vec::new();
        let classes = |verdict: &Verdict| -> Vec<Vec<String>> {
            verdict.phases.iter().map(|p| p.classes.iter().map(|c| c.class.clone()).collect()).collect()
        };
        for (index, trial) in self.trials.iter().enumerate() {
            let who = format!("trials[{index}] ({}, seed {})", trial.approach, trial.seed);
            if seen.contains(&(&trial.approach, trial.seed)) {
                return Some(format!("{who} is listed twice, but a seed counts once"));
            }
            seen.push((&trial.approach, trial.seed));
            if trial.verdict.seed != trial.seed {
                return Some(format!("{who} has the verdict of seed {}", trial.verdict.seed));
            }
            let (ours, theirs) = (&self.experiment.phases, &trial.verdict.phases);
            if ours.len() != theirs.len() || ours.iter().zip(theirs).any(|(ours, theirs)| ours.name != theirs.name) {
                return Some(format!("{who} has phases that are not the experiment's"));
            }
            if classes(&trial.verdict) != classes(&self.trials[0].verdict) {
                return Some(format!("{who} has classes that are not those of trials[0]"));
            }
            if trial.series.as_ref().is_some_and(|series| series.step <= 0.0 || series.length <= 0.0) {
                return Some(format!("{who} has a series without length: `step` and `length` must be above 0 s"));
            }
        }
        None
    }
}
