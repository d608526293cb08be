//! Files of an account: its credentials, the certificates, and a lock.
//!
//! Only the user of the gateway can read them. A certificate and its key are one file, so that no reader sees a
//! certificate with another key. Files appear whole: they are written under another name, and renamed. The lock
//! (`flock`) ends with the process that holds it.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use instant_acme::AccountCredentials;

/// File with the credentials of the account.
const ACCOUNT: &str = "account.json";

/// File that is locked while a process orders.
const LOCK: &str = "lock";

/// Longest file of an account, in bytes. It has about 400.
const MAX_ACCOUNT: u64 = 16 << 10;

/// Makes the folder and locks it. Returns `None` if another process has locked it.
///
/// # Errors
/// The folder cannot be used.
pub(crate) fn lock(folder: &Path) -> Result<Option<File>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("`{}` cannot be used: {error}", folder.display());
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| failed(&error))?;
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join(LOCK));
    let file = file.map_err(|error| failed(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(failed(&error)),
    }
}

/// Returns the credentials of the account, if there is one.
///
/// # Errors
/// The file cannot be read. It is not replaced, because an authority counts accounts.
pub(crate) fn account(folder: &Path) -> Result<Option<AccountCredentials>, String> {
    use std::io::Read as _;

    let path = folder.join(ACCOUNT);
    let mut bytes = Vec::new();
    match File::open(&path).and_then(|file| file.take(MAX_ACCOUNT).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("`{}` cannot be read: {error}", path.display())),
        Ok(_) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            format!(
                "`{}` is no account ({error}): restore it, or remove it to begin with a new account",
                path.display()
            )
        }),
    }
}

/// Keeps the credentials of the account.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn keep_account(folder: &Path, credentials: &AccountCredentials) -> Result<(), String> {
    let bytes = serde_json::to_vec(credentials).map_err(|error| error.to_string())?;
    write(&folder.join(ACCOUNT), &bytes)
}

/// Removes the credentials of an account that the authority does not know any more.
pub(crate) fn forget_account(folder: &Path) {
    // If it stays, the next order fails in the same way and tries again.
    let _ = std::fs::remove_file(folder.join(ACCOUNT));
}

/// Writes a file as a whole.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let new = path.with_extension("new");
    let written = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    written().map_err(|error: std::io::Error| format!("`{}` cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_are_private_and_the_lock_is_exclusive() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("a/b");
        let held = lock(&folder).expect("it can be made").expect("nobody holds it");
        assert!(lock(&folder).expect("it is there").is_none());
        drop(held);
        assert!(lock(&folder).expect("it is there").is_some());
        write(&folder.join("x.pem"), b"1").expect("it can be written");
        write(&folder.join("x.pem"), b"22").expect("it can be written");
        assert_eq!(std::fs::read(folder.join("x.pem")).expect("it is there"), b"22");
        let mode = |path: &Path| path.metadata().expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("x.pem")), mode(&folder.join(LOCK))), (0o700, 0o600, 0o600));
        assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 2);
    }

    #[test]
    fn a_broken_account_is_an_error_and_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(account(folder.path()).expect("there is none").is_none());
        write(&folder.path().join(ACCOUNT), b"{}").expect("it can be written");
        assert!(account(folder.path()).err().is_some_and(|why| why.contains("is no account")));
        assert!(folder.path().join(ACCOUNT).exists());
        forget_account(folder.path());
        assert!(account(folder.path()).expect("there is none").is_none());
    }
}
