//! Files of an account: its credentials, the certificates, and a lock.
//!
//! Only the user of the gateway can read them. A certificate and its key are one file, so that no reader sees a
//! certificate with another key. [`weirgate_files`] replaces them as a whole, and locks the folder.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use instant_acme::AccountCredentials;
use weirgate_files::{PRIVATE, make_private_folder, replace_durably};

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
    let locked = make_private_folder(folder).and_then(|()| weirgate_files::lock(&folder.join(LOCK)));
    locked.map_err(|error| format!("`{}` cannot be used: {error}", folder.display()))
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
    replace_durably(path, PRIVATE, bytes).map_err(|error| format!("`{}` cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_are_private() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("a/b");
        let _held = lock(&folder).expect("it can be made").expect("no other process holds it");
        write(&folder.join("x.pem"), b"1").expect("it can be written");
        let mode = |path: &Path| path.metadata().expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("x.pem"))), (0o700, 0o600));
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
