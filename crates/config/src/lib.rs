//! All serialised forms of Weirgate: the policy file, the experiment file, their JSON Schemas, agents'
//! reports, and the admin JSON.
//!
//! A policy file takes three steps, each in its own module: the text becomes a tree in which every node knows
//! its place (`tree`), the tree becomes typed records (`file`, by `decode`), and the records become a
//! [`Site`] with every name bound and every pattern compiled (`resolve`). No step stops at the first error:
//! [`Errors`] has all of them, with places and hints. An experiment file takes the same steps and becomes an
//! [`Experiment`]. Before the second step, `--set` changes its tree (`overrides`).

pub mod embed;
mod feasibility;
mod file;
mod health;
mod include;
mod load;
mod reserves_case;
mod resolve;
mod site;
mod workers;

pub use feasibility::{ClassDemand, Feasibility, PoolDemand, RouteBounds, feasibility};
pub use file::{page_table_schema, schema};
pub use health::HealthVerdict;
pub use load::{Loaded, load, load_bytes, load_file, load_page_table};
pub use reserves_case::{MAX_CASE_BYTES, NamedReservesCase, ReservesCase, parse_reserves_cases};
pub use site::*;
pub use weirgate_spanned_yaml::errors::{Errors, Place, Problem, located};
pub use weirgate_spanned_yaml::tree::MAX_BYTES;
