//! Files that are written as a whole: a reader sees the old or the new one.

use std::fs::{self, DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Mode of keys and of the index.
pub(crate) const SECRET: u32 = 0o600;

/// Mode of certificates and lists.
pub(crate) const PUBLIC: u32 = 0o644;

/// Creates a folder that only its owner can enter, and its parents.
pub(crate) fn folder(path: &Path) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file, in place of one that is there.
pub(crate) fn write(path: &Path, mode: u32, text: &str) -> Result<(), String> {
    let new = path.with_added_extension("new");
    let written = || {
        // One that a broken attempt has left would keep its mode.
        let _ = fs::remove_file(&new);
        let mut file = File::options().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    written().map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
