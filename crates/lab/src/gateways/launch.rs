//! How every peer is started: its configuration written and checked by its own checker, a port, patience.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Setting;
use crate::process::{Process, cpu_time};
use weirgate_emulator::clock;

/// Longest start: Envoy waits for its first health checks, on a busy machine that takes seconds.
const START: Duration = Duration::from_secs(20);

/// Longest time in which an order must be taken in: nginx starts a worker for it.
const ORDER: Duration = Duration::from_secs(10);

/// Between two looks at what nothing announces.
const LOOK: Duration = Duration::from_millis(10);

/// Starts before a taken port is given up. The port was free when it was drawn; that somebody takes one of some
/// 28,000 in the milliseconds until the peer binds it happens, three times running it does not.
const STARTS: u32 = 3;

/// Bytes of a log that are repeated in an error: its last words.
const LAST_WORDS: u64 = 2000;

/// A peer's process that serves. Dropped, it is asked to end, and killed if it does not.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    log: PathBuf,
    /// Always there until it is dropped.
    process: Option<Process>,
}

impl Peer {
    /// Starts what `configure` makes of a free address, and waits until it accepts connections there.
    ///
    /// # Errors
    /// What `configure` says; or it ended or did not accept in time: with its last words.
    pub(super) fn start(
        name: &str,
        setting: &Setting<'_>,
        configure: impl Fn(SocketAddr) -> Result<Command, String>,
    ) -> Result<Peer, String> {
        most_descriptors();
        let log = absolute(setting.directory)?.join(format!("{name}.log"));
        let mut start = 1;
        loop {
            let address = free_address()?;
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

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, Process::id)
    }

    /// CPU time of all its processes.
    pub(super) fn cpu_time(&self) -> Duration {
        // A process whose times cannot be read has just ended; the trial finds that out by itself.
        cpu_time(self.id()).unwrap_or_default()
    }

    /// Has it ended by itself? Then why.
    pub(super) fn ended(&mut self) -> Option<String> {
        let why = self.process.as_mut()?.ended().ok().flatten()?;
        Some(format!("{why}; its last words:\n{}", last_words(&self.log)))
    }

    /// Waits until an order has been taken in.
    ///
    /// # Errors
    /// What `done` says; or it ended or was not done in time: with its last words.
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
                return Err(format!("not within {patience:?}: {what}; its last words:\n{}", last_words(&self.log)));
            }
            clock::pause(LOOK);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Killed at once, nginx would leave its worker behind: it is asked first.
        if let Some(process) = self.process.take() {
            // What does not end is killed all the same; there is nobody to tell.
            let _ = process.stop();
        }
    }
}

/// Writes a configuration file into the setting's directory; its absolute path.
pub(super) fn write(setting: &Setting<'_>, name: &str, text: &str) -> Result<PathBuf, String> {
    let file = absolute(setting.directory)?.join(name);
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

/// Makes a directory in the setting's directory; its absolute path.
pub(super) fn subdirectory(setting: &Setting<'_>, name: &str) -> Result<PathBuf, String> {
    let place = absolute(setting.directory)?.join(name);
    std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    Ok(place)
}

/// Lets a peer check its own configuration.
///
/// # Errors
/// It refuses it, with its words.
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

/// What a program says of its version: everything on standard output and error.
pub(super) fn version(program: &Path, option: &str) -> Result<String, String> {
    let output = Command::new(program).arg(option).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// A path for a Unix socket: in the system's temporary directory, as such a path has at most 107 bytes and that of
/// results may have more. The file goes with this value.
#[derive(Debug)]
pub(super) struct SocketPath(pub(super) PathBuf);

impl SocketPath {
    /// One that nobody else in this process has.
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

/// An address on loopback that is free now.
fn free_address() -> Result<SocketAddr, String> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map_err(|error| format!("no port is free on loopback: {error}"))
}

/// Lets this process, and what it starts, open as many files as the system allows: a queue of a few seconds at a few
/// thousand requests a second takes more than the usual thousand.
fn most_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Refused, it stays as it is; a peer that runs out of descriptors says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The end of a log.
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
