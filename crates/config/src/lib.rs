//! The policy file: from its text to the [`Site`] that a gateway runs.
//!
//! A file takes three steps. `weirgate_spanned_yaml` turns the text into a tree with positions, the declarations in
//! `file` turn the tree into typed records, and `resolve` turns the records into a [`Site`] with every name bound and
//! every pattern compiled. No step stops at the first error: [`Errors`] has all of them, with positions and hints.
//! [`fn@feasibility`] compares the guarantees with the capacity. [`embed`] reads a policy that is part of another file.
//!
//! `load` takes the steps, `address_list` has networks from files, `headers` has the rules for headers, `body` the
//! conditions on bodies, `include` reads files that another file names, `site` is the result, `visitors` has the
//! cookie of returning visitors, `workers` checks the number of workers of a pool, `health` has the rule of `fall`
//! and `rise`, and `reserves_case` reads the optimiser's cases.
//!
//! # Examples
//! ```
//! let text = "
//! listen: 127.0.0.1:8080
//! upstreams: { web: { nodes: [127.0.0.1:9001] } }
//! classes:
//!   - { name: gold, match: { host: gold.test }, guarantee: { throughput: 50/s } }
//!   - { name: rest }
//! ";
//! let loaded = weirgate_config::load("policy.yaml", text).unwrap();
//! assert_eq!(loaded.site.policy.classes[0].guarantee.throughput, Some(50.0));
//!
//! let errors = weirgate_config::load("policy.yaml", "listen: 8080\nclases: []\n").unwrap_err();
//! assert!(errors.to_string().contains("policy.yaml:2:1: clases: this field is unknown; did you mean `classes`?"));
//! ```

mod access_log;
mod address_list;
mod body;
pub mod embed;
mod feasibility;
mod file;
mod headers;
mod health;
mod include;
mod load;
mod reserves_case;
mod resolve;
mod site;
mod telemetry;
mod visitors;
mod workers;

pub use address_list::AddressList;
pub use body::{BodyCondition, JsonPointer};
pub use feasibility::{ClassDemand, Feasibility, PoolDemand, RouteBounds, feasibility};
pub use file::{
    ORIGINAL, UNIX_CLIENT, client_address, client_text, network_text, node_address, page_table_schema, schema,
    socket_path,
};
pub use headers::{FieldTemplate, HeaderEdits, HeaderRules, Piece, Variable, canonical};
pub use health::{HealthCheck, HealthProbe, HealthVerdict};
pub use load::{Loaded, load, load_bytes, load_file};
pub use reserves_case::{MAX_CASE_BYTES, NamedReservesCase, ReservesCase, parse_reserves_cases};
pub use site::*;
pub use telemetry::header_fields;
pub use visitors::{Standing, Visitors};
pub use weirgate_spanned_yaml::errors::{Errors, Position, Problem, located};
pub use weirgate_spanned_yaml::tree::MAX_BYTES;
