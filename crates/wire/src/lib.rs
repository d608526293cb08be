//! Messages between Weirgate's processes.
//!
//! - [`admin`]: the JSON of a gateway's admin API.
//! - [`Report`]: an agent's report of its node, which a collector asks for.
//! - [`FromAgent`] and [`FromCoordinator`]: the messages of Cluster Reserves, sent as lines that [`Link`] seals.
//!   [`reserves_admin`] is the JSON of the coordinator's page.
//! - [`Token`]: the shared secret by which one process proves itself to another.
//!
//! Messages from another machine are bounded and checked here, before anything acts on them.

pub mod admin;
mod link;
mod report;
pub mod reserves_admin;
mod reserves_wire;
mod token;

pub use link::{AgentLink, Challenged, CoordinatorLink, Greeted, Greeting, Lines, Link, LinkError, Nonce};
pub use report::{Active, MAX_REPORT_BYTES, REPORT_VERSION, RESOURCE_NAMES, Report, Usage};
pub use reserves_wire::{FromAgent, FromCoordinator, MAX_LINE, NodeFigures, NodeReport, Trigger, WIRE_VERSION};
pub use token::{Token, bearer};
