//! Real processes for tests: the gateway's own binary and programs of Debian packages. Each has its
//! configuration and output in a temporary directory, listens on a free port, and is gone when the test
//! ends.

use std::fs::{File, Permissions};
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// Time limit of a server's start: ten times the time that a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory that is removed with this value.
pub(crate) struct Directory(TempDir);

impl Directory {
    pub(crate) fn new() -> Directory {
        // Servers that give up their rights as root must be able to enter it.
        let open = Permissions::from_mode(0o755);
        Directory(tempfile::Builder::new().permissions(open).tempdir().expect("a directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.path().join(name);
        std::fs::write(&file, text).expect("the temporary directory is writable");
        file
    }
}

/// Waits until `condition` holds. Returns false if it never does.
pub(crate) fn becomes_true(condition: impl FnMut() -> bool) -> bool {
    weirgate_clock::becomes_true(PATIENCE, condition)
}

/// A running server.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, with its output in `directory`, and waits until it accepts at `address`.
    pub(crate) fn start(command: Command, directory: &Directory, address: SocketAddr) -> Process {
        Process::start_until(command, directory, &address.port().to_string(), || TcpStream::connect(address).is_ok())
    }

    /// Starts `command`, with its output in `directory` under a `name`, and waits until it `serves`.
    pub(crate) fn start_until(
        mut command: Command,
        directory: &Directory,
        name: &str,
        serves: impl Fn() -> bool,
    ) -> Process {
        let log = directory.path().join(format!("output-{name}"));
        let out = File::create(&log).expect("the temporary directory is writable");
        let err = out.try_clone().expect("a file handle can be copied");
        // A process group of its own, so that its children end with it.
        command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().expect("the program starts");
        let mut process = Process { child, log };
        let up = becomes_true(|| serves() || !process.alive());
        assert!(up && process.alive(), "{command:?} does not serve: {}", process.output());
        process
    }

    /// Sends it `signal` (such as `TERM`) and waits for its end.
    ///
    /// # Panics
    /// Panics if it does not end.
    pub(crate) fn stop(&mut self, signal: &str) -> ExitStatus {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().expect("every system has kill");
        assert!(sent.success(), "signal {signal} cannot be sent to {id}");
        let ended = becomes_true(|| !self.alive());
        assert!(ended, "it runs on after signal {signal}: {}", self.output());
        self.child.wait().expect("it has ended")
    }

    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It and its workers are ours and hold no data to save.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command that runs a policy file.
pub(crate) fn weirgate(policy: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.arg("run").arg(policy);
    command
}

/// Returns a program of a Debian package. If it is missing and the environment allows that, prints so and
/// returns `None`.
///
/// # Panics
/// Panics if it is missing otherwise: a test that silently tests nothing is worse than one that fails.
pub(crate) fn program(name: &str) -> Option<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian installs servers in a directory that is not in every user's path.
    let found = std::env::split_paths(&path).chain(["/usr/sbin".into()]).map(|d| d.join(name)).find(|f| f.exists());
    if found.is_none() {
        let skip = std::env::var_os("WEIRGATE_SKIP_PACKAGES").is_some_and(|value| value == "1");
        assert!(skip, "{name} is missing: run `cargo xtask packages`, or set WEIRGATE_SKIP_PACKAGES=1 to do without");
        say(&format!("SKIPPED: {name} is not installed"));
    }
    found.map(Command::new)
}

/// Returns an address on loopback on which no process listens, another one each time.
pub(crate) fn free_address() -> SocketAddr {
    weirgate_emulator::free_address().expect("a free port")
}

/// Prints a line that the test runner does not capture: figures and skipped tests.
pub(crate) fn say(line: &str) {
    // A closed standard error does not stop a test.
    let _ = writeln!(std::io::stderr(), "{line}");
}
