//! What runs beside a node: for now the collector, which says how many requests the node's server is working on.
//!
//! Source: Andreolini et al., "QoS-aware switching policies for a locally distributed Web system", Sec. 2. There the
//! collector is a module inside Apache. Here it is a process that reads the server's own status page, so that the
//! server stays as it is; what such a page does not tell, the collector does not know (see [`apache`], [`nginx`]).
//!
//! [`Source`] is where the counts come from, [`open`] and [`serve`] hand them to gateways as a
//! [`weirgate_config::Report`].

pub mod apache;
mod clock;
mod glob;
pub mod nginx;
mod serve;
mod source;

pub use glob::Globs;
pub use serve::{REPORT_PATH, open, serve};
pub use source::{Content, Source, StatusPage};
