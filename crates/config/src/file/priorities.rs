//! Priorities of waiting requests, for the discipline `seda` and disciplines composed of its parts.

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{At, Defaulted, FromText, Optional, Required};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::unit::{Amount, Count, Name, Share};
use weirgate_spanned_yaml::{any_of, record, words};

record! {
    /// SEDA's differentiated queues (Le Baron and Elkan): admission by thresholds, order by priority.
    pub(crate) struct Seda {
        /// Threshold of each upstream's queue, in waiting requests. 50 by default, as in the paper.
        threshold: Defaulted<Count> = 50,
        /// Requests in flight at a node per CPU (its `capacity`, else its `weight`), which correspond to the threads
        /// of a stage. 1 by default, because further requests would wait in the node, beyond the gateway's control.
        threads: Defaulted<Amount> = 1,
        /// The order in which waiting requests are released.
        scheduling: Defaulted<Scheduling> = "reenqueue",
        /// Table of priorities, from the lowest to the highest. By default the paper's: `basic`, `again`, `premium`.
        priorities: Optional<Vec<At<PriorityForm>>>,
    }
}

words! {
    /// How priorities order a queue.
    pub(crate) struct Scheduling(engine::Precedence) {
        /// Order of arrival. A request that may not be handled yet goes back to the end. As published.
        "reenqueue" => engine::Precedence::Reenqueue,
        /// Highest priority first, the last of the table: a true priority queue.
        "priority" => engine::Precedence::Priority,
    }
}

record! {
    /// A priority, the state of a waiting request.
    pub(crate) struct PriorityForm {
        /// Its unique name.
        name: Required<Name>,
        /// The priority is admitted to queues shorter than this many times the threshold.
        threshold: Defaulted<Amount> = 1,
        /// Maximum number of requests of this priority that wait for an upstream.
        quota: Optional<Count>,
        /// Share of its requests that is admitted to a longer queue, as long as any priority is.
        beyond: Defaulted<Share> = "0%",
        /// Action when the turn of a request comes: `always` handled, `never` handled (put back), `highest`
        /// (put back while a request of a higher priority waits), or the share of requests that is handled.
        handle: Defaulted<HandleForm> = "always",
        /// Priority of the request after it was put back. Unchanged by default.
        reenqueued: Optional<Name>,
    }
}

/// Action when a request's turn comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandleForm(pub(crate) engine::Handle);

impl FromText for HandleForm {
    const EXPECTED: &'static str = "`always`, `never`, `highest` or a share such as `50%`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text {
            "always" => Ok(HandleForm(engine::Handle::Always)),
            "never" => Ok(HandleForm(engine::Handle::Never)),
            "highest" => Ok(HandleForm(engine::Handle::Highest)),
            share if share.starts_with(|c: char| c.is_ascii_digit()) => {
                Share::from_text(share).map(|Share(share)| HandleForm(engine::Handle::Chance(share)))
            }
            word => Err(weirgate_spanned_yaml::decode::unknown_word(word, &["always", "never", "highest"])),
        }
    }
}

any_of! {
    HandleForm: "What happens when a request's turn comes." = [{ "enum": ["always", "never", "highest"] }, Share];
}
