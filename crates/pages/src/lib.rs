//! Page tables: which route a request is of, and what requests of a route cost.
//!
//! Source: Feng and Lin, "Multiple-resource Request Scheduling for Differentiated QoS at Website Gateway" (mQoS), Secs.
//! 3.1 (the page table) and 3.2 (the classifier that looks requests up in it). Departure: the paper lists every page; here
//! a route is a pattern, because a page with parameters is many addresses.
//!
//! All of it is pure: no clock, no I/O, no randomness.
#![forbid(unsafe_code)]

mod index;
mod pattern;

pub use index::Index;
pub use pattern::{MOST_PARAMETERS, MOST_SEGMENTS, Pattern};
