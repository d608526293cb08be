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
//!
//! # Examples
//! ```
//! use weirgate_pages::{Index, Learner, Pattern, RESOURCES, Study};
//!
//! let routes = ["/album/*", "/album/new", "/search?page=*"].map(|route| Pattern::parse(route).unwrap());
//! let index = Index::new(routes.to_vec());
//! assert_eq!(index.find("/album/7", None), Some(0));
//! // The most specific route is found.
//! assert_eq!(index.find("/album/new", None), Some(1));
//! assert_eq!(index.find("/search", None), None);
//!
//! // Node 1 has two CPUs. Each request for an album takes 20 ms of one of them, which is 1 % of the node's second.
//! let mut study = Study::new(Learner::new([None; 3]), [None; RESOURCES]);
//! study.follow([(1, 1.0)]);
//! let mut cpu_seconds = 0.0;
//! for second in 0..60 {
//!     let now = f64::from(second);
//!     study.reported(1, 1, now, [Some(cpu_seconds), None, None], [Some(2.0), None, None]);
//!     for request in 0..second % 20 {
//!         let from = now + 0.04 * f64::from(request);
//!         study.finished(1, Some(0), (from, from + 0.05), true);
//!         cpu_seconds += 0.02;
//!     }
//! }
//! let cost = study.learner.cost(0).unwrap();
//! assert!((cost[0] - 0.01).abs() < 0.0005, "{cost:?}");
//! // No request for a search was seen, so its cost is unknown.
//! assert_eq!(study.learner.cost(2), None);
//! ```
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
pub use learner::{Estimate, Learned, Learner, MAX_APART, RESOURCES, Shares, Window};
pub use pattern::{MAX_PARAMETERS, MAX_SEGMENTS, Pattern, write_route};
pub use study::Study;
pub use windows::{Counters, KEPT, LONGEST, MAX_USED, Mute, Outcomes, SHORTEST, Windows};
