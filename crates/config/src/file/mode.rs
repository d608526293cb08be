//! The mode of a class: enforced, observed, or enforced for a share of its sources.

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{Context, Decode, Required};
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::Share;
use weirgate_spanned_yaml::{any_of, record, words};

words! {
    /// Whether decisions are carried out.
    pub(crate) struct ModeWord(engine::Mode) {
        /// Requests wait and are refused as the discipline decides.
        "enforce" => engine::Mode::Enforce,
        /// All requests pass at once. The decisions that would have been carried out are counted and logged.
        "observe" => engine::Mode::Observe,
    }
}

record! {
    /// The part of the sources for which decisions are carried out. Requests of the others are observed.
    pub(crate) struct EnforcedPart {
        /// Share of the sources, as `10%`. A source is always on the same side, and a larger share keeps the sources
        /// of a smaller one.
        enforce: Required<Share>,
    }
}

/// A mode as it is written: a word, or a share of the sources.
#[derive(Clone, Debug)]
pub(crate) enum ModeForm {
    Word(ModeWord),
    Part(Box<EnforcedPart>),
}

impl Decode for ModeForm {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Map(_) => EnforcedPart::decode(node, cx).map(|part| ModeForm::Part(Box::new(part))),
            _ => ModeWord::decode(node, cx).map(ModeForm::Word),
        }
    }
}

any_of! {
    ModeForm = [ModeWord, EnforcedPart];
}
