//! cgroup v1, which has a tree of directories for each controller.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::knob::{BLKIO_BFQ_WEIGHT, BLKIO_WEIGHT, CPU_SHARES};
use super::pattern::children;
use super::{Cgroups, Counter, Knob};

/// Maximum depth of the groups below a class that are searched for processes. systemd and container managers
/// nest less deeply.
const MAX_LEVELS: usize = 8;

/// The v1 interface: `cpuacct.usage`, `cpu.shares`, and a weight of `blkio` where that controller exists.
#[derive(Debug)]
pub struct V1 {
    cpuacct: PathBuf,
    trees: Vec<PathBuf>,
    knobs: Vec<(&'static Knob, PathBuf)>,
}

impl V1 {
    /// Takes the root group's directory in the tree of each controller.
    pub fn new(cpu: &Path, cpuacct: &Path, blkio: Option<&Path>) -> V1 {
        let disk =
            blkio.into_iter().flat_map(|tree| [(&BLKIO_BFQ_WEIGHT, tree.to_owned()), (&BLKIO_WEIGHT, tree.to_owned())]);
        let knobs = [(&CPU_SHARES, cpu.to_owned())].into_iter().chain(disk).collect();
        let mut trees: Vec<PathBuf> = Vec::new();
        for tree in [cpu, cpuacct].into_iter().chain(blkio) {
            // `cpu` and `cpuacct` may be mounted together and be two names for one directory.
            if !trees.iter().any(|known| same(known, tree)) {
                trees.push(tree.to_owned());
            }
        }
        V1 { cpuacct: cpuacct.to_owned(), trees, knobs }
    }
}

impl Cgroups for V1 {
    fn trees(&self) -> Vec<&Path> {
        self.trees.iter().map(PathBuf::as_path).collect()
    }

    fn knobs(&self) -> &[(&'static Knob, PathBuf)] {
        &self.knobs
    }

    fn counter(&self, group: &str) -> Result<Counter, String> {
        Counter::open(&self.cpuacct.join(group).join("cpuacct.usage"), "", 1)
    }

    fn is_occupied(&self, group: &str) -> bool {
        self.knobs.first().is_some_and(|(_, tree)| has_process(&tree.join(group), MAX_LEVELS))
    }

    fn adopt_children(&self, _: &Path) {}

    fn why_no_share(&self, group: &str) -> String {
        let tree = self.knobs.first().map_or(Path::new(""), |(_, tree)| tree);
        format!("{} has no cpu.shares: is it a tree of the cpu controller", tree.join(group).display())
    }
}

fn same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn has_process(directory: &Path, levels: usize) -> bool {
    let own = File::open(directory.join("cgroup.procs")).and_then(|mut procs| procs.read(&mut [0]));
    if own.is_ok_and(|bytes| bytes > 0) {
        return true;
    }
    let children = if levels == 0 { Vec::new() } else { children(directory).unwrap_or_default() };
    children.iter().any(|child| has_process(&directory.join(child), levels - 1))
}
