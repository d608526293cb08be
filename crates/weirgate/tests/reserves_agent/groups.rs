//! Real cgroups of v1 with busy processes in them, all gone when the test ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::processes::say;

/// The controllers whose trees are needed, where they are commonly mounted.
const TREES: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"];

/// A group with groups in it.
pub(crate) struct Groups {
    name: String,
    groups: Vec<String>,
    workers: Vec<Child>,
}

impl Groups {
    /// `None`, said aloud, where there is no cgroup v1 or where it may not be changed.
    pub(crate) fn make(test: &str, groups: &[&str]) -> Option<Groups> {
        let name = format!("weirgate-test-{}-{test}", std::process::id());
        let made = Groups { name, groups: groups.iter().map(ToString::to_string).collect(), workers: Vec::new() };
        for group in groups {
            for tree in TREES {
                if let Err(error) = fs::create_dir_all(Path::new(tree).join(&made.name).join(group)) {
                    say(&format!("skipped: no cgroup v1 that could be changed: {tree}: {error}"));
                    return None;
                }
            }
        }
        Some(made)
    }

    /// As `--cgroup-root` has it.
    pub(crate) fn root(&self) -> &str {
        &self.name
    }

    /// Starts a process in `group` that does nothing but work, on CPU 0 as all of them, so that they compete.
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

    /// CPU time that a group has used, in nanoseconds, by its own counter.
    pub(crate) fn used(&self, group: &str) -> u64 {
        let text = fs::read_to_string(Path::new(TREES[1]).join(&self.name).join(group).join("cpuacct.usage"));
        text.expect("the group is there").trim().parse().expect("a number")
    }

    /// Its share, as it stands there; `None` if the group is not there.
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
