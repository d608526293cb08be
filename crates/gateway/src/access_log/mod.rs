//! Stage *observe*: the access log, one line per request.
//!
//! A request must never wait for the log. The serving thread formats its line into its own buffer and copies
//! it into a shared buffer. It holds the shared buffer's lock only for that copy. One writer thread writes
//! the shared buffer out in one piece, however long that takes. When the buffer is full, lines are dropped
//! and counted. A full disk, a stopped reader of a pipe or a slow network drive loses log lines and delays no
//! request.
//!
//! [`AccessLog::reopen`] opens the file again, so that it can be rotated by renaming it.

mod line;

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use line::Layout;
pub(crate) use line::{words, would_words};
use weirgate_config::AccessLog as Config;
use weirgate_log::Level;

use crate::record::{AccessRecord, Ending, Observer};

/// Maximum size of the pending lines, in bytes: about 10,000 lines, a burst of about a second.
const MAX_PENDING: usize = 4 * 1024 * 1024;

/// Time for which the writer lets lines accumulate. It limits the writer to 100 writes a second, and a line
/// still shows up quickly for a person watching the log.
const GATHER: Duration = Duration::from_millis(10);

/// Maximum time for which the end of the process waits for the last lines. A stopped reader must not block
/// it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The access log. Dropping it closes it.
#[derive(Debug)]
pub struct AccessLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Signals that the writer has work, or that it has ended.
    changed: Condvar,
    /// Number of requests considered for sampling.
    seen: AtomicU64,
    /// Fraction of served requests to log, as the bits of an `f64`.
    sample: AtomicU64,
    /// Form of the lines. Written by reloads only.
    layout: RwLock<Layout>,
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
    /// Whether the writer must act at once, for a reason other than new lines.
    fn urgent(&self) -> bool {
        self.reopen || self.closing
    }
}

thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLog {
    /// Opens the log and starts its writer. With `None` the log is off until [`AccessLog::follow`] turns it
    /// on.
    ///
    /// # Errors
    /// The file cannot be opened for appending, or the thread cannot be started.
    pub fn start(config: Option<&Config>) -> io::Result<AccessLog> {
        let sink = match config {
            Some(config) => open(config.file.as_deref())?,
            None => Box::new(io::sink()),
        };
        AccessLog::with(sink, config, MAX_PENDING)
    }

    fn with(sink: Sink, config: Option<&Config>, max_pending: usize) -> io::Result<AccessLog> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                pending: Vec::with_capacity(max_pending),
                path: config.and_then(|c| c.file.clone()),
                ..State::default()
            }),
            changed: Condvar::new(),
            seen: AtomicU64::new(0),
            sample: AtomicU64::new(share(config)),
            layout: RwLock::new(Layout::of(config)),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        let its = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("weirgate-log".into())
            .spawn(move || its.write(sink, Vec::with_capacity(max_pending)))?;
        Ok(AccessLog { shared })
    }

    /// Opens the file by its name again, after it has been renamed.
    pub fn reopen(&self) {
        self.shared.lock().reopen = true;
        self.shared.changed.notify_all();
    }

    /// Applies a new policy: the sampling fraction, the form of lines and the file. `None` turns the log off.
    pub fn follow(&self, config: Option<&Config>) {
        self.shared.sample.store(share(config), Ordering::Relaxed);
        if let Some(config) = config {
            *self.shared.layout.write().unwrap_or_else(PoisonError::into_inner) = Layout::of(Some(config));
            self.shared.lock().path.clone_from(&config.file);
        }
        self.reopen();
    }

    /// Writes the pending lines, as far as possible within a second, and ends the writer. Later lines are
    /// dropped.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.changed.notify_all();
        // Ignore a timeout: the writer holds nothing that the rest of the process needs.
        let _ = self.shared.changed.wait_timeout_while(state, PATIENCE, |state| !state.ended);
    }

    /// Number of lines written.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Number of lines lost because the buffer was full or a write failed.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

/// Appends the line of a request that ends now: JSON with the usual fields, whatever the policy's own log has.
pub(crate) fn append(line: &mut Vec<u8>, record: &AccessRecord<'_>) {
    static USUAL: LazyLock<Layout> = LazyLock::new(|| Layout::of(None));
    line::write(line, record, weirgate_clock::calendar(), &USUAL);
}

/// Returns the sampling fraction as bits. It is negative if there is no log, which also suppresses sheds and
/// errors.
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

    /// Records a request. Runs on the serving thread.
    fn observe(&self, record: &AccessRecord<'_>) {
        if !self.wanted(record.ending) {
            return;
        }
        LINE.with_borrow_mut(|line| {
            line.clear();
            let layout = self.layout.read().unwrap_or_else(PoisonError::into_inner);
            line::write(line, record, weirgate_clock::calendar(), &layout);
            drop(layout);
            let mut state = self.lock();
            // The buffer has its maximum capacity from the start and never grows.
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

    /// Returns whether to log: sheds and errors always, other requests at the sampling fraction.
    fn wanted(&self, ending: Ending) -> bool {
        let sample = f64::from_bits(self.sample.load(Ordering::Relaxed));
        match ending {
            _ if sample < 0.0 => false,
            Ending::Shed(_) | Ending::Refused(_) | Ending::Failed(_) => true,
            Ending::Served | Ending::Tunnelled | Ending::Redirected | Ending::Challenge | Ending::Left => {
                let before = self.seen.fetch_add(1, Ordering::Relaxed) as f64;
                sample >= 1.0 || ((before + 1.0) * sample).floor() > (before * sample).floor()
            }
        }
    }

    /// Runs the writer thread.
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
                        weirgate_log::say(Level::Error, &format!("the access log stays where it is: {error}"));
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

/// Opens the file for appending, or standard output.
fn open(path: Option<&Path>) -> io::Result<Sink> {
    let Some(path) = path else { return Ok(Box::new(io::stdout())) };
    // The log contains client addresses, so only the operator and the operator's group can read it.
    let file: io::Result<File> = OpenOptions::new().append(true).create(true).mode(0o640).open(path);
    match file {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(io::Error::new(error.kind(), format!("access log {}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests;
