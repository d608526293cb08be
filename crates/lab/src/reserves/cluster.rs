//! Four nodes on one machine.
//!
//! A node is a control group pinned to a CPU, with the same weight as its neighbours there; its classes are groups
//! below it, and so is a filler that takes what they leave, with the least weight there is. So a node's idle time is
//! its own, as on a machine of its own, and nothing but weights decides: a quota would take from a class in one instant
//! what it lacks in the next (Linux's bandwidth control makes errors of 3 to 25 points here, weights one of 0.1).
//!
//! Everything is gone when it is dropped. Should the lab be killed, its processes end by a limit of CPU time that each
//! has, and the groups, then empty, are removed by the next cluster.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use weirgate_cgroup::{Cgroups, Counter, Resource, create, missing, open, read, remove, write};

use weirgate_emulator::clock;

use super::{CLASSES, NODES, SHARE};
use crate::process::{cpus, on_cpu};

/// The groups of a lab begin with this; its process id follows.
const PREFIX: &str = "weirgate-lab-";

/// The kernel's default weight on the scale of shares, in percent: 100 of 10,000.
const ORDINARY: f64 = 1.0;

/// How long nodes are watched to see how large they are.
const WATCHED: Duration = Duration::from_secs(1);

/// A filler's name among the classes of its node.
const FILLER: &str = "filler";

/// What a process that never waits runs: it goes into its groups first, and its CPU time is bounded.
const SPIN: &str =
    "ulimit -t \"$1\"; shift; for procs in \"$@\"; do echo $$ > \"$procs\" || exit 1; done; while :; do :; done";

/// CPU time that a process may use beyond the length of a run, in seconds.
const SPARE: u64 = 30;

/// The nodes, with nobody busy but the fillers.
pub(super) struct Cluster {
    cgroups: Box<dyn Cgroups>,
    top: String,
    made: Vec<PathBuf>,
    /// Per node its CPU.
    cpus: Vec<usize>,
    /// CPUs of a node.
    pub(super) size: f64,
    limit: u64,
    fillers: Vec<Busy>,
}

/// A process that never waits. Dropped, it is gone.
pub(super) struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    /// Makes the nodes, for a run of `length`: every class has its share of every node.
    ///
    /// # Errors
    /// Groups cannot be made here, and what helps.
    pub(super) fn new(length: Duration) -> Result<Cluster, String> {
        let cgroups = open(None)?.cgroups;
        sweep(&*cgroups);
        let cpus = cpus().map_err(|error| format!("which CPUs there are: {error}"))?;
        // As many as divide the nodes evenly.
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
        // The cluster has the weight of any process, so that agents and manager are not kept waiting by what they
        // manage. Its nodes are alike.
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

    /// The path of a node's group below the root.
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

    /// Makes a class busy on a node.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(super) fn start(&self, node: usize, class: usize) -> Result<Busy, String> {
        self.spin(node, &self.class(node, class))
    }

    fn spin(&self, node: usize, group: &str) -> Result<Busy, String> {
        // The tree of shares comes last: with a small one it would take long to get into the others.
        let trees = self.cgroups.trees().into_iter().rev();
        let procs = trees.map(|tree| tree.join(group).join("cgroup.procs"));
        let mut command = Command::new("sh");
        command.args(["-c", SPIN, "spin", &self.limit.to_string()]).args(procs);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = on_cpu(Some(self.cpus[node]), || command.spawn());
        child.map(Busy).map_err(|error| format!("a busy process in {group}: {error}"))
    }

    /// Looks how much of a CPU a node really gets while manager and agents idle and the machine's other guests take
    /// theirs: that is its size from now on. Its processes never wait, so that it gets all it can.
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

    /// Per node the counter of each class and, last, of the filler.
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

    /// The shares that are in force on a node, in percent of the node. They are set one after the other; what is read
    /// is what stood at one instant.
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

    /// Removes the nodes, which nobody uses any more; what could not be removed, and why.
    pub(super) fn close(mut self) -> Vec<String> {
        self.fillers.clear();
        self.made.drain(..).rev().filter_map(|directory| remove(&directory).err()).collect()
    }

    /// The share of a class that is in force on a node, in percent of the node.
    pub(super) fn share(&self, node: usize, class: usize) -> f64 {
        let (knob, tree) = self.cpu_knob();
        let text = read(&tree.join(self.class(node, class)).join(knob.file));
        text.and_then(|text| knob.percent(&text)).unwrap_or(0.0)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.fillers.clear();
        // Children first. What stays is removed by the next cluster.
        for directory in self.made.iter().rev() {
            let _ = remove(directory);
        }
    }
}

/// Removes what labs that were killed have left.
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
