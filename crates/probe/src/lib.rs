//! The prober finds the pages of a server and measures the cost of each in CPU, disk and bandwidth. It also
//! measures the server's capacity for each of these resources, and writes the page table by which `mqos`
//! schedules.
//!
//! Source: Feng and Lin, "Multiple-resource Request Scheduling for Differentiated QoS at Website Gateway",
//! Sec. 3.1. Departures: a page is requested many times and not once, and the idle server's use is
//! subtracted. Pages with similar costs are folded into patterns. robots.txt is respected. An interrupted
//! probe can be continued.
//!
//! [`Probe`] combines all parts. These modules have no clock and no I/O: [`robots`], [`links`], [`frontier`] (pages
//! to visit), [`sample`] and [`linear`] (cost of a request), [`capacity`] (capacity of the server), [`fold`] and
//! [`table`]. `crawl`, `profile` and `load` send requests through `client`, and `monitor` reads the agent's counters.
//! `verdict` derives the cost of a page, and `state` lets an interrupted probe continue.
#![forbid(unsafe_code)]

pub mod capacity;
mod client;
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
pub use state::{Profile, State, state_beside};
pub use url::Url;
