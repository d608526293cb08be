//! Record of the original values in the cgroups, kept in a file so that they can be restored.
//!
//! No value is replaced before the original has been written to `agent-NODE.json` in the state directory. So
//! an agent that was killed leaves its shares in force, and the next one still knows the values from before
//! the first agent. `agent-NODE.lock` prevents a second agent for the same node.
//! ([`weirgate_files::lock`]).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use weirgate_cgroup::{self as cgroup, Cgroups};
use weirgate_files::{PRIVATE, make_private_folder, replace};

/// Default directory for state. Like the cgroups, it does not survive a reboot.
pub const STATE_DIRECTORY: &str = "/run/weirgate";

/// Version of the file format, incremented when a field changes its meaning.
const VERSION: u32 = 1;

/// Record of the original values.
#[derive(Debug)]
pub(crate) struct Record {
    file: PathBuf,
    content: Content,
    /// Whether the content has changed since it was last written.
    changed: bool,
    _lock: File,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    before: BTreeMap<PathBuf, String>,
    /// Directories created by the agent, parents first.
    made: Vec<PathBuf>,
}

impl Record {
    /// Opens the record of `node`, as the previous agent left it. No other agent can open it while this one
    /// lives.
    ///
    /// # Errors
    /// Another agent holds it, it is damaged, or the directory cannot be used. The message includes a remedy.
    pub(crate) fn open(directory: &Path, node: &str) -> Result<Record, String> {
        let shown = directory.display();
        let help = "name a directory that the agent may write with --state";
        make_private_folder(directory).map_err(|error| format!("state directory {shown}: {error}; {help}"))?;
        let lock = directory.join(format!("agent-{node}.lock"));
        let lock_file = weirgate_files::lock(&lock).map_err(|error| format!("{}: {error}; {help}", lock.display()))?;
        let Some(lock_file) = lock_file else {
            return Err(format!(
                "another agent of node {node} runs on this machine: it holds {}; stop it, or give this one a --state \
                 of its own if it is for other cgroups",
                lock.display()
            ));
        };
        let file = directory.join(format!("agent-{node}.json"));
        let content = match fs::read(&file) {
            Ok(bytes) => read(&bytes)
                .map_err(|why| format!("{}: {why}; to keep the shares in force, remove the file", file.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Content { version: VERSION, before: BTreeMap::new(), made: Vec::new() }
            }
            Err(error) => return Err(format!("{}: {error}", file.display())),
        };
        Ok(Record { file, content, changed: false, _lock: lock_file })
    }

    /// Whether an earlier agent has set shares that were not restored.
    pub(crate) fn is_used(&self) -> bool {
        !self.content.before.is_empty()
    }

    /// Returns the original value of `file`, if a value was set there.
    pub(crate) fn before(&self, file: &Path) -> Option<&str> {
        self.content.before.get(file).map(String::as_str)
    }

    /// Records that `file`, which is about to be set, has the value `text`. Only the first value counts.
    pub(crate) fn remember(&mut self, file: &Path, text: &str) {
        if !self.content.before.contains_key(file) {
            self.content.before.insert(file.to_owned(), text.to_owned());
            self.changed = true;
        }
    }

    /// Records that `directory` is about to be created.
    pub(crate) fn makes(&mut self, directory: &Path) {
        if !self.content.made.iter().any(|made| made == directory) {
            self.content.made.push(directory.to_owned());
            self.changed = true;
        }
    }

    /// Writes the record if it has changed. After that, the recorded values may be replaced.
    ///
    /// # Errors
    /// The record could not be written.
    pub(crate) fn save(&mut self) -> Result<(), String> {
        if !self.changed {
            return Ok(());
        }
        // Containers come and go. A removed file needs no restoring, and the record would grow for ever.
        self.content.before.retain(|file, _| file.exists());
        let text = serde_json::to_vec(&self.content).map_err(|error| error.to_string())?;
        replace(&self.file, PRIVATE, &text).map_err(|error| {
            format!("{}: {error}: no share is set while the old values cannot be saved", self.file.display())
        })?;
        self.changed = false;
        Ok(())
    }

    /// Restores all values and removes the created directories. Returns a line about each failure. If there
    /// is one, the record stays.
    pub(crate) fn restore(self, cgroups: &dyn Cgroups) -> Vec<String> {
        let trees = cgroups.trees();
        let inside = |path: &Path| {
            let climbs = path.components().any(|part| matches!(part, std::path::Component::ParentDir));
            !climbs && trees.iter().any(|tree| path.starts_with(tree))
        };
        let mut problems = Vec::new();
        for (file, text) in &self.content.before {
            let known = cgroups.knobs().iter().any(|(knob, _)| file.ends_with(knob.file));
            if !(known && inside(file)) {
                let file = file.display();
                problems.push(format!("{file} is not restored: it is not a share below this --cgroup-root"));
            } else if let Err(why) = cgroup::write(file, text) {
                problems.push(why);
            }
        }
        for directory in self.content.made.iter().rev() {
            match inside(directory) {
                true => problems.extend(cgroup::remove(directory).err()),
                false => problems.push(format!("{} stays: it is not below this --cgroup-root", directory.display())),
            }
        }
        if problems.is_empty()
            && let Err(error) = fs::remove_file(&self.file)
            && error.kind() != io::ErrorKind::NotFound
        {
            problems.push(format!("{}: {error}", self.file.display()));
        }
        problems
    }
}

fn read(bytes: &[u8]) -> Result<Content, String> {
    let content: Content =
        serde_json::from_slice(bytes).map_err(|error| format!("this is not an agent's state: {error}"))?;
    match content.version {
        VERSION => Ok(content),
        other => Err(format!("it has version {other}, and this agent reads version {VERSION}")),
    }
}
