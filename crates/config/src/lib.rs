//! Every serialised form of Weirgate: the policy file, the experiment file, their JSON Schemas, agents' reports,
//! and the admin JSON.
//!
//! A policy file takes three steps, each in its own module: the text becomes a tree in which every
//! node knows its place (`tree`), the tree becomes typed records (`file`, by `decode`), and the records
//! become a [`Site`] with every name bound and every pattern compiled (`resolve`). No step stops at the
//! first error: [`Errors`] has all of them, with their places and what to do. An experiment file takes the
//! same steps and becomes an [`Experiment`]; before the second, `--set` changes its tree (`overrides`).

pub mod admin;
pub mod embed;
mod feasibility;
mod file;
mod health;
mod include;
mod link;
mod load;
mod report;
pub mod reserves_admin;
mod reserves_case;
mod reserves_wire;
mod resolve;
mod site;
mod token;
mod workers;

pub use feasibility::{ClassDemand, Feasibility, PoolDemand, RouteBounds, feasibility};
pub use file::{page_table_schema, schema};
pub use health::HealthVerdict;
pub use link::{AgentLink, Challenged, Greeted, Greeting, Lines, Link, LinkError, ManagerLink, Nonce};
pub use load::{Loaded, load, load_bytes, load_file, load_page_table};
pub use report::{Active, MAX_REPORT_BYTES, REPORT_VERSION, Report, USAGE_RESOURCES, Usage};
pub use reserves_case::{MAX_CASE_BYTES, NamedReservesCase, ReservesCase, parse_reserves_cases};
pub use reserves_wire::{FromAgent, FromManager, MAX_LINE, NodeFigures, NodeReport, Trigger, WIRE_VERSION};
pub use site::*;
pub use token::{Token, bearer};
pub use weirgate_spanned_yaml::errors::{Errors, Place, Problem, located};
pub use weirgate_spanned_yaml::tree::MAX_BYTES;
