//! What stood in the cgroups before the agent set anything, on file, so that it can be put back.
//!
//! Nothing is set before what it replaces has been written to `agent-NODE.json` in the state directory. So an
//! agent that was killed leaves its shares in force, and the next one still knows what was there before the first.
//! `agent-NODE.lock` keeps a second agent of the same node away; the kernel unlocks it when the agent ends, however it
//! ends.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use weirgate_cgroup::{self as cgroup, Cgroups};

/// Where state is by default: gone with the cgroups when the machine starts anew.
pub const STATE_DIRECTORY: &str = "/run/weirgate";

/// The version of the file. It grows when a field changes its meaning.
const VERSION: u32 = 1;

/// What was there before.
#[derive(Debug)]
pub(crate) struct Record {
    file: PathBuf,
    content: Content,
    /// Whether the content is not on file yet.
    changed: bool,
    _lock: File,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    /// Per file of a group what stood in it.
    before: BTreeMap<PathBuf, String>,
    /// Directories that the agent made, parents first.
    made: Vec<PathBuf>,
}

impl Record {
    /// That of `node`, as the agent before left it. No other agent can open it while this one lives.
    ///
    /// # Errors
    /// Another agent has it, it is damaged, or the directory cannot be used; with what helps.
    pub(crate) fn open(directory: &Path, node: &str) -> Result<Record, String> {
        let shown = directory.display();
        let help = "name a directory that the agent may write with --state";
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| format!("state directory {shown}: {error}; {help}"))?;
        let lock = directory.join(format!("agent-{node}.lock"));
        let open = File::options().write(true).create(true).truncate(false).mode(0o600).open(&lock);
        let lock_file = open.map_err(|error| format!("{}: {error}; {help}", lock.display()))?;
        match lock_file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!(
                    "another agent of node {node} runs on this machine: it holds {}; stop it, or give this one a --state \
                     of its own if it is for other cgroups",
                    lock.display()
                ));
            }
            Err(TryLockError::Error(error)) => return Err(format!("{}: {error}; {help}", lock.display())),
        }
        let file = directory.join(format!("agent-{node}.json"));
        let content = match fs::read(&file) {
            Ok(bytes) => read(&bytes).map_err(|why| {
                format!("{}: {why}; if the shares in force may stay as they are, remove the file", file.display())
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Content { version: VERSION, before: BTreeMap::new(), made: Vec::new() }
            }
            Err(error) => return Err(format!("{}: {error}", file.display())),
        };
        Ok(Record { file, content, changed: false, _lock: lock_file })
    }

    /// Whether an agent before has set shares that were not put back.
    pub(crate) fn is_used(&self) -> bool {
        !self.content.before.is_empty()
    }

    /// What stood in `file` before anything was set there, if something was.
    pub(crate) fn before(&self, file: &Path) -> Option<&str> {
        self.content.before.get(file).map(String::as_str)
    }

    /// `text` stands in `file`, which is about to be set. Counts the first time only.
    pub(crate) fn remember(&mut self, file: &Path, text: &str) {
        if !self.content.before.contains_key(file) {
            self.content.before.insert(file.to_owned(), text.to_owned());
            self.changed = true;
        }
    }

    /// `directory` is about to be made.
    pub(crate) fn makes(&mut self, directory: &Path) {
        if !self.content.made.iter().any(|made| made == directory) {
            self.content.made.push(directory.to_owned());
            self.changed = true;
        }
    }

    /// Writes the record if it has changed. After that, what it says may be replaced.
    ///
    /// # Errors
    /// It is not on file.
    pub(crate) fn save(&mut self) -> Result<(), String> {
        if !self.changed {
            return Ok(());
        }
        // Containers come and go: what is gone needs no restoring, and the file would grow for ever.
        self.content.before.retain(|file, _| file.exists());
        let text = serde_json::to_vec(&self.content).map_err(|error| error.to_string())?;
        // A whole file or the one before, never half of one.
        let new = self.file.with_extension("new");
        let mut options = File::options();
        let open = options.write(true).create(true).truncate(true).mode(0o600).open(&new);
        let written = open.and_then(|mut file| file.write_all(&text)).and_then(|()| fs::rename(&new, &self.file));
        written.map_err(|error| {
            format!("{}: {error}: nothing is set while what was before cannot be kept", self.file.display())
        })?;
        self.changed = false;
        Ok(())
    }

    /// Puts everything back and removes the directories that were made. Gives what could not be done; if there is
    /// something, the record stays.
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
                problems.push(format!("{file} is not put back: it is no share below this --cgroup-root"));
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
        serde_json::from_slice(bytes).map_err(|error| format!("this is no agent's state: {error}"))?;
    match content.version {
        VERSION => Ok(content),
        other => Err(format!("it has version {other}, and this agent reads version {VERSION}")),
    }
}
