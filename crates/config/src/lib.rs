//! Every serialised form of Weirgate: the policy file and its JSON Schema, and the admin JSON.
//!
//! A policy file takes three steps, each in its own module: the text becomes a tree in which every
//! node knows its place (`tree`), the tree becomes typed records (`file`, by `decode`), and the records
//! become a [`Site`] with every name bound and every pattern compiled (`resolve`). No step stops at the
//! first error: [`Errors`] has all of them, with their places and what to do.

pub mod admin;
mod decode;
mod errors;
mod feasibility;
mod file;
mod load;
mod resolve;
mod site;
mod tree;
mod unit;

pub use errors::{Errors, Place, Problem, located};
pub use feasibility::{ClassDemand, Feasibility, PoolDemand, feasibility};
pub use file::schema;
pub use load::{Loaded, load, load_bytes, load_file};
pub use site::*;
pub use tree::MAX_BYTES;
