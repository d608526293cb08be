//! A server with all its children, which ends when this process does, however that happens.
//!
//! The server runs in a process group of its own under a shell that reads from a pipe. Nothing is ever
//! written to it: the read ends when this process drops the value, fails, is interrupted or is killed, and
//! then the shell kills the group, itself included. If the server ends first the group ends too.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use weirgate_emulator::clock;

/// Longest start of a server: far more than any needs, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks at what nothing announces.
const LOOK: Duration = Duration::from_millis(20);

/// The shell that guards the server.
const GUARD: &str = r#"{ "$@"; kill -KILL 0; } & read -r _; kill -KILL 0"#;

/// A running server.
pub(crate) struct Process {
    guard: Child,
}

impl Process {
    /// Starts `command` on `core`, its output in the file `log`, and waits until it accepts at `address`.
    pub(crate) fn start(command: &[&Path], core: usize, log: &Path, address: SocketAddr) -> Result<Process, String> {
        let fault = |e: std::io::Error| format!("{}: {e}", log.display());
        let out = File::create(log).map_err(fault)?;
        let err = out.try_clone().map_err(fault)?;
        let guard = Command::new("taskset")
            .args(["--cpu-list", &core.to_string(), "sh", "-c", GUARD, "guard"])
            .args(command)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|e| format!("cannot start taskset: {e}"))?;
        let mut process = Process { guard };
        let start = clock::now();
        while TcpStream::connect(address).is_err() {
            if process.ended() || clock::now() - start > clock::nanos(PATIENCE) {
                let line: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
                let said = std::fs::read_to_string(log).unwrap_or_default();
                return Err(format!("`{}` does not serve {address}. It said:\n{said}", line.join(" ")));
            }
            clock::pause(LOOK);
        }
        Ok(process)
    }

    fn ended(&mut self) -> bool {
        !matches!(self.guard.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // The guard ends at once; what it said is of no interest.
        let _ = self.guard.wait();
    }
}

/// A directory that goes when this value does.
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Makes an empty one that servers may read, whichever user they run as.
    pub(crate) fn new() -> Result<Directory, String> {
        let path = std::env::temp_dir().join(format!("weirgate-real-servers-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Directory(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it, with the directories that it needs.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let file = self.0.join(name);
        let written =
            std::fs::create_dir_all(file.parent().unwrap_or(&self.0)).and_then(|()| std::fs::write(&file, text));
        written.map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(file)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left behind in the system's temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
