//! Linux control groups, in which the kernel counts the resources that a class uses and applies its share.
//!
//! Cluster Reserves has resource containers and a lottery scheduler in a FreeBSD kernel (Sec. 4). On Linux a
//! class is one or more cgroups, and CPU time is divided among sibling groups in proportion to their weights.
//! The kernel has two interfaces with different paths and file names: [`V2`] has one tree for all resources,
//! and [`V1`] has one tree per controller. [`open`] chooses the interface that controls CPU time on this
//! machine. All other access goes through [`Cgroups`].
//!
//! A share is never a quota, because a quota would keep a class from using idle capacity.
//!
//! `v1` and `v2` are the interfaces, `mounts` finds them, `knob` has the files and scales of the shares, `pattern`
//! finds the groups of a class, and `memory` reads the memory limit of the process.
#![forbid(unsafe_code)]

mod knob;
mod memory;
mod mounts;
mod pattern;
mod v1;
mod v2;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use knob::{Knob, Resource};
pub use memory::memory_limit;
pub use mounts::{Opened, open};
pub use pattern::{MAX_GROUPS, Pattern, fits};
pub use v1::V1;
pub use v2::V2;

/// One of the kernel's interfaces. A group is named by its path from the root.
pub trait Cgroups {
    /// Returns the trees in which each group has a directory. Each tree is listed once, and the one with CPU
    /// shares is first.
    fn trees(&self) -> Vec<&Path>;

    /// Returns the knobs that have a controller here, each with its tree. The knob for CPU time is first and
    /// always present.
    fn knobs(&self) -> &[(&'static Knob, PathBuf)];

    /// Opens the counter of the CPU time that the group has used since it was created.
    ///
    /// # Errors
    /// The counter cannot be opened. The message says why and adds a hint.
    fn counter(&self, group: &str) -> Result<Counter, String>;

    /// Returns whether the group or one of its descendants contains a process.
    fn is_occupied(&self, group: &str) -> bool;

    /// Prepares a directory from [`missing`] to be the parent of groups.
    fn adopt_children(&self, directory: &Path);

    /// Explains why an existing group has no knob for CPU time, with a hint.
    fn why_no_share(&self, group: &str) -> String;
}

/// Returns the sorted names of the groups that match `pattern` in the tree of CPU shares.
///
/// # Errors
/// A directory cannot be listed.
pub fn find(cgroups: &dyn Cgroups, pattern: &Pattern) -> Result<Vec<String>, String> {
    cgroups.trees().first().map_or(Ok(Vec::new()), |tree| pattern.find(tree))
}

/// Returns the directories that must be created so that `group` exists, parents first.
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

/// Creates one of the [`missing`] directories.
///
/// # Errors
/// The directory cannot be created. The message says why and adds a hint.
pub fn create(cgroups: &dyn Cgroups, directory: &Path) -> Result<(), String> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("{} cannot be made: {error}{}", directory.display(), hint(&error)))
        }
        _ => {
            cgroups.adopt_children(directory);
            Ok(())
        }
    }
}

/// Removes a directory that [`create`] made. A directory that is already gone is no error.
///
/// # Errors
/// The directory contains processes or groups, or cannot be removed for another reason.
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

/// Returns the first line of a knob's file, or `None` if the file cannot be read.
pub fn read(file: &Path) -> Option<String> {
    first_line(&File::open(file).ok()?, str::to_owned).ok()
}

/// Sets a knob. Returns `Ok(false)` if there is no such file.
///
/// # Errors
/// The knob cannot be set. The message says why and adds a hint.
pub fn write(file: &Path, text: &str) -> Result<bool, String> {
    // The file is never created: only the kernel creates files in a cgroup tree.
    let open = fs::OpenOptions::new().write(true).truncate(true).open(file);
    let written = open.and_then(|mut open| open.write_all(text.as_bytes()));
    match written {
        Ok(()) => Ok(true),
        // If a group is removed while its file is open, the kernel returns ENODEV.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV) => Ok(false),
        Err(error) => Err(format!("{} cannot be set to {text:?}: {error}{}", file.display(), hint(&error))),
    }
}

/// "No such device": the kernel's error for a group that was removed.
const ENODEV: i32 = 19;

/// "Too many open files".
const EMFILE: i32 = 24;

/// Returns a hint on how to fix an error, or an empty text.
fn hint(error: &io::Error) -> &'static str {
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

/// Maximum length in bytes of a first line that is read: a word and a 64-bit number.
const LONGEST: usize = 64;

/// Applies `make` to a file's first line, which the kernel returns in one read.
fn first_line<T>(file: &File, make: impl FnOnce(&str) -> T) -> io::Result<T> {
    let mut bytes = [0; LONGEST];
    let read = file.read_at(&mut bytes, 0)?;
    let text = str::from_utf8(bytes.get(..read).unwrap_or_default()).unwrap_or_default();
    Ok(make(text.split('\n').next().unwrap_or_default().trim()))
}

/// Counter of a group's CPU time. The file stays open because it is read in every window, and opening it
/// costs four times as much as reading.
#[derive(Debug)]
pub struct Counter {
    file: File,
    /// Text in front of the number.
    before: &'static str,
    /// Nanoseconds per unit of the number.
    unit: u64,
}

impl Counter {
    fn open(path: &Path, before: &'static str, unit: u64) -> Result<Counter, String> {
        let file = File::open(path).map_err(|error| format!("{}: {error}{}", path.display(), hint(&error)))?;
        Ok(Counter { file, before, unit })
    }

    /// Returns the CPU time in nanoseconds, or `None` if the group is gone.
    pub fn read(&self) -> Option<u64> {
        let number = first_line(&self.file, |line| line.strip_prefix(self.before)?.parse::<u64>().ok());
        number.ok()?.map(|number| number.saturating_mul(self.unit))
    }
}
