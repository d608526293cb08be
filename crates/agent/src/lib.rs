//! What runs beside a node. Two things, which one process may do both:
//!
//! - the collector, which says how many requests the node's server is working on. Source: Andreolini et al., "QoS-aware
//!   switching policies for a locally distributed Web system", Sec. 2. There it is a module inside Apache. Here it is a
//!   process that reads the server's own status page, so that the server stays as it is; what such a page does not
//!   tell, the collector does not know (see [`apache`], [`nginx`]). [`Source`] is where the counts come from, [`open`]
//!   and [`serve()`] hand them to gateways as a [`weirgate_config::Report`], with what [`Meter`] says has been used of
//!   the node;
//! - the node's side of Cluster Reserves, which measures what each class uses and sets its share. Source: Aron,
//!   Druschel and Zwaenepoel, Sec. 4. [`Node`] is the whole, [`weirgate_cgroup`] where the kernel counts and shares,
//!   [`monitor`] the node's figures.
#![forbid(unsafe_code)]

pub mod apache;
mod classes;
mod clock;
mod dial;
mod glob;
pub mod monitor;
pub mod nginx;
mod node;
mod record;
#[cfg(test)]
mod scratch;
mod serve;
mod source;
mod usage;

pub use glob::Globs;
pub use node::{Node, Settings};
pub use record::STATE_DIRECTORY;
pub use serve::{REPORT_PATH, open, serve};
pub use source::{Content, Source, StatusPage};
pub use usage::Meter;
