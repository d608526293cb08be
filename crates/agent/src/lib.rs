//! The agent on a node. It has two functions, and one process may have both:
//!
//! - The collector reports the number of requests that the node's server is serving. Source: Andreolini et
//!   al., "QoS-aware switching policies for a locally distributed Web system", Sec. 2. There it is a module
//!   in Apache. Here it is a process that reads the server's own status page, so that the server stays
//!   unchanged. The collector knows only what such a page shows (see [`apache`], [`nginx`]). [`Source`]
//!   provides the counts. [`routes`] shows them to gateways as a [`weirgate_wire::Report`],
//!   together with the node's resource use from [`Meter`].
//! - The node's side of Cluster Reserves measures the usage of each class and sets its share. Source: Aron,
//!   Druschel and Zwaenepoel, Sec. 4. [`Node`] combines its parts, [`weirgate_cgroup`] accesses the kernel's
//!   counters and shares, and [`monitor`] provides the node's figures. `classes` finds the cgroups of each class,
//!   `record` keeps their original values, and `dial` holds the session with the coordinator.
#![forbid(unsafe_code)]

pub mod apache;
mod classes;
mod dial;
mod glob;
pub mod monitor;
pub mod nginx;
mod node;
mod record;
mod report;
mod source;
mod usage;

pub use glob::Globs;
pub use node::{Node, Settings};
pub use record::STATE_DIRECTORY;
pub use report::{REPORT_PATH, routes};
pub use source::{Content, Source, StatusPage};
pub use usage::Meter;
