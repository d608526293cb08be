//! A directory that goes when its owner does, and the files in it; and a Unix socket that does.

use std::net::SocketAddr;
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
        text(&self.0)
    }
}

/// A path as text for configuration files.
fn text(path: &Path) -> Result<&str, String> {
    // What would end a quoted word there, or mean something else in one of the formats.
    let plain = |text: &&str| !text.contains(['"', '\'', '\\', '\n', '%', '<', '&', '$', ';', '`']);
    let fault = || format!("{}: this path has characters that configuration files cannot hold", path.display());
    path.to_str().filter(plain).ok_or_else(fault)
}

/// The longest name of a Unix socket (unix(7): 108 bytes, the last one zero).
const LONGEST_SOCKET: usize = 107;

/// The path of a Unix socket of an instance: in the system's directory for temporary files, as that of the results,
/// which has the approach with its knobs in it, may be longer than a socket's name. Dropped, the socket is removed.
#[derive(Debug)]
pub(super) struct Socket(PathBuf);

impl Socket {
    /// That of the instance that listens at `address`: no other has it meanwhile.
    pub(super) fn of(address: SocketAddr) -> Socket {
        let name = format!("weirgate-{}-{}.sock", std::process::id(), address.port());
        Socket(std::env::temp_dir().join(name))
    }

    /// Its path as text for configuration files.
    ///
    /// # Errors
    /// It is too long for a socket, or cannot stand there.
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
        // A server that has ended in good order has removed it itself.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed does no harm.
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
