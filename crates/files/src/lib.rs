//! Files that a process keeps: written as a whole, in folders of its own, and locked against a second process.
//!
//! A file is replaced by a rename (rename(2)): the text goes to a new file of the same folder, which then takes the
//! name. So a reader sees the old or the new file, never a part, and a new file never has the mode of an old one.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Mode of files that only their owner may read.
pub const PRIVATE: u32 = 0o600;

/// Mode of files that all users may read.
pub const PUBLIC: u32 = 0o644;

/// Mode of files that a user asked for, such as reports. The process's umask takes its bits away.
pub const ORDINARY: u32 = 0o666;

/// Writes a file in place of one that may be there. After a loss of power the file may be damaged.
///
/// # Errors
/// The file cannot be written. An old one is unchanged.
pub fn replace(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    write(path, mode, bytes, false)
}

/// Writes a file in place of one that may be there, and forces it and its folder to the disk, so that it survives a
/// loss of power.
///
/// # Errors
/// The file cannot be written. An old one is unchanged, unless the folder cannot be forced to the disk.
pub fn replace_durably(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    write(path, mode, bytes, true)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder)?.sync_all() {
        // Some file systems cannot force a folder.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        synced => synced,
    }
}

fn write(path: &Path, mode: u32, bytes: &[u8], durably: bool) -> io::Result<()> {
    let new = path.with_added_extension("new");
    // One that a crash has left may have another mode.
    if let Err(error) = fs::remove_file(&new)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        if durably {
            file.sync_all()?;
        }
        fs::rename(&new, path)
    };
    written().inspect_err(|_| {
        // The reported reason is that of the write.
        let _ = fs::remove_file(&new);
    })
}

/// Makes a folder that only its owner can enter, and its missing parents. One that is there keeps its mode.
///
/// # Errors
/// The folder cannot be made.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Locks the file at `path` (flock(2)), and creates it if it is missing. Returns `None` if another process has locked
/// it. The kernel releases the lock when the file is dropped, and when the process ends in any way.
///
/// # Errors
/// The file cannot be opened or locked.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(PRIVATE).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_with_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("learned.json");
        fs::write(folder.path().join("learned.json.new"), "left by a crash").expect("a file");
        replace(&path, PRIVATE, b"1").expect("written");
        let mut reader = File::open(&path).expect("a file");
        replace_durably(&path, PUBLIC, b"22").expect("written");
        assert_eq!((fs::read(&path).expect("it is there"), mode(&path)), (b"22".to_vec(), 0o644));
        let mut seen = Vec::new();
        io::Read::read_to_end(&mut reader, &mut seen).expect("the old file is still open");
        assert_eq!(seen, b"1");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "no other file is left");
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(replace(&folder.path().join("none/file"), PRIVATE, b"1").is_err());
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).expect("a folder");
        assert!(replace(&taken, PRIVATE, b"1").is_err(), "a folder is not replaced by a file");
        assert!(taken.is_dir());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "no other file is left");
    }

    #[test]
    fn a_lock_is_exclusive_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let private = folder.path().join("a/b");
        make_private_folder(&private).expect("it can be made");
        let path = private.join("lock");
        let held = lock(&path).expect("it can be locked");
        assert!(held.is_some() && lock(&path).expect("it is there").is_none());
        drop(held);
        assert!(lock(&path).expect("it is there").is_some());
        assert_eq!((mode(&private), mode(&path)), (0o700, 0o600));
    }
}
