//! Control groups of Linux: where the kernel counts what a class uses and takes its share.
//!
//! Cluster Reserves has resource containers and a lottery scheduler in a FreeBSD kernel (Sec. 4); on Linux a class is
//! one or more cgroups, and CPU time is divided among sibling groups in proportion to their weights. There are two
//! kernel interfaces, which differ in where files lie and what they are called: [`V2`], one tree for all resources, and
//! [`V1`], a tree for each. [`open`] takes the one in which CPU time is shared on this machine; everything else goes
//! through [`Cgroups`].
//!
//! A share is never a quota: a quota would keep a class from what nobody else uses.
#![forbid(unsafe_code)]

mod knob;
mod mounts;
mod pattern;
#[cfg(test)]
#[path = "../../agent/src/scratch.rs"]
mod scratch;
mod v1;
mod v2;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use knob::{Knob, Resource};
pub use mounts::{Opened, open};
pub use pattern::{MOST_GROUPS, Pattern, fits};
pub use v1::V1;
pub use v2::V2;

/// One of the kernel's interfaces. A group is named by its path from the root.
pub trait Cgroups {
    /// Its trees, each once, where the same group has a directory in each; the one of CPU shares first.
    fn trees(&self) -> Vec<&Path>;

    /// The knobs whose controllers are here, each with its tree. The one of CPU time is first and always there.
    fn knobs(&self) -> &[(&'static Knob, PathBuf)];

    /// The counter of the CPU time that the group has used since it was made.
    ///
    /// # Errors
    /// It cannot be opened, and what helps.
    fn counter(&self, group: &str) -> Result<Counter, String>;

    /// Whether a process is in the group or below.
    fn is_occupied(&self, group: &str) -> bool;

    /// Makes a directory of [`missing`] usable as the parent of groups.
    fn adopt_children(&self, directory: &Path);

    /// Why the group has no knob for CPU time although it is there, and what helps.
    fn why_no_share(&self, group: &str) -> String;
}

/// The groups that fit `pattern`, by name, and those only that are in the tree of CPU shares.
///
/// # Errors
/// A directory cannot be listed.
pub fn find(cgroups: &dyn Cgroups, pattern: &Pattern) -> Result<Vec<String>, String> {
    cgroups.trees().first().map_or(Ok(Vec::new()), |tree| pattern.find(tree))
}

/// The directories that must be made so that `group` is there, parents first.
pub fn missing(cgroups: &dyn Cgroups, group: &str) -> Vec<PathBuf> {
    let mut missing = Vec::new();
    for tree in cgroups.trees() {
        let mut directory = tree.to_owned();
        for level in group.split('/') {
            directory.push(level);
            if !directory.is_dir() {
                missing.push(directory.clone());
            }
        }
    }
    missing
}

/// Makes one of the [`missing`] directories.
///
/// # Errors
/// It cannot be made, and what helps.
pub fn create(cgroups: &dyn Cgroups, directory: &Path) -> Result<(), String> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("{} cannot be made: {error}{}", directory.display(), mend(&error)))
        }
        _ => {
            cgroups.adopt_children(directory);
            Ok(())
        }
    }
}

/// Removes a directory that was [`create`]d. It is no error if it is gone.
///
/// # Errors
/// It has processes or groups, or may not be removed.
pub fn remove(directory: &Path) -> Result<(), String> {
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            Err(format!("{} stays: it has processes or groups", directory.display()))
        }
        Err(error) => Err(format!("{} cannot be removed: {error}", directory.display())),
        Ok(()) => Ok(()),
    }
}

/// What a knob's file says: its first line. `None` if there is no such file.
#[must_use]
pub fn read(file: &Path) -> Option<String> {
    first_line(&File::open(file).ok()?, str::to_owned).ok()
}

/// Sets a knob. `Ok(false)` if there is no such file.
///
/// # Errors
/// It cannot be set, and what helps.
pub fn write(file: &Path, text: &str) -> Result<bool, String> {
    // The file is never made here: in a cgroup tree there is nothing to make.
    let open = fs::OpenOptions::new().write(true).truncate(true).open(file);
    let written = open.and_then(|mut open| open.write_all(text.as_bytes()));
    match written {
        Ok(()) => Ok(true),
        // A group that goes while its file is open gives ENODEV.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV) => Ok(false),
        Err(error) => Err(format!("{} cannot be set to {text:?}: {error}{}", file.display(), mend(&error))),
    }
}

/// "No such device": what the kernel says of a group that is gone.
const ENODEV: i32 = 19;

/// "Too many open files".
const EMFILE: i32 = 24;

/// What helps against an error.
fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run the agent as root, or give its user this part of the tree (systemd: `Delegate=yes`) and name it with \
             --cgroup-root"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount the cgroup tree writable (Docker: --privileged, or -v /sys/fs/cgroup:/sys/fs/cgroup:rw)"
        }
        _ if error.raw_os_error() == Some(EMFILE) => {
            "; each group takes one file: raise `ulimit -n` (systemd: `LimitNOFILE=`)"
        }
        _ => "",
    }
}

/// Longest first line that matters: a word and a number of 64 bits.
const LONGEST: usize = 64;

/// Makes something of a file's first line, which the kernel hands out at once.
fn first_line<T>(file: &File, make: impl FnOnce(&str) -> T) -> io::Result<T> {
    let mut bytes = [0; LONGEST];
    let read = file.read_at(&mut bytes, 0)?;
    let text = str::from_utf8(bytes.get(..read).unwrap_or_default()).unwrap_or_default();
    Ok(make(text.split('\n').next().unwrap_or_default().trim()))
}

/// Counts a group's CPU time. The file stays open, as it is read in every window and opening is four times as dear.
#[derive(Debug)]
pub struct Counter {
    file: File,
    /// What stands before the number.
    before: &'static str,
    /// Nanoseconds of a unit.
    unit: u64,
}

impl Counter {
    fn open(path: &Path, before: &'static str, unit: u64) -> Result<Counter, String> {
        let file = File::open(path).map_err(|error| format!("{}: {error}{}", path.display(), mend(&error)))?;
        Ok(Counter { file, before, unit })
    }

    /// CPU time in nanoseconds; `None` if the group is gone.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        let number = first_line(&self.file, |line| line.strip_prefix(self.before)?.parse::<u64>().ok());
        number.ok()?.map(|number| number.saturating_mul(self.unit))
    }
}
