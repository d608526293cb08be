//! Replay: an access log of the gateway, played through the simulator under another policy.
//!
//! A log is read ([`read`]) and each request gets its class under a policy ([`Side`]). Its time on a quiet node is
//! computed from the measured one ([`mod@costs`]). The requests become an experiment whose traffic is a trace
//! ([`experiment`]), which the simulator plays as any other. [`Outcome`] compares the result with the log.
//!
//! # Modules
//! - `read`: files, gzip and lines. `requests`: the requests of a log in memory, and its bound.
//! - `side`: a policy, and the classes of logged requests under it.
//! - `costs`: quiet service times. `cluster`: machines for the nodes of a policy. `outages`: when they were out.
//!   `build`: the experiment.
//! - `play`: the simulation, its verdict, and the machines needed. `outcome`: figures per class. `report`: these as a
//!   table and as JSON.
//! - [`diff`]: differences between two policies. `decisions`: requests that they decide differently.
//! - `written`: a simulated run as an access log, so that a replay can be checked against a known truth.
#![forbid(unsafe_code)]

mod build;
pub mod cluster;
pub mod costs;
mod decisions;
pub mod diff;
mod outages;
mod outcome;
mod play;
mod read;
pub mod report;
mod requests;
mod side;
mod written;

pub use build::{Recording, experiment};
pub use cluster::add_discovered;
pub use decisions::{Decision, Move, Moves, decisions, fates};
pub use outages::{Outage, outages};
pub use outcome::{ClassOutcome, Outcome, of_log, of_run};
pub use play::{Result, machines_needed, play};
pub use read::{Lines, Source, read};
pub use requests::{Ending, Logged, MAX_REQUESTS, Requests, Selection};
pub use side::{Assigned, How, Side};
pub use written::write_log;
