//! A policy that the gateways of a site roll out: into the policy file, and in force.
//!
//! The file is the truth, so that a restart finds the policy without etcd. The text before is kept beside it under the
//! name of the rollout, so that a restart during a trial still finds it, and as `FILE.before` when all is decided.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weirgate_config::Sharing;
use weirgate_engine::{ClassId, ShedReason};
use weirgate_sharing::Seen;

use crate::active_config::ReloadSource;
use crate::gateway::{Gateway, Shared};

/// Puts the policy file in force, as a signal does.
pub(crate) type Reload = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Added to the name of the policy file for the text before a rollout.
const BEFORE: &str = "before";

/// Added to the name of the policy file to find out whether its folder can be written.
const TRIAL: &str = "trial";

/// Maximum number of classes that are looked at. The engine's lock is held while they are copied.
const MAX_CLASSES: usize = 1000;

fn path(shared: &Shared) -> Result<&Path, String> {
    match &shared.source {
        ReloadSource::File { path, .. } => Ok(path),
        ReloadSource::Nowhere => Err("it was started without a policy file".to_owned()),
    }
}

/// The text before a rollout, until it is decided.
fn kept(path: &Path, id: &str) -> PathBuf {
    path.with_added_extension(format!("{BEFORE}-{id}"))
}

fn named<T>(path: &Path, result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a policy file, with the mode that it has.
fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let mode = path.metadata().map_or(weirgate_files::PUBLIC, |known| known.permissions().mode() & 0o777);
    named(path, weirgate_files::replace_durably(path, mode, bytes))
}

/// Checks that this gateway could put `text` in force.
pub(crate) fn check(shared: &Arc<Shared>, sharing: &Sharing, text: &str) -> Result<(), String> {
    let gateway = Gateway { shared: Arc::clone(shared) };
    let text = text.to_owned();
    let site = shared.config_thread.run(move || match &gateway.shared.source {
        ReloadSource::File { path, resolve } => resolve(&path.display().to_string(), &text),
        ReloadSource::Nowhere => Err("it was started without a policy file".to_owned()),
    })?;
    let own = |sharing: &Sharing| sharing.members[sharing.own].0.clone();
    match &site.sharing {
        None => return Err("the policy has no `site:`, so this gateway would leave it".to_owned()),
        Some(new) if own(new) != own(sharing) => {
            return Err(format!(
                "the policy names {}; without `name:` each gateway finds its own in `trust`",
                own(new)
            ));
        }
        Some(new) if new.etcd != sharing.etcd || !new.rollouts => {
            return Err("`etcd:` and `rollouts:` cannot be rolled out: change them in the files".to_owned());
        }
        Some(_) => {}
    }
    let path = path(shared)?;
    if !named(path, path.symlink_metadata())?.is_file() {
        return Err(format!("{} is a link, which a rollout would replace by a file", path.display()));
    }
    let trial = path.with_added_extension(TRIAL);
    named(&trial, weirgate_files::replace(&trial, weirgate_files::PUBLIC, b""))?;
    named(&trial, std::fs::remove_file(&trial))
}

/// Writes `text` to the policy file and puts it in force. On an error both are as before. `is_decided`: it will not be
/// put back.
pub(crate) fn put(shared: &Arc<Shared>, id: &str, text: &str, is_decided: bool) -> Result<(), String> {
    let path = path(shared)?;
    let before = named(path, std::fs::read(path))?;
    let kept = kept(path, id);
    // A trial that was begun before a restart has kept it already.
    if !kept.exists() {
        write(&kept, &before)?;
    }
    write(path, text.as_bytes())?;
    reload(shared).or_else(|why| {
        write(path, &before)?;
        Err(why)
    })?;
    if is_decided {
        named(&kept, std::fs::rename(&kept, path.with_added_extension(BEFORE)))?;
    }
    Ok(())
}

/// Puts the policy before [`put`] in force again.
pub(crate) fn put_back(shared: &Arc<Shared>, id: &str) -> Result<(), String> {
    let path = path(shared)?;
    let kept = kept(path, id);
    if !kept.exists() {
        // It was not put in force.
        return Ok(());
    }
    let before = named(&kept, std::fs::read(&kept))?;
    write(path, &before)?;
    reload(shared)?;
    named(&kept, std::fs::remove_file(&kept))
}

/// How requests of all classes have fared. Refusals because of a maximum rate are the client's matter.
pub(crate) fn seen(shared: &Shared) -> Seen {
    let mut seen = Seen::default();
    for class in shared.control.classes(ClassId(0), MAX_CLASSES) {
        let limited = [ShedReason::ClassRate, ShedReason::SourceRate];
        let reasons = ShedReason::ALL.into_iter().zip(class.shed);
        let shed: u64 = reasons.filter(|(reason, _)| !limited.contains(reason)).map(|(_, count)| count).sum();
        seen.asked += class.offered;
        seen.unanswered += shed + class.failed + class.cancelled;
        let achieved = &class.achieved;
        if achieved.throughput_held == Some(false) || achieved.response_time_held == Some(false) {
            seen.missed.push(class.name.clone());
        }
    }
    seen
}

fn reload(shared: &Arc<Shared>) -> Result<(), String> {
    match shared.membership.reload.get() {
        Some(reload) => reload(),
        None => {
            let gateway = Gateway { shared: Arc::clone(shared) };
            gateway.reload().map(drop).map_err(|error| error.to_string())
        }
    }
}
