//! Page tables: find the route of a request, and learn the cost of each route's requests.
//!
//! Source: Feng and Lin, "Multiple-resource Request Scheduling for Differentiated QoS at Website Gateway"
//! (mQoS), Secs. 3.1 (the page table) and 3.2 (the classifier that looks requests up in it). Departures: the
//! paper lists every page, but here a route is a pattern, because a page with parameters has many addresses.
//! The paper's table is written once by a prober, but here it can be learned from the nodes' use in
//! production.
//!
//! `pattern.rs` and `index.rs` find the route of a request. `windows.rs` finds the requests that were in
//! flight on a node between two reports of its agent. `learner.rs` decides which routes are learned
//! separately. It uses `equations.rs` (the costs of one resource), `change.rs` (a cost that jumped),
//! `slowdown.rs` (routes with unusually long service times) and `sums.rs`. `study.rs` combines the nodes of a
//! site, and `discovery.rs` finds routes in the traffic.
//!
//! The crate is pure: it has no clock, no I/O and no randomness.
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

pub use discovery::{Discovery, MAX_FOUND, OFTEN};
pub use index::Index;
pub use learner::{Estimate, Learner, MAX_APART, RESOURCES, Shares, Window};
pub use pattern::{MAX_PARAMETERS, MAX_SEGMENTS, Pattern};
pub use study::Study;
pub use windows::{Counters, KEPT, LONGEST, MAX_USED, Mute, Outcomes, SHORTEST, Windows};
