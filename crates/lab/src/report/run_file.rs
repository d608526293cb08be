//! `run.json`: everything that one run of the lab has found, as plain data.
//!
//! Figures of verdicts are rounded to three digits after the point when they are written, as `weirgate sim --format
//! json` does; all others stay as they are to the last bit.

use std::io;

use serde::{Deserialize, Serialize};
use weirgate_verdict::Verdict;
use weirgate_verdict::report::{Group, Outline, Series};

/// Version of the format that this program writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// One run of the lab: one experiment, several approaches, several seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// [`VERSION`].
    pub version: u32,
    /// When it began, as in RFC 3339.
    pub date: String,
    /// The command line that it was started with.
    pub command: String,
    /// What it ran on.
    pub machine: Machine,
    /// So many seconds of the experiment took one second; 1 is as the file says.
    pub time_compression: f64,
    /// What a reader has to know of the run as a whole.
    pub notes: Vec<String>,
    /// The experiment in words and figures.
    pub experiment: Outline,
    /// Every trial. Approaches are shown in the order in which they come here first.
    pub trials: Vec<Trial>,
    /// The experiment's file as it was run.
    pub experiment_file: String,
    /// What the gateways were told.
    pub configuration: Vec<ConfigFile>,
}

/// One approach with one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// `weirgate`, `quorum`, `haproxy-tuned:maxconn=4`, …
    pub approach: String,
    /// The gateway's program and version, as in `HAProxy 2.6.12`.
    pub version: String,
    /// The seed of its traffic.
    pub seed: u64,
    /// What the judge found.
    pub verdict: Verdict,
    /// The run over time. Figures are drawn of the first trial of an approach that has it.
    pub series: Option<Series>,
    /// How far the measurement is to be believed.
    pub evidence: Evidence,
    /// Response times of served requests.
    pub latency: Vec<Quantiles>,
    /// What a reader has to know of this trial.
    pub notes: Vec<String>,
}

/// What shows that a trial measured what it says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Requests that the load generator sent.
    pub sent: u64,
    /// Of these served,
    pub served: u64,
    /// turned away by the gateway,
    pub shed: u64,
    /// failed,
    pub failed: u64,
    /// left by their client,
    pub left: u64,
    /// cut off by the end of the trial.
    pub cut: u64,
    /// Sent, and nothing is known of what became of them.
    pub lost: Ids,
    /// Reached nodes more than once.
    pub doubled: Ids,
    /// Reached a node and were never sent.
    pub phantom: Ids,
    /// How much later than planned requests were sent.
    pub generator_late_ms: Lateness,
    /// How much later than planned nodes replied.
    pub node_late_ms: Lateness,
    /// How long after it was to be sent a request that was turned away was told so.
    #[serde(default)]
    pub shed_after_ms: Lateness,
    /// CPU time of all the gateway's processes per request sent, in microseconds.
    pub gateway_cpu_us: Option<f64>,
}

/// Requests that something is wrong with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    /// How many.
    pub count: u64,
    /// Some of them.
    pub examples: Vec<String>,
}

/// Lateness, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// Quantiles of the response times of a class in a phase, in milliseconds: a line of `latency.csv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Name of the phase.
    pub phase: String,
    /// Name of the class.
    pub class: String,
    /// Requests served.
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
    /// Largest.
    pub max: f64,
}

/// What the run ran on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the CPU.
    pub cpu: String,
    /// Which core did what.
    pub cores: Vec<CoreUse>,
    /// Kernel.
    pub kernel: String,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

/// A core and its use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreUse {
    /// Number of the core.
    pub core: usize,
    /// In words, as in `gateway and load`.
    pub used_for: String,
}

/// A file that a gateway was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigFile {
    /// Which approach.
    pub approach: String,
    /// Where it is, from the run directory, as in `config/haproxy/haproxy.cfg`.
    pub path: String,
    /// Its text; `None` if that is long or no text.
    pub text: Option<String>,
}

impl Machine {
    /// This machine.
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
            // Not every architecture tells its model.
            cpu: field("/proc/cpuinfo", "model name")?.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores,
            kernel: format!("Linux {}", std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim()),
            memory_mib: kib.unwrap_or(0) / 1024,
        })
    }
}

impl Evidence {
    /// Every request sent was served, shed, failed, left, cut off or lost.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let fates = [self.served, self.shed, self.failed, self.left, self.cut, self.lost.count];
        fates.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count)) == Some(self.sent)
    }

    /// What casts doubt on the trial, in words; empty is good.
    #[must_use]
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
    /// The trials by approach.
    #[must_use]
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

    /// What makes no sense though every field is there, in words.
    pub(super) fn nonsense(&self) -> Option<String> {
        let mut seen = Vec::new();
        let classes = |verdict: &Verdict| -> Vec<Vec<String>> {
            verdict.phases.iter().map(|p| p.classes.iter().map(|c| c.class.clone()).collect()).collect()
        };
        for (index, trial) in self.trials.iter().enumerate() {
            let who = format!("trials[{index}] ({}, seed {})", trial.approach, trial.seed);
            if seen.contains(&(&trial.approach, trial.seed)) {
                return Some(format!("{who} is there twice: a seed counts once"));
            }
            seen.push((&trial.approach, trial.seed));
            if trial.verdict.seed != trial.seed {
                return Some(format!("{who} has the verdict of seed {}", trial.verdict.seed));
            }
            let (ours, theirs) = (&self.experiment.phases, &trial.verdict.phases);
            if ours.len() != theirs.len() || ours.iter().zip(theirs).any(|(ours, theirs)| ours.name != theirs.name) {
                return Some(format!("{who} has other phases than the experiment"));
            }
            if classes(&trial.verdict) != classes(&self.trials[0].verdict) {
                return Some(format!("{who} has other classes than trials[0]"));
            }
            if trial.series.as_ref().is_some_and(|series| series.step <= 0.0 || series.length <= 0.0) {
                return Some(format!("{who} has a series without length: `step` and `length` are seconds above 0"));
            }
        }
        None
    }
}
