//! The file that keeps the learned state over a restart.
//!
//! It is replaced as a whole ([`weirgate_files`]), but not forced to the disk: after a loss of power a damaged file is
//! ignored like any other.
//!
//! A file older than [`MAX_AGE`] is not used. A restart, an upgrade of packages or a reboot of the machine takes less.
//! After a longer stop nothing tells whether the nodes are still the same.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use weirgate_files::PRIVATE;
use weirgate_log::Level;
use weirgate_wire::LearnedState;

use super::{export, import, read};
use crate::gateway::{Shared, lock};

/// Time between two writes. At most that much is forgotten after a crash, and a write takes some milliseconds of a
/// thread without requests.
pub(super) const EVERY: Duration = Duration::from_secs(10);

/// Age from which a file is not used.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Age of a file from the future up to which the clock was only set back a little.
const SET_BACK: Duration = Duration::from_secs(5);

/// Begins with the state of the policy's file. Returns a message for people.
pub(super) fn restore(shared: &Shared) -> Option<String> {
    let path = shared.control.active_config().site.learned_state.clone()?.file?;
    let name = path.display();
    match load(&path, now()) {
        Ok((state, age)) => {
            let taken = import(shared, &state, age);
            Some(format!("{name}, {} s old: took over {taken}", age.as_secs()))
        }
        Err(None) => None,
        Err(Some(why)) => {
            weirgate_log::say(
                Level::Warning,
                &format!("{name} is not used: {why}. Costs and windows are learned anew"),
            );
            None
        }
    }
}

/// Time since 1970.
fn now() -> Duration {
    weirgate_clock::calendar().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Reads a file that is not too old at `now`, and returns also its age. There is no reason if there is no file.
fn load(path: &Path, now: Duration) -> Result<(LearnedState, Duration), Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(None),
        Err(error) => return Err(Some(error.to_string())),
    };
    if !file.metadata().is_ok_and(|data| data.is_file()) {
        return Err(Some("it is no file".to_owned()));
    }
    let state = LearnedState::parse(&read(file)?)?;
    let written = Duration::try_from_secs_f64(state.written_seconds).map_err(|_| "its time is none".to_owned())?;
    if let Some(ahead) = written.checked_sub(now).filter(|ahead| *ahead > SET_BACK) {
        return Err(Some(format!("it was written {} s in the future", ahead.as_secs())));
    }
    let age = now.saturating_sub(written);
    if age > MAX_AGE {
        return Err(Some(format!("it is {} s old, and at most {} s count", age.as_secs(), MAX_AGE.as_secs())));
    }
    Ok((state, age))
}

/// Writes the policy's file, if it names one and no other process has taken over. Blocks while it is written.
pub(super) fn keep(shared: &Shared) {
    let Some(path) = shared.control.active_config().site.learned_state.clone().and_then(|settings| settings.file)
    else {
        return;
    };
    if shared.handed_over.load(Ordering::Acquire) {
        return;
    }
    let error = store(&path, &export(shared)).err().map(|error| error.to_string());
    let mut state = lock(&shared.learning.0);
    if error != state.file_error {
        let name = path.display();
        match &error {
            Some(why) => weirgate_log::say(
                Level::Warning,
                &format!("{name} cannot be written: {why}. A restart will know nothing since the last time"),
            ),
            None => weirgate_log::say(Level::Info, &format!("{name} is written again")),
        }
        state.file_error = error;
    }
}

/// Writes a file at once. Only this user may read it, because keys of classes may be clients' names.
fn store(path: &Path, state: &LearnedState) -> io::Result<()> {
    weirgate_files::replace(path, PRIVATE, state.to_json().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn written(seconds: f64) -> LearnedState {
        LearnedState { version: 1, written_seconds: seconds, ..LearnedState::default() }
    }

    #[test]
    fn a_file_is_read_with_its_age_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("learned.json");
        assert_eq!(load(&path, NOW), Err(None), "there is none yet");
        store(&path, &written(1_799_999_990.0)).expect("written");
        assert_eq!(load(&path, NOW), Ok((written(1_799_999_990.0), Duration::from_secs(10))));
        assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("learned.json");
        let why = |content: &[u8]| {
            std::fs::write(&path, content).expect("written");
            load(&path, NOW).expect_err("not sound").expect("a reason")
        };
        let at = |seconds: f64| why(written(seconds).to_json().as_bytes());
        assert_eq!(at(1_800_000_060.0), "it was written 60 s in the future");
        assert_eq!(at(1_799_999_399.0), "it is 601 s old, and at most 600 s count");
        assert_eq!(at(-1.0), "its time is none");
        let garbage: Vec<u8> = (0..1 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert!(why(&garbage).contains("line 1"), "{}", why(&garbage));
        assert!(why(&vec![b' '; 5 << 20]).contains("longer"));
        assert!(why(b"").contains("EOF"));
        assert!(load(folder.path(), NOW).is_err());
        let ahead = written(1_800_000_004.0);
        std::fs::write(&path, ahead.to_json()).expect("written");
        assert_eq!(load(&path, NOW), Ok((ahead, Duration::ZERO)));
    }
}
