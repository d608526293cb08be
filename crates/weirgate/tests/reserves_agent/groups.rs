//! Real cgroups of v1 with busy processes in them, all gone when the test ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::processes::say;

/// The trees of the needed controllers at their usual mount points.
const TREES: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"];

/// A group with groups in it.
pub(crate) struct Groups {
    name: String,
    groups: Vec<String>,
    workers: Vec<Child>,
}

impl Groups {
    /// Creates the groups. If there is no cgroup v1 or it cannot be changed, prints so and returns `None`.
    pub(crate) fn make(test: &str, groups: &[&str]) -> Option<Groups> {
        let name = format!("weirgate-test-{}-{test}", std::process::id());
        let made = Groups { name, groups: groups.iter().map(ToString::to_string).collect(), workers: Vec::new() };
        for group in groups {
            for tree in TREES {
                if let Err(error) = fs::create_dir_all(Path::new(tree).join(&made.name).join(group)) {
                    say(&format!("SKIPPED: no cgroup v1 that could be changed: {tree}: {error}"));
                    return None;
                }
            }
        }
        Some(made)
    }

    /// Returns the group's name for `--cgroup-root`.
    pub(crate) fn root(&self) -> &str {
        &self.name
    }

    /// Starts a busy process in `group`. All run on CPU 0, so that they compete.
    pub(crate) fn work(&mut self, group: &str) {
        let mut command = Command::new("taskset");
        command.args(["-c", "0", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
        let worker = command.spawn().expect("every Linux has taskset and sh");
        let id = worker.id().to_string();
        self.workers.push(worker);
        for tree in TREES {
            fs::write(Path::new(tree).join(&self.name).join(group).join("cgroup.procs"), &id).expect("it can be moved");
        }
    }

    /// Returns the CPU time that a group has used, in nanoseconds, by its own counter.
    pub(crate) fn used(&self, group: &str) -> u64 {
        let text = fs::read_to_string(Path::new(TREES[1]).join(&self.name).join(group).join("cpuacct.usage"));
        text.expect("the group is there").trim().parse().expect("a number")
    }

    /// Returns the share in a group's file. `None` if the group does not exist.
    pub(crate) fn share(&self, group: &str) -> Option<u32> {
        let text = fs::read_to_string(self.path(group).join("cpu.shares")).ok()?;
        Some(text.trim().parse().expect("a number"))
    }

    fn path(&self, group: &str) -> PathBuf {
        Path::new(TREES[0]).join(&self.name).join(group)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
        for tree in TREES {
            let root = Path::new(tree).join(&self.name);
            for group in self.groups.iter().rev().map(String::as_str).chain(["made", ""]) {
                let _ = fs::remove_dir(root.join(group));
            }
        }
    }
}
