//! Modes: which classes are enforced, and for which share of their sources.

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::Context;
use weirgate_spanned_yaml::unit::Share;

use crate::file::{Class, ModeForm};

/// The smallest share of the sources that can be told apart.
const MIN_SHARE: f64 = 0.0001;

/// Returns the mode of a class. `policy` is that of the whole policy.
pub(super) fn of_class(class: &Class, policy: engine::Mode, cx: &mut Context) -> engine::Mode {
    class.mode.get().map_or(policy, |form| mode(form, cx))
}

/// Returns a mode. That of the whole policy holds for classes without one of their own.
pub(super) fn mode(form: &ModeForm, cx: &mut Context) -> engine::Mode {
    let part = match form {
        ModeForm::Word(word) => return word.0,
        ModeForm::Part(part) => part,
    };
    let Some(Share(share)) = part.enforce.get() else { return engine::Mode::Enforce };
    if *share < MIN_SHARE {
        let what = "a share this small enforces nothing";
        cx.fail(part.enforce.mark, what, "write `mode: observe`, or at least `0.01%`");
    }
    engine::Mode::of_share(*share)
}
