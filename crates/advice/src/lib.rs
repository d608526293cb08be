//! First policies, for a person who does not know Weirgate yet.
//!
//! - [`log`] reads access logs of nginx, Apache, HAProxy and Weirgate, and [`Tally`] counts their requests in memory of
//!   constant size. [`from_logs`] proposes a policy from them.
//! - [`Watch`] proposes one from the observations of a running gateway.
//! - [`Answers`] makes one from a few answers, and [`import()`] from a configuration of nginx or HAProxy.
//!
//! Every proposal has a comment with the reason for each figure. The crate is pure: the caller opens files and sockets.
//! No input makes it panic, and `weirgate check` accepts every proposal.
//!
//! `tally` counts, `propose` derives figures, `policy` writes the file, `names` and `crawlers` decide on conditions,
//! and `numbers` rounds.

mod ask;
mod crawlers;
mod gateway;
mod import;
pub mod log;
mod names;
mod numbers;
mod policy;
mod propose;
mod tally;

pub use ask::{Answers, QUESTIONS, Question};
pub use gateway::{LOOK_EVERY_SECONDS, RunningPolicy, Watch};
pub use import::{Imported, MAX_CONFIG_BYTES, Source, import};
pub use propose::{Proposal, from_logs};
pub use tally::Tally;
