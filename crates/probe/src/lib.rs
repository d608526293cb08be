//! The prober: finds the pages of a server, measures what each costs in CPU, disk and bandwidth, finds out how much of
//! each the server has, and writes the page table by which `mqos` schedules.
//!
//! Source: Feng and Lin, "Multiple-resource Request Scheduling for Differentiated QoS at Website Gateway", Sec. 3.1.
//! Departures: a page is requested often rather than once, with the idle server's use taken away; pages that cost alike
//! are folded into patterns; robots.txt is respected; and a probe that was interrupted goes on.
//!
//! [`Probe`] is the whole. Without clock and I/O are [`robots`], [`links`], [`frontier`] (what to visit), [`sample`]
//! and [`linear`] (what a request uses), [`capacity`] (what the server has), [`fold`] and [`table`].
#![forbid(unsafe_code)]

pub mod capacity;
mod client;
mod clock;
mod crawl;
pub mod fold;
pub mod frontier;
pub mod linear;
pub mod links;
mod load;
pub mod monitor;
mod probe;
mod profile;
pub mod robots;
pub mod sample;
mod state;
pub mod table;
mod verdict;

pub use client::{AGENT, Answer, Target};
pub use probe::{Options, Probe, Progress};
pub use profile::Effort;
pub use state::{Profile, State, replace, state_beside};
pub use url::Url;
