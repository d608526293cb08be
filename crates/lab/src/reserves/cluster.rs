//! Four nodes on one machine.
//!
//! A node is a control group pinned to a CPU, with the same weight as its neighbours there. Its classes are
//! groups below it, and so is a filler with the smallest possible weight that uses the CPU time left over.
//! A node's idle time is thus its own, as on a separate machine. Only weights decide, because a quota would
//! take from a class in one instant the time that it lacks in the next. Linux's bandwidth control makes
//! errors of 3 to 25 points here, and weights make one of 0.1.
//!
//! Everything is removed when the cluster is dropped. If the lab is killed, a limit on CPU time ends each
//! of its processes, and the next cluster removes the groups, which are empty by then.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, test_kill_process};
use weirgate_cgroup::{Cgroups, Counter, Resource, create, missing, open, read, remove, write};
use weirgate_emulator::clock;

use super::{CLASSES, NODES, SHARE};
use crate::process::{cpus, on_cpu};

/// Prefix of a lab's group names, followed by the lab's process id.
const PREFIX: &str = "weirgate-lab-";

/// The kernel's default weight on the scale of shares, in percent: 100 of 10,000.
const ORDINARY: f64 = 1.0;

/// Time over which the CPU capacity of the nodes is measured.
const WATCHED: Duration = Duration::from_secs(1);

/// Name of a filler among the classes of its node.
const FILLER: &str = "filler";

/// Shell program of a process that never waits. It first joins its groups, and its CPU time is bounded.
const SPIN: &str =
    "ulimit -t \"$1\"; shift; for procs in \"$@\"; do echo $$ > \"$procs\" || exit 1; done; while :; do :; done";

/// CPU time that a process may use beyond the length of a run, in seconds.
const SPARE: u64 = 30;

/// The nodes, on which only the fillers are busy at first.
pub(super) struct Cluster {
    cgroups: Box<dyn Cgroups>,
    top: String,
    made: Vec<PathBuf>,
    /// CPU of each node.
    cpus: Vec<usize>,
    /// Number of CPUs of a node.
    pub(super) size: f64,
    limit: u64,
    fillers: Vec<Busy>,
}

/// A process that never waits. Dropping it kills the process.
pub(super) struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        // Killing a process that has already exited fails and is not needed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    /// Makes the nodes for a run of `length`. Every class has its share of every node.
    ///
    /// # Errors
    /// Groups cannot be made here. The error names a remedy.
    pub(super) fn new(length: Duration) -> Result<Cluster, String> {
        let cgroups = open(None)?.cgroups;
        sweep(&*cgroups);
        let cpus = cpus().map_err(|error| format!("which CPUs there are: {error}"))?;
        // The number of CPUs must divide the nodes evenly.
        let used = [4, 2, 1].into_iter().find(|used| *used <= cpus.len()).unwrap_or(1);
        let mut cluster = Cluster {
            cgroups,
            top: format!("{PREFIX}{}", std::process::id()),
            made: Vec::new(),
            cpus: (0..NODES).map(|node| cpus[node * used / NODES]).collect(),
            size: used as f64 / NODES as f64,
            limit: length.as_secs() + SPARE,
            fillers: Vec::new(),
        };
        // The cluster has the weight of an ordinary process, so that it does not delay the agents and the
        // coordinator that manage it. Its nodes have equal weights.
        cluster.group(&cluster.top.clone(), ORDINARY)?;
        for node in 0..NODES {
            cluster.group(&cluster.node(node), SHARE)?;
            for class in 0..CLASSES {
                cluster.group(&cluster.class(node, class), SHARE)?;
            }
            let filler = format!("{}/{FILLER}", cluster.node(node));
            cluster.group(&filler, 0.0)?;
            let busy = cluster.spin(node, &filler)?;
            cluster.fillers.push(busy);
        }
        Ok(cluster)
    }

    /// Returns the path of a node's group below the root.
    pub(super) fn node(&self, node: usize) -> String {
        format!("{}/n{}", self.top, node + 1)
    }

    fn class(&self, node: usize, class: usize) -> String {
        format!("{}/c{}", self.node(node), class + 1)
    }

    fn group(&mut self, group: &str, percent: f64) -> Result<(), String> {
        for directory in missing(&*self.cgroups, group) {
            create(&*self.cgroups, &directory)?;
            self.made.push(directory);
        }
        let (knob, tree) = self.cpu_knob();
        let file = tree.join(group).join(knob.file);
        match write(&file, &knob.text(percent, 0))? {
            true => Ok(()),
            false => Err(self.cgroups.why_no_share(group)),
        }
    }

    fn cpu_knob(&self) -> (&'static weirgate_cgroup::Knob, &Path) {
        let (knob, tree) = &self.cgroups.knobs()[0];
        debug_assert_eq!(knob.resource, Resource::Cpu);
        (knob, tree)
    }

    /// Starts a process that keeps a class busy on a node.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(super) fn start(&self, node: usize, class: usize) -> Result<Busy, String> {
        self.spin(node, &self.class(node, class))
    }

    fn spin(&self, node: usize, group: &str) -> Result<Busy, String> {
        // The process joins the tree of shares last, because with a small share it would take long to join
        // the others.
        let trees = self.cgroups.trees().into_iter().rev();
        let procs = trees.map(|tree| tree.join(group).join("cgroup.procs"));
        let mut command = Command::new("sh");
        command.args(["-c", SPIN, "spin", &self.limit.to_string()]).args(procs);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = on_cpu(Some(self.cpus[node]), || command.spawn());
        child.map(Busy).map_err(|error| format!("a busy process in {group}: {error}"))
    }

    /// Measures the CPU capacity that a node really gets while coordinator and agents idle and other guests of
    /// the machine take their part. This is the node's size from now on. Its processes never wait, so it
    /// gets as much as possible.
    ///
    /// # Errors
    /// A group is gone.
    pub(super) fn measure(&mut self) -> Result<(), String> {
        let counters = self.counters()?;
        let used = || counters.iter().flatten().filter_map(Counter::read).sum::<u64>();
        let (begun, before) = (clock::now(), used());
        clock::pause(WATCHED);
        let got = (used() - before) as f64 / (clock::now() - begun) as f64 / NODES as f64;
        self.size = got.min(self.size);
        Ok(())
    }

    /// Returns the counters of each class and, last, of the filler, for each node.
    ///
    /// # Errors
    /// A group is gone.
    pub(super) fn counters(&self) -> Result<Vec<Vec<Counter>>, String> {
        let of = |node: usize| -> Result<Vec<Counter>, String> {
            let classes = (0..CLASSES).map(|class| self.class(node, class));
            let groups = classes.chain([format!("{}/{FILLER}", self.node(node))]);
            groups.map(|group| self.cgroups.counter(&group)).collect()
        };
        (0..NODES).map(of).collect()
    }

    /// Returns the shares in force on a node, in percent of the node. Shares are set one after the other,
    /// so this reads until two readings agree and returns the state of one instant.
    pub(super) fn shares(&self, node: usize) -> Vec<f64> {
        let read = || (0..CLASSES).map(|class| self.share(node, class)).collect::<Vec<f64>>();
        let mut shares = read();
        loop {
            let again = read();
            if again == shares {
                return shares;
            }
            shares = again;
        }
    }

    /// Removes the nodes, which are no longer in use. Returns an error message for each group that could
    /// not be removed.
    pub(super) fn close(mut self) -> Vec<String> {
        self.fillers.clear();
        self.made.drain(..).rev().filter_map(|directory| remove(&directory).err()).collect()
    }

    /// Returns the share of a class in force on a node, in percent of the node.
    pub(super) fn share(&self, node: usize, class: usize) -> f64 {
        let (knob, tree) = self.cpu_knob();
        let text = read(&tree.join(self.class(node, class)).join(knob.file));
        text.and_then(|text| knob.percent(&text)).unwrap_or(0.0)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.fillers.clear();
        // Children come first. The next cluster removes the groups that stay.
        for directory in self.made.iter().rev() {
            let _ = remove(directory);
        }
    }
}

/// Removes the groups of labs that were killed.
fn sweep(cgroups: &dyn Cgroups) {
    for tree in cgroups.trees() {
        for entry in fs::read_dir(tree).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok()).and_then(Pid::from_raw);
            if owner.is_some_and(|owner| test_kill_process(owner).is_err()) {
                let _ = remove_below(&entry.path());
            }
        }
    }
}

fn remove_below(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_below(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}
