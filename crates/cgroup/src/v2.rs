//! cgroup v2, which has one tree of directories for all controllers.

use std::fs;
use std::path::{Path, PathBuf};

use super::knob::{CPU_WEIGHT, IO_BFQ_WEIGHT, IO_WEIGHT, MEMORY_LOW};
use super::{Cgroups, Counter, Knob, write};

/// Controllers to enable for the children of a group.
const CONTROLLERS: [&str; 3] = ["cpu", "io", "memory"];

/// The v2 interface: `cpu.stat`, `cpu.weight`, `io.weight`, `memory.low`, and `cgroup.controllers`, which
/// helps explain a missing file.
#[derive(Debug)]
pub struct V2 {
    root: PathBuf,
    knobs: Vec<(&'static Knob, PathBuf)>,
}

impl V2 {
    /// Takes the root group's directory.
    pub fn new(root: &Path) -> V2 {
        let knobs = [&CPU_WEIGHT, &IO_WEIGHT, &IO_BFQ_WEIGHT, &MEMORY_LOW].map(|knob| (knob, root.to_owned()));
        V2 { root: root.to_owned(), knobs: knobs.into() }
    }
}

impl Cgroups for V2 {
    fn trees(&self) -> Vec<&Path> {
        vec![&self.root]
    }

    fn knobs(&self) -> &[(&'static Knob, PathBuf)] {
        &self.knobs
    }

    fn counter(&self, group: &str) -> Result<Counter, String> {
        // In microseconds. The file exists even where the cpu controller is not enabled.
        Counter::open(&self.root.join(group).join("cpu.stat"), "usage_usec ", 1000)
    }

    fn is_occupied(&self, group: &str) -> bool {
        let events = fs::read_to_string(self.root.join(group).join("cgroup.events")).unwrap_or_default();
        events.lines().any(|line| line == "populated 1")
    }

    fn adopt_children(&self, directory: &Path) {
        for controller in CONTROLLERS {
            // A controller that cannot be enabled shows later as a missing knob, and that message says why.
            let _ = write(&directory.join("cgroup.subtree_control"), &format!("+{controller}"));
        }
    }

    fn why_no_share(&self, group: &str) -> String {
        let directory = self.root.join(group);
        let mut parents = directory.ancestors().skip(1).take_while(|parent| parent.starts_with(&self.root));
        // The nearest ancestor that has the controller and could enable it for its children.
        let could = parents.find(|parent| {
            let controllers = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
            controllers.split_ascii_whitespace().any(|controller| controller == "cpu")
        });
        let directory = directory.display();
        match could {
            Some(parent) => format!(
                "{directory} has no cpu.weight: the cpu controller is not enabled for the groups in {0}; enable it with \
                 `echo +cpu > {0}/cgroup.subtree_control` and in each group below, or with `CPUWeight=100` in the unit \
                 if systemd made the group",
                parent.display()
            ),
            None => format!(
                "{directory} has no cpu.weight: the cpu controller is not available in {}; enable it in the parent of \
                 that group, or name another with --cgroup-root",
                self.root.display()
            ),
        }
    }
}
