//! Servers pinned to a core, and the CPU time they have used.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::steps::{becomes_true, read};

/// A running server. It ends when this value is dropped.
pub(crate) struct Process {
    child: Child,
    ticks_per_second: f64,
}

impl Process {
    /// Starts `command` on `core` and waits until it listens on `port`.
    pub(crate) fn start(core: &str, command: &[PathBuf], port: u16) -> Result<Process, String> {
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        if listens() {
            return Err(format!("port {port} of 127.0.0.1 is taken; the experiment needs it"));
        }
        let line = command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let ticks = read(Command::new("getconf").arg("CLK_TCK"))?;
        let ticks_per_second = ticks.trim().parse().map_err(|_| format!("getconf CLK_TCK says {ticks}"))?;
        // taskset becomes the program, so that its id is the program's.
        let child = Command::new("taskset")
            .args(["-c", core])
            .args(command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("cannot start taskset: {e}"))?;
        let mut process = Process { child, ticks_per_second };
        let up = becomes_true(|| listens() || matches!(process.child.try_wait(), Ok(Some(_))));
        if up && matches!(process.child.try_wait(), Ok(None)) {
            Ok(process)
        } else {
            Err(format!("`{line}` does not serve"))
        }
    }

    /// CPU seconds, user and system, of the process with its threads and of its children.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, String> {
        let root = self.child.id();
        let mut ticks = 0;
        for entry in std::fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))?.flatten() {
            let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            // A process that is gone by now is none of ours.
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
            // Fields after the name, which is in parentheses: state, parent, …, utime (12th), stime (13th).
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            let number = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok());
            if id == root || number(1) == Some(u64::from(root)) {
                let (user, system) = number(11).zip(number(12)).ok_or_else(|| format!("/proc/{id}/stat: {stat}"))?;
                ticks += user + system;
            }
        }
        Ok(ticks as f64 / self.ticks_per_second)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // This signal lets nginx end its worker, too. The process is ours and has nothing to save.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// Where Debian puts servers, which is not on every user's path.
pub(crate) fn program(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .map(|directory| directory.join(name))
        .find(|file| file.exists())
        .ok_or_else(|| format!("{name} is missing; `cargo xtask packages` installs it"))
}
