//! The simulator: a virtual-time driver of the same engine that runs in the gateway.
//!
//! [`run`] plays an experiment (a policy, a cluster, traffic, faults) with one seed and returns a
//! [`Run`](weirgate_experiment::Run): the outcome of every request, samples of the state, and all
//! violations that the checkers found. The same experiment and seed give the same run to the bit.

mod agenda;
pub mod bands;
mod checks;
mod driver;
mod health;
mod late;
mod machine;
pub mod plan;
mod requests;
pub mod swarm;

pub use driver::{run, run_metered};
