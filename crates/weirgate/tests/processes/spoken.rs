//! A process that tests follow by its messages, with the processes that take over from it. Their messages go to one
//! stream.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Time limit of an awaited message, ten times the time that a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process and its successors.
pub(crate) struct Process {
    child: Child,
    said: Arc<Said>,
    /// Number of messages up to the last one that [`Process::next`] has returned.
    read: usize,
    /// The process in charge.
    pub(crate) current: u32,
    handed_over: usize,
}

/// Messages so far, and whether all processes have ended.
#[derive(Default)]
struct Said {
    lines: Mutex<(Vec<String>, bool)>,
    more: Condvar,
}

impl Process {
    /// Starts `command`. Its standard input and output stay as the command has them.
    pub(crate) fn start(mut command: Command) -> Process {
        // A process group of its own, so that its successors end with it.
        let mut child = command.process_group(0).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let stream = BufReader::new(child.stderr.take().expect("a pipe"));
        let said = Arc::new(Said::default());
        let sink = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in stream.lines().map_while(Result::ok) {
                sink.lines.lock().expect("no panic").0.push(line);
                sink.more.notify_all();
            }
            sink.lines.lock().expect("no panic").1 = true;
            sink.more.notify_all();
        });
        let current = child.id();
        Process { child, said, read: 0, current, handed_over: 0 }
    }

    /// Starts a gateway with this policy, and waits until it is ready.
    pub(crate) fn serving(policy: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
        command.args(["run", policy]).env_remove("WEIRGATE_ADMIN_TOKEN").env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::null());
        let process = Process::start(command);
        process.line("ready", 1);
        process
    }

    /// Returns the line number `nth`, from 1, with `text`, and waits for it. Fails with all messages if it never comes.
    pub(crate) fn line(&self, text: &str, nth: usize) -> String {
        self.find(0, text, nth).1
    }

    /// Returns the next line with `text`, after those that this method has passed over, and waits for it.
    pub(crate) fn next(&mut self, text: &str) -> String {
        let (at, line) = self.find(self.read, text, 1);
        self.read = at + 1;
        line
    }

    fn find(&self, from: usize, text: &str, nth: usize) -> (usize, String) {
        let find = |lines: &[String]| {
            let found = lines.iter().enumerate().skip(from).filter(|(_, line)| line.contains(text)).nth(nth - 1);
            found.map(|(at, line)| (at, line.clone()))
        };
        let lines = self.said.lines.lock().expect("no panic");
        let waits = |(lines, ended): &mut (Vec<String>, bool)| find(lines).is_none() && !*ended;
        let (lines, _) = self.said.more.wait_timeout_while(lines, PATIENCE, waits).expect("no panic");
        find(&lines.0).unwrap_or_else(|| panic!("no {text:?} number {nth}: {:#?}", lines.0))
    }

    /// Returns the address in line number `nth` with `text`.
    pub(crate) fn address(&self, text: &str, nth: usize) -> SocketAddr {
        address(&self.line(text, nth))
    }

    /// Returns the address in the next line with `text`.
    pub(crate) fn next_address(&mut self, text: &str) -> SocketAddr {
        address(&self.next(text))
    }

    /// Sends a signal to the process in charge.
    pub(crate) fn tell(&self, signal: &str) {
        self.signal(signal, self.current);
    }

    pub(crate) fn signal(&self, name: &str, process: u32) {
        let sent = Command::new("kill").args(["-s", name, &process.to_string()]).status();
        assert!(sent.expect("every system has kill").success());
    }

    /// Hands over, and returns the process that was in charge.
    pub(crate) fn hand_over(&mut self) -> u32 {
        self.signal("USR2", self.current);
        self.handed_over += 1;
        let line = self.line("has taken over", self.handed_over);
        let next = line.split(' ').nth(2).and_then(|id| id.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        std::mem::replace(&mut self.current, next)
    }

    /// Stops the process in charge, waits until all have ended, and returns all messages.
    pub(crate) fn stop(mut self) -> Vec<String> {
        self.tell("TERM");
        let (status, lines) = self.wait();
        assert!(status.success(), "{status}: {lines:#?}");
        lines
    }

    /// Waits until all have ended. Returns the exit code, and the messages after the last one of [`Process::next`].
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let (status, lines) = self.wait();
        (status.code(), lines[self.read..].iter().map(|line| format!("{line}\n")).collect())
    }

    fn wait(&mut self) -> (ExitStatus, Vec<String>) {
        let lines = self.said.lines.lock().expect("no panic");
        let (lines, late) = self.said.more.wait_timeout_while(lines, PATIENCE, |(_, ended)| !*ended).expect("no panic");
        assert!(!late.timed_out(), "a process runs on: {:#?}", lines.0);
        (self.child.wait().expect("it has ended"), lines.0.clone())
    }
}

/// Returns the address in a line.
fn address(line: &str) -> SocketAddr {
    let (_, address) = line.split_once("://").expect("an address");
    address.split(',').next().and_then(|a| a.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

impl Drop for Process {
    fn drop(&mut self) {
        // They are ours and hold no data to save.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}
