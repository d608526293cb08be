//! Where the learned state is kept, and from where it comes.

use std::path::Path;

use weirgate_spanned_yaml::decode::Context;
use weirgate_spanned_yaml::errors::quoted;
use weirgate_tls::trust::is_local;

use crate::file::PolicyFile;
use crate::site::{Admin, LearnedStateSettings};

/// Maximum number of gateways that one follows: they are asked each second.
const MAX_FOLLOWED: usize = 8;

/// Returns the settings. Paths count from `folder`. Gateways on other machines must prove who they are.
pub(super) fn learned_state(
    file: &PolicyFile,
    folder: &Path,
    admin: Option<&Admin>,
    trusted: bool,
    cx: &mut Context,
) -> Option<LearnedStateSettings> {
    let form = file.learned_state.get()?;
    if !form.file.given && !form.follow.given {
        let hint = "write `file:` with a path, or `follow:` with the admin listener of another gateway";
        cx.fail(file.learned_state.mark, "this keeps nothing", hint);
    }
    let path = form.file.get().map(|text| folder.join(&text.0));
    if let Some(path) = path.as_ref().filter(|path| path.is_dir() || path.file_name().is_none()) {
        let what = format!("{} is a folder", quoted(&path.display().to_string()));
        cx.fail(form.file.mark, what, "write the path of a file that only Weirgate uses");
    }
    let mut follow: Vec<String> = Vec::new();
    for at in form.follow.get().map_or(&[][..], |all| &all.0) {
        let address = &at.value.0;
        if !trusted && !is_local(address) && !address.starts_with("unix:") {
            let what = format!("the gateway at {} could be anyone, because there is no `trust`", quoted(address));
            let hint = "make certificates with `weirgate pki` and write `trust:` with their folder";
            cx.fail(at.mark, what, hint);
        }
        if admin.is_some_and(|admin| admin.address.to_string() == *address) {
            let hint = "name the admin listener of another gateway";
            cx.fail(at.mark, format!("{} is this gateway itself", quoted(address)), hint);
        }
        if !follow.contains(address) {
            follow.push(address.clone());
        }
    }
    if follow.len() > MAX_FOLLOWED {
        let what = format!("{} gateways are followed, and at most {MAX_FOLLOWED} may be", follow.len());
        cx.fail(form.follow.mark, what, "follow those that take over for one another");
    }
    Some(LearnedStateSettings { file: path, follow })
}
