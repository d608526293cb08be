//! A directory that goes when its owner does, and the files in it.

use std::path::{Path, PathBuf};

/// A directory of our own. Dropped, it is removed with all that is in it.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    /// Makes `path`, which must not be there yet.
    pub(super) fn new(path: PathBuf) -> Result<Directory, String> {
        std::fs::create_dir(&path).map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
        // Servers that run elsewhere in the file system need the whole path.
        match path.canonicalize() {
            Ok(path) => Ok(Directory(path)),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes `template` as file `name` in it, with the directories that it needs, and with the words between
    /// `%` replaced.
    pub(super) fn write(&self, name: &str, template: &str, words: &[(&str, &str)]) -> Result<(), String> {
        let mut text = template.to_owned();
        for (word, value) in words {
            text = text.replace(&format!("%{word}%"), value);
        }
        let file = self.0.join(name);
        let written =
            std::fs::create_dir_all(file.parent().unwrap_or(&self.0)).and_then(|()| std::fs::write(&file, text));
        written.map_err(|error| format!("{} cannot be written: {error}", file.display()))
    }

    /// Its path as text for configuration files.
    pub(super) fn text(&self) -> Result<&str, String> {
        // What would end a quoted word there, or mean something else in one of the formats.
        let plain = |text: &&str| !text.contains(['"', '\'', '\\', '\n', '%', '<', '&', '$', ';', '`']);
        let fault = || format!("{}: this path has characters that configuration files cannot hold", self.0.display());
        self.0.to_str().filter(plain).ok_or_else(fault)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
