//! A directory and a Unix socket that are removed when their owner is dropped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A directory of one instance. Dropping it removes the directory with its content.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    /// Makes `path`, which must not exist yet.
    pub(super) fn new(path: PathBuf) -> Result<Directory, String> {
        std::fs::create_dir(&path).map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
        // A server with another working directory needs the absolute path.
        match path.canonicalize() {
            Ok(path) => Ok(Directory(path)),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes `template` as file `name` into it, with the directories that it needs, and replaces the words
    /// between `%`.
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

    /// Returns its path as text for configuration files.
    pub(super) fn text(&self) -> Result<&str, String> {
        text(&self.0)
    }
}

/// Returns a path as text for configuration files.
fn text(path: &Path) -> Result<&str, String> {
    // These characters would end a quoted word, or have a meaning in one of the formats.
    let plain = |text: &&str| !text.contains(['"', '\'', '\\', '\n', '%', '<', '&', '$', ';', '`']);
    let fault = || format!("{}: this path has characters that configuration files cannot hold", path.display());
    path.to_str().filter(plain).ok_or_else(fault)
}

/// Maximum length of the path of a Unix socket (unix(7): 108 bytes, the last one zero).
const LONGEST_SOCKET: usize = 107;

/// Path of an instance's Unix socket, in the system's temporary directory. The run directory contains the
/// approach with its knobs, so its path may be too long for a socket. Dropping it removes the socket.
#[derive(Debug)]
pub(super) struct Socket(PathBuf);

impl Socket {
    /// Returns the socket of the instance that listens at `address`, which no other instance uses meanwhile.
    pub(super) fn of(address: SocketAddr) -> Socket {
        let name = format!("weirgate-{}-{}.sock", std::process::id(), address.port());
        Socket(std::env::temp_dir().join(name))
    }

    /// Returns its path as text for configuration files.
    ///
    /// # Errors
    /// It is too long for a socket, or has characters that configuration files cannot hold.
    pub(super) fn text(&self) -> Result<&str, String> {
        let text = text(&self.0)?;
        if text.len() > LONGEST_SOCKET {
            return Err(format!(
                "{text}: longer than the {LONGEST_SOCKET} bytes of a socket's name; set TMPDIR to a shorter directory"
            ));
        }
        Ok(text)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A server that stops in good order removes it itself.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that cannot be removed does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_goes_with_its_owner_and_its_name_is_no_longer_than_one_may_be() {
        let socket = Socket::of(([127, 0, 0, 1], 12345).into());
        let path = socket.text().expect("the system's directory is short").to_owned();
        std::fs::write(&path, "").expect("it can be made");
        drop(socket);
        assert!(!Path::new(&path).exists());
        let long = Socket(PathBuf::from("/").join("long".repeat(27)));
        let error = long.text().expect_err("108 bytes");
        assert!(error.contains("longer than the 107 bytes of a socket's name; set TMPDIR"), "{error}");
    }
}
