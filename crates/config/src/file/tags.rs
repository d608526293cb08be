//! Tags: states of waiting requests, for the discipline `seda` and what is made of its parts.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_spanned_yaml::decode::{At, Defaulted, FromText, Optional, Required};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::unit::{Amount, Count, Name, Share};
use weirgate_spanned_yaml::{record, words};

record! {
    /// SEDA's differentiated queues (Le Baron and Elkan): admission by thresholds, order by tags.
    pub(crate) struct Seda {
        /// Threshold of each upstream's queue, in waiting requests. 50 by default, as in the paper.
        threshold: Defaulted<Count> = 50,
        /// Requests inside a node per CPU (its `capacity`, else its `weight`): the threads of a stage. 1 by default:
        /// more would wait in the node, out of reach.
        threads: Defaulted<Amount> = 1,
        /// Whose turn it is.
        scheduling: Defaulted<Scheduling> = "reenqueue",
        /// The table of tags, from the last to be served to the first. By default the paper's: `basic`,
        /// `again`, `premium`.
        tags: Optional<Vec<At<TagForm>>>,
    }
}

words! {
    /// How tags order a queue.
    pub(crate) enum Scheduling {
        /// Order of arrival; a request that is not to be handled yet goes back to the end. As published.
        Reenqueue = "reenqueue",
        /// The tag that comes last in the table first: a true priority queue.
        Priority = "priority",
    }
}

record! {
    /// A tag: the state of a waiting request.
    pub(crate) struct TagForm {
        /// Its unique name.
        name: Required<Name>,
        /// It is admitted to queues shorter than so many times the threshold.
        threshold: Defaulted<Amount> = 1,
        /// Most requests with this tag that wait for an upstream.
        quota: Optional<Count>,
        /// Which share is admitted to a longer queue, as long as any tag is.
        beyond: Defaulted<Share> = "0%",
        /// What happens when its turn comes: `always` handled, `never` (put back), `highest` (put back while a tag that
        /// comes later in the table waits), or the share that is handled.
        handle: Defaulted<HandleForm> = "always",
        /// The tag that it has after it was put back; its own by default.
        reenqueued: Optional<Name>,
    }
}

/// What happens when a request's turn comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HandleForm {
    /// It is handled.
    Always,
    /// It is put back.
    Never,
    /// It is put back while a higher tag waits.
    Highest,
    /// This share is handled.
    Chance(Share),
}

impl FromText for HandleForm {
    const EXPECTED: &'static str = "`always`, `never`, `highest` or a share such as `50%`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text {
            "always" => Ok(HandleForm::Always),
            "never" => Ok(HandleForm::Never),
            "highest" => Ok(HandleForm::Highest),
            share if share.starts_with(|c: char| c.is_ascii_digit()) => Share::from_text(share).map(HandleForm::Chance),
            word => Err(weirgate_spanned_yaml::decode::unknown_word(word, &["always", "never", "highest"])),
        }
    }
}

impl JsonSchema for HandleForm {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HandleForm".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let share = generator.subschema_for::<Share>();
        json_schema!({
            "description": "What happens when a request's turn comes.",
            "anyOf": [{ "enum": ["always", "never", "highest"] }, share],
        })
    }
}
