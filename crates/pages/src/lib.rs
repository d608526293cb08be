//! Page tables: which route a request is of, and what requests of a route cost.
//!
//! Source: Feng and Lin, "Multiple-resource Request Scheduling for Differentiated QoS at Website Gateway" (mQoS), Secs.
//! 3.1 (the page table) and 3.2 (the classifier that looks requests up in it). Departures: the paper lists every page,
//! here a route is a pattern, because a page with parameters is many addresses; and the paper's table is written once
//! by a prober, while here it can be learned from what the nodes use in production.
//!
//! `pattern.rs` and `index.rs` say of which route a request is; `windows.rs` which requests worked on a node between
//! two reports of its agent; `learner.rs` which routes are learned, with `equations.rs` (one resource), `change.rs` (a
//! cost that jumped), `slowdown.rs` (whose requests stay too long) and `sums.rs`; `study.rs` holds the nodes of a site
//! together; `discovery.rs` finds routes in the traffic.
//!
//! All of it is pure: no clock, no I/O, no randomness.
#![forbid(unsafe_code)]

mod change;
mod discovery;
mod equations;
mod index;
mod learner;
mod pattern;
mod slowdown;
mod study;
mod sums;
mod windows;

pub use discovery::{Discovery, MOST_FOUND, OFTEN};
pub use index::Index;
pub use learner::{Estimate, Learner, MOST_APART, RESOURCES, Shares, Window};
pub use pattern::{MOST_PARAMETERS, MOST_SEGMENTS, Pattern};
pub use study::Study;
pub use windows::{Counters, KEPT, LONGEST, MOST_USED, Mute, Outcomes, SHORTEST, Windows};
