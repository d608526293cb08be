//! Policies for newcomers: what a person who does not know Weirgate needs to write a first one.
//!
//! - [`log`] reads access logs of nginx, Apache, HAProxy and Weirgate, and [`Tally`] counts their requests in memory of
//!   constant size. [`from_logs`] proposes a policy from them.
//! - [`Watch`] proposes one from what a running gateway observes.
//! - [`Answers`] makes one of a few answers, and [`import()`] of a configuration of nginx or HAProxy.
//!
//! Every proposal has the reason for each figure as a comment beside it. It is pure: files and sockets are opened by
//! the caller. No input panics, and what is proposed is a policy that `weirgate check` accepts.
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
