//! Programs that a trial starts: their CPU, their output, and their end with the trial.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use weirgate_emulator::clock;

/// Restricts the calling thread, and all that it starts from now on, to CPU number `cpu`.
///
/// # Errors
/// There is no such CPU, or this process may not use it.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Runs `start` on CPU number `cpu`, or anywhere if it is `None`. The threads and programs that it starts
/// stay there from their first instruction on.
///
/// # Errors
/// Those of [`pin`] and of `start`.
pub fn on_cpu<T: Send>(cpu: Option<usize>, start: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(cpu) = cpu else { return start() };
    std::thread::scope(|scope| {
        let pinned = scope.spawn(|| pin(cpu).and_then(|()| start()));
        pinned.join().unwrap_or_else(|_| Err(io::Error::other("the starting thread has panicked")))
    })
}

/// Returns the CPUs that this thread may use.
///
/// # Errors
/// The system call fails.
pub fn cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// A running program. Dropping it kills the program and waits for its end. If this process is killed, the program is
/// asked to stop.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// A shell that reads from a pipe. A line tells it that the program has ended.
    guard: Child,
}

/// The program of the guard. Its `$0` is the process id of the guarded program. The pipe ends without a line if this
/// process dies.
const GUARD: &str = r#"read -r _ || kill "$0" 2>/dev/null"#;

/// Maximum time for a program to stop after it is asked to.
const PATIENCE: Duration = Duration::from_secs(10);

/// Polling interval for its end, short enough to go unnoticed.
const LOOK: Duration = Duration::from_millis(10);

impl Process {
    /// Starts `command` on `cpu`, or anywhere if it is `None`. Standard output and error go to `log`.
    ///
    /// # Errors
    /// The program is missing or cannot be started, or `log` cannot be written.
    pub fn start(name: &str, command: &mut Command, cpu: Option<usize>, log: &Path) -> io::Result<Process> {
        let output = File::create(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut child = on_cpu(cpu, || command.spawn()).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{name}: {} cannot be started: {error}", command.get_program().display()),
            )
        })?;
        // In a group of its own, because an interrupt from the terminal goes to the whole group.
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD]).arg(child.id().to_string()).process_group(0);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        match guard.spawn() {
            Ok(guard) => Ok(Process { name: name.to_owned(), child, guard }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(io::Error::new(error.kind(), format!("{name}: sh cannot be started to guard it: {error}")))
            }
        }
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns a message with its exit status if it has exited by itself.
    ///
    /// # Errors
    /// The system call fails.
    pub fn ended(&mut self) -> io::Result<Option<String>> {
        Ok(self.child.try_wait()?.map(|status| format!("{} has ended: {status}", self.name)))
    }

    /// Asks it to stop, and kills it if it does not stop in time.
    ///
    /// # Errors
    /// A system call fails.
    pub fn stop(mut self) -> io::Result<()> {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32)
            && self.child.try_wait()?.is_none()
        {
            kill_process(pid, Signal::TERM)?;
            let asked = clock::now();
            while self.child.try_wait()?.is_none() && clock::now() - asked < clock::nanos(PATIENCE) {
                clock::pause(LOOK);
            }
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Killing a process that has already exited fails and is not needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The guard may have ended, if somebody killed it.
        if let Some(mut pipe) = self.guard.stdin.take() {
            let _ = pipe.write_all(b"\n");
        }
        let _ = self.guard.wait();
    }
}

/// Returns the user and system time of a process, of all its living descendants, and of the children for
/// which they have waited, from `/proc`.
///
/// # Errors
/// `/proc` cannot be read. A process that exits during the call counts as zero.
pub fn cpu_time(id: u32) -> io::Result<Duration> {
    let tick = Duration::from_secs(1) / rustix::param::clock_ticks_per_second() as u32;
    let of = |(id, _, own, ended): (u32, u32, u32, u32)| (tick * own).max(threads(id)) + tick * ended;
    Ok(family(id)?.into_iter().map(of).sum())
}

/// Sends `signal` to a process and to all its living descendants.
///
/// # Errors
/// `/proc` cannot be read, or the signal is not allowed. A process that exits during the call does not count.
pub fn signal_family(id: u32, signal: Signal) -> io::Result<()> {
    for (id, ..) in family(id)? {
        let Some(pid) = Pid::from_raw(id as i32) else { continue };
        match kill_process(pid, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns what [`stat`] says of a process and of all its living descendants.
fn family(id: u32) -> io::Result<Vec<(u32, u32, u32, u32)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()))
            && let Ok(text) = std::fs::read_to_string(entry.path().join("stat"))
            && let Some(stat) = stat(&text)
        {
            all.push(stat);
        }
    }
    let mut family = vec![id];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(all.iter().filter(|(_, of, ..)| *of == parent).map(|(id, ..)| *id));
        next += 1;
    }
    all.retain(|(id, ..)| family.contains(id));
    Ok(all)
}

/// Returns the CPU time of a process's living threads to the nanosecond (`schedstat`, sched-stats of the
/// kernel's documentation). Ticks are too coarse for a pool of a hundred processes that have run for only a
/// few ticks each.
fn threads(id: u32) -> Duration {
    let nanos = |entry: io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    };
    std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().filter_map(nanos).sum()
}

/// Returns process id, parent id, the CPU ticks of the process and those of children for which it has
/// waited, from a line of `/proc/*/stat` (proc(5)).
fn stat(text: &str) -> Option<(u32, u32, u32, u32)> {
    // The name is in parentheses and may contain anything.
    let (id, rest) = text.split_once(" (")?;
    let fields: Vec<&str> = rest.rsplit_once(") ")?.1.split(' ').collect();
    let number = |place: usize| fields.get(place)?.parse::<u32>().ok();
    Some((id.parse().ok()?, number(1)?, number(11)? + number(12)?, number(13)? + number(14)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_may_contain_anything() {
        let text = "17 (a) b (c) S 4 17 17 0 -1 4194560 1 0 0 0 250 50 20 5 20 0 1 0 100 0 0";
        assert_eq!(stat(text), Some((17, 4, 300, 25)));
        assert_eq!(stat("nonsense"), None);
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let log = std::env::temp_dir().join(format!("weirgate-lab-{}.log", std::process::id()));
        let error = Process::start("peer", &mut Command::new("/no/such/program"), None, &log).expect_err("not there");
        let _ = std::fs::remove_file(&log);
        assert!(error.to_string().contains("peer: /no/such/program cannot be started"), "{error}");
    }

    #[test]
    fn what_is_started_runs_on_its_cpu_and_is_gone_when_dropped() {
        let cpu = cpus().expect("they can be read")[0];
        let log = std::env::temp_dir().join(format!("weirgate-lab-pin-{}.log", std::process::id()));
        let process = Process::start("sleep", Command::new("sleep").arg("60"), Some(cpu), &log).expect("it starts");
        let _ = std::fs::remove_file(&log);
        let path = format!("/proc/{}", process.id());
        let status = std::fs::read_to_string(format!("{path}/status")).expect("it lives");
        assert!(status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{status}");
        drop(process);
        assert!(!Path::new(&path).exists());
    }

    #[test]
    fn a_program_ends_with_the_process_that_started_it() {
        let log = std::env::temp_dir().join(format!("weirgate-lab-guard-{}.log", std::process::id()));
        let mut process = Process::start("sleep", Command::new("sleep").arg("60"), None, &log).expect("it starts");
        let _ = std::fs::remove_file(&log);
        // The system closes the pipe when a process dies.
        drop(process.guard.stdin.take());
        let status = process.child.wait().expect("it ends");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::TERM.as_raw()));
    }
}
