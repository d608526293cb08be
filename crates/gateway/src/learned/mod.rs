//! Learned state: passed on to the process that takes over, and taken from the process before.
//!
//! `docs/adr/0024-learned-state-outlives-the-process.md` gives the reasons. There are three ways: a hand-over passes
//! the state to the new process. A [`file`] keeps it over a restart. And a gateway may [`follow`] others at `/learned`
//! of their admin API, so that it begins with their state when clients come to it. In every case the engine decides
//! what it takes over.
//!
//! The engine's lock is held for a page of classes at a time.

mod file;
mod follow;
mod shapes;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use weirgate_engine::{Adopted, ClassId, Learned, LearnedClass};
use weirgate_log::Level;
use weirgate_wire::{LearnedState, MAX_LEARNED_BYTES, MAX_LEARNED_CLASSES, admin as shape};

use crate::gateway::{Gateway, Shared, lock};

pub(crate) use follow::watch;

/// Number of classes that are copied or taken over while the engine's lock is held once: some tens of microseconds.
const PAGE: usize = 64;

/// The state of this work, for operators.
#[derive(Debug, Default)]
pub(crate) struct Learning(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Why the file could not be written the last time.
    file_error: Option<String>,
    followed: Vec<follow::Followed>,
}

/// Returns what was learned. Yields to requests between pages of classes.
pub(crate) fn export(shared: &Shared) -> LearnedState {
    let control = &shared.control;
    let windows = control.learned_windows();
    let (mut classes, mut from): (Vec<LearnedClass>, _) = (Vec::new(), Some(ClassId(0)));
    while let Some(first) = from {
        let (page, next) = control.learned_classes(first, PAGE);
        classes.extend(page.into_iter().filter(shapes::has_short_key));
        from = next;
    }
    if classes.len() > MAX_LEARNED_CLASSES {
        classes.sort_by_key(|class| class.age);
        classes.truncate(MAX_LEARNED_CLASSES);
    }
    let routes = shared.pages.learned(control.clock().now());
    let unix = weirgate_clock::calendar().duration_since(UNIX_EPOCH).unwrap_or_default();
    let checksum = control.active_config().checksum.clone();
    LearnedState { routes, ..shapes::state(&Learned { classes, ..windows }, checksum, unix.as_secs_f64()) }
}

/// Number of records that were taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Taken {
    engine: Adopted,
    /// Routes of the page table.
    routes: usize,
}

impl Taken {
    pub(crate) fn is_nothing(self) -> bool {
        self == Taken::default()
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Adopted { classes, windows, nodes } = self.engine;
        let some = |(count, one, many): (usize, &str, &str)| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            _ => Some(format!("{count} {many}")),
        };
        let all = [
            (classes, "class", "classes"),
            (windows, "window", "windows"),
            (nodes, "node", "nodes"),
            (self.routes, "route", "routes"),
        ];
        let all = all.into_iter().filter_map(some).collect::<Vec<String>>().join(", ");
        f.write_str(if all.is_empty() { "nothing" } else { &all })
    }
}

/// Takes over what another gateway has learned. `age` is the time since then. Yields to requests between pages.
pub(crate) fn import(shared: &Shared, state: &LearnedState, age: Duration) -> Taken {
    let learned = shapes::learned(state);
    let classes = learned.classes.chunks(PAGE).map(|page| shared.control.adopt_classes(page, age)).sum();
    let engine = Adopted { classes, ..shared.control.adopt_windows(&learned, age) };
    Taken { engine, routes: shared.pages.begin_with(&state.routes, age, shared.control.clock().now()) }
}

impl Gateway {
    /// Returns what was learned, for the process that takes over. Takes some milliseconds.
    pub fn learned(&self) -> LearnedState {
        export(&self.shared)
    }

    /// Begins with what the process with this number has learned, which has passed `handed` on, or else with the state
    /// in the policy's file. Returns a message for people, if there is anything to say. Call it before
    /// [`Gateway::serve`].
    pub fn begin_with_learned(&self, handed: Option<(u32, File)>) -> Option<String> {
        if let Some((process, file)) = handed {
            match read(file).and_then(|bytes| LearnedState::parse(&bytes)) {
                Ok(state) => {
                    let taken = import(&self.shared, &state, Duration::ZERO);
                    return Some(format!("took over what process {process} has learned: {taken}"));
                }
                Err(why) => {
                    let text = format!("what process {process} has learned cannot be used: {why}");
                    weirgate_log::say(Level::Warning, &text);
                }
            }
        }
        file::restore(&self.shared)
    }

    /// Writes what was learned to the policy's file, unless another process has taken over. The gateway does so every
    /// few seconds, too.
    pub fn keep_learned(&self) {
        file::keep(&self.shared);
    }

    /// Returns the state of this work, if the policy asks for any.
    pub fn learned_state(&self) -> Option<shape::LearnedStatus> {
        let settings = self.active_config().site.learned_state.clone()?;
        let now = self.control().clock().now();
        let state = lock(&self.shared.learning.0);
        Some(shape::LearnedStatus {
            file: settings.file.map(|path| path.display().to_string()),
            file_error: state.file_error.clone(),
            follows: state.followed.iter().map(|followed| followed.shape(now)).collect(),
        })
    }
}

/// Reads a file to its end, up to the longest state.
fn read(file: File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = file.take(MAX_LEARNED_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error: io::Error| error.to_string())?;
    Ok(bytes)
}
