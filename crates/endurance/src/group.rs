//! A control group with a limit of memory, in which the gateway runs as in a container.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Trees of the memory controller, of v1 and of v2, each with the file of the limit in bytes. See cgroups(7).
const TREES: [(&str, &str); 2] = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A control group. It is removed when this is dropped, if the gateway has ended.
pub(crate) struct Group {
    directory: PathBuf,
    /// Directory of a script that enters the group and becomes the gateway.
    script: TempDir,
}

impl Group {
    /// Makes a group with a limit of `bytes` for `program`.
    ///
    /// # Errors
    /// Control groups are not writable, which needs root, or there is no memory controller.
    pub(crate) fn new(program: &Path, bytes: u64) -> Result<Group, String> {
        let refused = |error: io::Error| format!("control group for the gateway: {error}; it needs root");
        let tree = TREES.iter().find(|(tree, file)| Path::new(tree).join(file).exists() || tree.ends_with("cgroup"));
        let (tree, file) = tree.ok_or("there is no control group of memory")?;
        let directory = Path::new(tree).join(format!("weirgate-endurance-{}", std::process::id()));
        fs::create_dir(&directory).map_err(refused)?;
        let script = tempfile::Builder::new().prefix("weirgate-endurance-").tempdir().map_err(refused)?;
        let group = Group { directory, script };
        fs::write(group.directory.join(file), bytes.to_string()).map_err(refused)?;
        let program = std::path::absolute(program).map_err(refused)?;
        let (entry, file) = (group.directory.join("cgroup.procs"), group.program());
        let text = format!("#!/bin/sh\necho $$ > '{}' && exec '{}' \"$@\"\n", entry.display(), program.display());
        fs::write(&file, text)
            .and_then(|()| fs::set_permissions(&file, Permissions::from_mode(0o755)))
            .map_err(refused)?;
        Ok(group)
    }

    /// Returns the program that runs the gateway in the group.
    pub(crate) fn program(&self) -> PathBuf {
        self.script.path().join("weirgate")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group with a process cannot be removed. It costs nothing.
        let _ = fs::remove_dir(&self.directory);
    }
}
