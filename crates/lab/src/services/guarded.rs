//! A server with all its child processes, which ends with the lab in every case.
//!
//! Servers consist of several processes: Apache has a parent and a child, PHP a master and a pool. They run in a
//! process group of their own, led by a shell that reads from a pipe to which nothing is ever written. The read ends
//! when the lab drops the value, fails, is interrupted or is killed. The shell then kills the group, including
//! itself. If the server exits first, its status is written to a file and the group ends too.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use weirgate_emulator::clock;

use crate::process;

/// The shell program. Its `$0` is the file for the server's process id and, when the server exits, its
/// status. A server may have made a process group of its own, as PHP's process coordinator does, and that group
/// is killed first.
const GUARD: &str = r#"
end() { kill -s KILL -- "-$1" 2>/dev/null; kill -s KILL 0; }
{ "$@" & echo $! >"$0"; wait $!; echo $? >>"$0"; end $!; } &
read -r _
read -r server <"$0"
end "$server"
"#;

/// Polling interval for a state that no event announces, short enough to go unnoticed.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// Maximum time for a server to stop when asked to. It covers its last requests, for which the lab has
/// usually waited already, and the clean-up of a virtual machine. Also the maximum time until killed
/// processes are gone.
const PATIENCE: Duration = Duration::from_secs(15);

/// Maximum time until a server listens on its socket. A pool of PHP forks its processes first, and a database reads its
/// files.
const STARTING: Duration = Duration::from_secs(60);

/// A running server. Dropping it kills it with all its child processes and waits for their end.
#[derive(Debug)]
pub(super) struct Guarded {
    name: String,
    guard: Child,
    /// File with process id and status of the server.
    state: PathBuf,
    /// File with standard output and error.
    pub(super) log: PathBuf,
}

impl Guarded {
    /// Starts `words` in `directory` on `cpu`, or anywhere if it is `None`. Its output goes to `name.out` there.
    pub(super) fn start<S: AsRef<OsStr>>(
        name: &str,
        words: &[S],
        cpu: Option<usize>,
        directory: &Path,
    ) -> Result<Guarded, String> {
        let log = directory.join(format!("{name}.out"));
        let state = directory.join(format!("{name}.state"));
        let spawn = || -> io::Result<Child> {
            let output = File::create(&log)?;
            let mut command = Command::new("sh");
            command.args(["-c", GUARD]).arg(&state).args(words).current_dir(directory).process_group(0);
            command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
            process::on_cpu(cpu, || command.spawn())
        };
        match spawn() {
            Ok(guard) => Ok(Guarded { name: name.to_owned(), guard, state, log }),
            Err(error) => Err(format!("{name} cannot be started in {}: {error}", directory.display())),
        }
    }

    /// Waits until it listens on the Unix socket `path`.
    pub(super) fn await_socket(&mut self, path: &str) -> Result<(), String> {
        let start = clock::now();
        while UnixStream::connect(path).is_err() {
            if self.ended().is_some() || clock::now() - start > clock::nanos(STARTING) {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("{} does not listen:\n{said}", self.name));
            }
            clock::pause(LOOK);
        }
        Ok(())
    }

    /// Returns a message with its status if it has exited by itself.
    pub(super) fn ended(&mut self) -> Option<String> {
        match self.guard.try_wait() {
            Ok(None) => None,
            Ok(Some(_)) => {
                let status = self.lines().nth(1).unwrap_or_else(|| "unknown".to_owned());
                Some(format!("{} has ended with status {status}", self.name))
            }
            Err(error) => Some(format!("{} cannot be watched: {error}", self.name)),
        }
    }

    /// Returns whether it exited by itself with status 0.
    pub(super) fn succeeded(&self) -> bool {
        self.lines().nth(1).is_some_and(|status| status == "0")
    }

    /// Returns the user and system time of the server and its child processes.
    pub(super) fn cpu_time(&self) -> Duration {
        // An unreadable `/proc` causes an error much earlier.
        process::cpu_time(self.guard.id()).unwrap_or_default()
    }

    /// Sends `signal` to the server process alone and waits for its end. The signal must be the one upon
    /// which the server finishes its requests.
    pub(super) fn stop(&mut self, signal: Signal) -> Result<(), String> {
        let id = self.lines().next().and_then(|id| Pid::from_raw(id.parse().ok()?));
        let id =
            id.ok_or_else(|| format!("{} has not written its process id to {}", self.name, self.state.display()))?;
        let start = clock::now();
        if self.ended().is_none() {
            match kill_process(id, signal) {
                // `SRCH`: it has just exited by itself.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(format!("{} cannot be asked to stop: {error}", self.name)),
            }
        }
        while self.ended().is_none() {
            if clock::now() - start > clock::nanos(PATIENCE) {
                return Err(format!("{} does not stop within {} s of being asked", self.name, PATIENCE.as_secs()));
            }
            clock::pause(LOOK);
        }
        Ok(())
    }

    /// Stops the server with all its child processes where they are, or lets them go on. The guard goes on, so that
    /// they end with the lab in any case.
    pub(super) fn freeze(&self, frozen: bool) -> Result<(), String> {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        let Some(Ok(id)) = self.lines().next().map(|id| id.parse()) else { return Ok(()) };
        process::signal_family(id, signal).map_err(|error| format!("{} takes no signal: {error}", self.name))
    }

    /// Returns the guard's process group, and the server's if it has made one.
    fn groups(&self) -> Vec<String> {
        self.lines().take(1).chain([self.guard.id().to_string()]).collect()
    }

    fn lines(&self) -> impl Iterator<Item = String> + use<> {
        let text = std::fs::read_to_string(&self.state).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let groups = self.groups();
        drop(self.guard.stdin.take());
        // The guard ends at once, and its output is of no interest.
        let _ = self.guard.wait();
        // The other processes die by the same signal a moment later. Until then they may still write files.
        let start = clock::now();
        while lives(&groups) && clock::now() - start < clock::nanos(PATIENCE) {
            clock::pause(LOOK);
        }
    }
}

/// Returns whether one of these groups has a living process. Zombies count as dead, because they only wait for init.
fn lives(groups: &[String]) -> bool {
    let living = |entry: io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        // The fields after the name in parentheses are state, parent and group (proc(5)).
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?;
        let group = fields.nth(1)?;
        (state != "Z" && state != "X" && groups.iter().any(|of| of == group)).then_some(())
    };
    std::fs::read_dir("/proc").is_ok_and(|mut entries| entries.any(|entry| living(entry).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::directory::Directory;

    #[test]
    fn a_family_is_gone_when_dropped_also_one_with_a_group_of_its_own() {
        for group in ["", "exec setsid "] {
            let path = std::env::temp_dir().join(format!("weirgate-guarded-{}", std::process::id()));
            let directory = Directory::new(path).expect("it is made");
            let words = ["sh", "-c", &format!("{group}sh -c 'sleep 60 & sleep 60 & echo started; wait'")];
            let server = Guarded::start("family", &words, None, directory.path()).expect("it starts");
            while std::fs::read_to_string(&server.log).expect("it is there") != "started\n" {
                clock::pause(LOOK);
            }
            let groups = server.groups();
            assert_eq!(lives(&groups[..1]), !group.is_empty(), "its own group");
            assert!(lives(&groups[1..]));
            drop(server);
            assert!(!lives(&groups));
        }
    }

    #[test]
    fn it_tells_how_it_ended() {
        let directory = Directory::new(std::env::temp_dir().join(format!("weirgate-ended-{}", std::process::id())));
        let directory = directory.expect("it is made");
        let mut server = Guarded::start("peer", &["sh", "-c", "exit 3"], None, directory.path()).expect("it starts");
        let said = loop {
            match server.ended() {
                Some(said) => break said,
                None => clock::pause(LOOK),
            }
        };
        assert_eq!(said, "peer has ended with status 3");
        assert!(!server.succeeded());
    }
}
