//! The authority's files, with errors that name them.

use std::fs;
use std::path::Path;

/// Creates a folder that only its owner can enter, and its parents.
pub(crate) fn folder(path: &Path) -> Result<(), String> {
    weirgate_files::make_private_folder(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file, in place of one that is there.
pub(crate) fn write(path: &Path, mode: u32, text: &str) -> Result<(), String> {
    let written = weirgate_files::replace_durably(path, mode, text.as_bytes());
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
