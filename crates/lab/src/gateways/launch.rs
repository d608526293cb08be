//! Starts a peer: writes its configuration, runs its own checker on it, finds a port, and waits until it serves.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Setting;
use crate::process::{Process, cpu_time};
use weirgate_emulator::{clock, free_address};

/// Maximum time for a start. Envoy waits for its first health checks, which takes seconds on a busy machine.
const START: Duration = Duration::from_secs(20);

/// Maximum time until a peer has applied a command. nginx starts a worker for it.
const ORDER: Duration = Duration::from_secs(10);

/// Polling interval for a state that no event announces.
const LOOK: Duration = Duration::from_millis(10);

/// Maximum number of starts if the port is taken. The port was free when it was drawn, but another process
/// can take one of about 28,000 ports in the milliseconds until the peer binds it. Three collisions in a
/// row do not occur in practice.
const STARTS: u32 = 3;

/// Number of bytes from the end of a log that an error message quotes.
const LAST_WORDS: u64 = 2000;

/// A serving process of a peer. Dropping it asks the process to stop, and kills it if it does not.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    log: PathBuf,
    /// `Some` until it is dropped.
    process: Option<Process>,
}

impl Peer {
    /// Starts the command that `configure` returns for a free address, and waits until it accepts
    /// connections there.
    ///
    /// # Errors
    /// `configure` fails, or the process exits or does not accept in time. The error then quotes the end of its log.
    pub(super) fn start(
        name: &str,
        setting: &Setting<'_>,
        configure: impl Fn(SocketAddr) -> Result<Command, String>,
    ) -> Result<Peer, String> {
        max_descriptors();
        let log = absolute(setting.directory)?.join(format!("{name}.log"));
        let mut start = 1;
        loop {
            let address = free_address().map_err(|error| format!("no port is free on loopback: {error}"))?;
            let mut command = configure(address)?;
            let process = Process::start(name, &mut command, setting.cpu, &log).map_err(|error| error.to_string())?;
            let mut peer = Peer { address, log: log.clone(), process: Some(process) };
            match peer.wait_until("it accepts connections", START, |_| Ok(TcpStream::connect(address).is_ok())) {
                Ok(()) => return Ok(peer),
                Err(why) if start < STARTS && why.contains("in use") => start += 1,
                Err(why) => return Err(why),
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, Process::id)
    }

    pub(super) fn cpu_time(&self) -> Duration {
        // A process without readable times has just exited, which the trial notices by itself.
        cpu_time(self.id()).unwrap_or_default()
    }

    /// Returns why the process has exited by itself, if it has.
    pub(super) fn ended(&mut self) -> Option<String> {
        let why = self.process.as_mut()?.ended().ok().flatten()?;
        Some(format!("{why}; its last output:\n{}", last_words(&self.log)))
    }

    /// Waits until a command has been applied.
    ///
    /// # Errors
    /// `done` fails, or the process exits or is not done in time. The error then quotes the end of its log.
    pub(super) fn wait_for_order(
        &mut self,
        what: &str,
        done: impl FnMut(&Peer) -> Result<bool, String>,
    ) -> Result<(), String> {
        self.wait_until(what, ORDER, done)
    }

    fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        mut done: impl FnMut(&Peer) -> Result<bool, String>,
    ) -> Result<(), String> {
        let begun = clock::now();
        loop {
            if let Some(why) = self.ended() {
                return Err(why);
            }
            if done(self)? {
                return Ok(());
            }
            if clock::now() - begun > clock::nanos(patience) {
                return Err(format!("not within {patience:?}: {what}; its last output:\n{}", last_words(&self.log)));
            }
            clock::pause(LOOK);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It is asked first, because nginx would leave its worker behind if it were killed at once.
        if let Some(process) = self.process.take() {
            // A process that does not stop is killed anyway, and `drop` has no caller to report an error to.
            let _ = process.stop();
        }
    }
}

/// Writes a configuration file into the setting's directory and returns its absolute path.
pub(super) fn write(setting: &Setting<'_>, name: &str, text: &str) -> Result<PathBuf, String> {
    let file = absolute(setting.directory)?.join(name);
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

/// Makes a directory in the setting's directory and returns its absolute path.
pub(super) fn subdirectory(setting: &Setting<'_>, name: &str) -> Result<PathBuf, String> {
    let place = absolute(setting.directory)?.join(name);
    std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    Ok(place)
}

/// Runs a peer's own check of its configuration.
///
/// # Errors
/// The peer rejects its configuration. The error quotes its message.
pub(super) fn check(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let program = command.get_program().display();
    let output = output.map_err(|error| format!("{program} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = [output.stdout, output.stderr].concat();
    Err(format!("{program} refuses its configuration:\n{}", String::from_utf8_lossy(&words).trim()))
}

/// Returns the program's output for its version option, from standard output and error.
pub(super) fn version(program: &Path, option: &str) -> Result<String, String> {
    let output = Command::new(program).arg(option).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// A path for a Unix socket in the system's temporary directory. Such a path has at most 107 bytes, and the
/// path of a run directory may be longer. Dropping the value removes the file.
#[derive(Debug)]
pub(super) struct SocketPath(pub(super) PathBuf);

impl SocketPath {
    /// Returns a path that is unique in this process.
    pub(super) fn new() -> SocketPath {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weirgate-lab-{}-{}.sock", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        SocketPath(std::env::temp_dir().join(name))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        // The peer may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(super) fn absolute(directory: &Path) -> Result<PathBuf, String> {
    std::path::absolute(directory).map_err(|error| format!("{}: {error}", directory.display()))
}

/// Raises the limit on open files of this process and its children as far as the system allows. A queue of
/// a few seconds at a few thousand requests/s needs more than the usual thousand.
fn max_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the limit stays, and a peer that runs out of descriptors reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Returns the end of a log.
fn last_words(log: &Path) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)))?;
        file.take(LAST_WORDS).read_to_end(&mut text)
    });
    match read {
        Ok(0) => format!("none in {}", log.display()),
        Ok(_) => String::from_utf8_lossy(&text).trim().to_owned(),
        Err(error) => format!("{}: {error}", log.display()),
    }
}
