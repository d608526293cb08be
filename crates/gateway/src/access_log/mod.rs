//! Stage *observe*: the access log, one JSON object per line and request.
//!
//! A request must never wait for a log. The serving thread formats its line into a buffer of its own and
//! copies it into a shared one, whose lock is held for that copy alone; one thread writes that buffer out
//! in one piece, whatever it then takes. When the buffer is full, lines are dropped and counted. A full
//! disk, a stopped reader of a pipe or a slow network drive costs lines, not requests.
//!
//! The file is opened again on [`AccessLog::reopen`], so that it can be rotated by renaming it.

mod line;

pub use line::rfc3339;

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weirgate_config::AccessLog as Config;

use crate::clock::Clock;
use crate::record::{AccessRecord, Ending, Observer};

/// Bytes of lines that may wait for the writer: about 10,000 lines, a burst of a second or so.
const MOST_PENDING: usize = 4 * 1024 * 1024;

/// How long the writer lets lines gather once there is one: a hundred writes a second at most, and a line
/// is seen soon enough by whoever watches.
const GATHER: Duration = Duration::from_millis(10);

/// How long the end of the process waits for the last lines. A stopped reader must not hold it up.
const PATIENCE: Duration = Duration::from_secs(1);

/// The access log. Dropping it closes it.
#[derive(Debug)]
pub struct AccessLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The writer has something to do, or has done everything.
    changed: Condvar,
    /// Requests considered for sampling.
    seen: AtomicU64,
    /// Share of served requests that are logged, as the bits of an `f64`.
    sample: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<u8>,
    lines: u64,
    reopen: bool,
    path: Option<PathBuf>,
    closing: bool,
    ended: bool,
}

impl State {
    /// Whether the writer is wanted for more than lines.
    fn urgent(&self) -> bool {
        self.reopen || self.closing
    }
}

thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLog {
    /// Opens the log and starts its writer. `None` is a log that is off until [`AccessLog::follow`].
    ///
    /// # Errors
    /// The file cannot be opened for appending, or the thread cannot be started.
    pub fn start(config: Option<&Config>) -> io::Result<AccessLog> {
        let sink = match config {
            Some(config) => open(config.file.as_deref())?,
            None => Box::new(io::sink()),
        };
        AccessLog::with(sink, config, MOST_PENDING)
    }

    fn with(sink: Sink, config: Option<&Config>, most_pending: usize) -> io::Result<AccessLog> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                pending: Vec::with_capacity(most_pending),
                path: config.and_then(|c| c.file.clone()),
                ..State::default()
            }),
            changed: Condvar::new(),
            seen: AtomicU64::new(0),
            sample: AtomicU64::new(share(config)),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        let its = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("weirgate-log".into())
            .spawn(move || its.write(sink, Vec::with_capacity(most_pending)))?;
        Ok(AccessLog { shared })
    }

    /// Opens the file again by its name: after it was renamed.
    pub fn reopen(&self) {
        self.shared.lock().reopen = true;
        self.shared.changed.notify_all();
    }

    /// Follows a new policy: how much is logged, and where. `None` switches the log off.
    pub fn follow(&self, config: Option<&Config>) {
        self.shared.sample.store(share(config), Ordering::Relaxed);
        if let Some(config) = config {
            self.shared.lock().path.clone_from(&config.file);
        }
        self.reopen();
    }

    /// Writes what is pending, as far as that can be done within a second, and ends the writer. Lines that
    /// come later are dropped.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.changed.notify_all();
        // Whether it ended or time is up, the process may go on: the writer holds nothing that others need.
        let _ = self.shared.changed.wait_timeout_while(state, PATIENCE, |state| !state.ended);
    }

    /// Lines written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Lines that the writer could not take or not write.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

/// The share to be logged, as bits; without a log it is negative, which keeps sheds and errors out too.
fn share(config: Option<&Config>) -> u64 {
    config.map_or(-1.0, |c| c.sample).to_bits()
}

impl Observer for Arc<AccessLog> {
    fn observe(&self, record: &AccessRecord<'_>) {
        self.shared.observe(record);
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On the serving thread.
    fn observe(&self, record: &AccessRecord<'_>) {
        if !self.wanted(record.ending) {
            return;
        }
        LINE.with_borrow_mut(|line| {
            line.clear();
            line::write(line, record, Clock::calendar());
            let mut state = self.lock();
            // The buffer never grows: it is as large as it may be from the start.
            if state.pending.len() + line.len() > state.pending.capacity() || state.closing {
                drop(state);
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            state.pending.extend_from_slice(line);
            state.lines += 1;
            let first = state.lines == 1;
            drop(state);
            if first {
                self.changed.notify_all();
            }
        });
    }

    /// Sheds and errors always; of the rest every 1/sample-th.
    fn wanted(&self, ending: Ending) -> bool {
        let sample = f64::from_bits(self.sample.load(Ordering::Relaxed));
        match ending {
            _ if sample < 0.0 => false,
            Ending::Shed(_) | Ending::Refused(_) | Ending::Failed(_) => true,
            Ending::Served | Ending::Tunnelled | Ending::Left => {
                let before = self.seen.fetch_add(1, Ordering::Relaxed) as f64;
                sample >= 1.0 || ((before + 1.0) * sample).floor() > (before * sample).floor()
            }
        }
    }

    /// The writer's thread.
    fn write(&self, mut sink: Sink, mut batch: Vec<u8>) {
        loop {
            let (lines, path, closing) = {
                let idle = |state: &mut State| state.lines == 0 && !state.urgent();
                let waited = self.changed.wait_while(self.lock(), idle);
                let state = waited.unwrap_or_else(PoisonError::into_inner);
                let gathered = self.changed.wait_timeout_while(state, GATHER, |state| !state.urgent());
                let (mut state, _) = gathered.unwrap_or_else(PoisonError::into_inner);
                std::mem::swap(&mut state.pending, &mut batch);
                let path = std::mem::take(&mut state.reopen).then(|| state.path.clone());
                (std::mem::take(&mut state.lines), path, state.closing)
            };
            let result = sink.write_all(&batch).and_then(|()| sink.flush());
            let counter = if result.is_ok() { &self.written } else { &self.dropped };
            counter.fetch_add(lines, Ordering::Relaxed);
            batch.clear();
            if let Some(path) = path {
                match open(path.as_deref()) {
                    Ok(opened) => sink = opened,
                    Err(error) => {
                        let _ = writeln!(io::stderr(), "weirgate: the access log stays where it is: {error}");
                    }
                }
            }
            if closing {
                self.lock().ended = true;
                self.changed.notify_all();
                return;
            }
        }
    }
}

type Sink = Box<dyn Write + Send>;

/// The file for appending, or standard output.
fn open(path: Option<&Path>) -> io::Result<Sink> {
    let Some(path) = path else { return Ok(Box::new(io::stdout())) };
    // Addresses of clients are nobody's business but the operator's and her group's.
    let file: io::Result<File> = OpenOptions::new().append(true).create(true).mode(0o640).open(path);
    match file {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(io::Error::new(error.kind(), format!("access log {}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests;
