//! The simulator: a virtual-time driver of the same engine that runs in the gateway.
//!
//! [`run`] plays an experiment (a policy, a cluster, traffic, faults) with one seed and returns a
//! [`Run`](weirgate_experiment::Run): the outcome of every request, samples of the state, and all
//! violations that the checkers found. The same experiment and seed give the same run to the bit.
//!
//! # Modules
//! - The driver: `driver` (virtual time around the engine), `agenda` (the next event), `requests`, `machine`, `health`,
//!   `late` (time limits of the gateway).
//! - `checks`: invariants of every run, from accounts of their own.
//! - [`parallel`]: several runs at once.
//! - [`plan`]: the smallest cluster for an experiment.
//! - [`bands`]: figures of papers and the allowed distance from them, one module per paper.
//! - [`swarm`]: random experiments with guarantees that fit. `ideas` and `everyday` make them, `fair` and `starved`
//!   are rules for their results.
//! - [`gateways`]: several gateways in front of the same nodes, with their engines.
//! - [`site`]: several gateways that share floors, under designs of this sharing, without requests.

mod agenda;
pub mod bands;
mod checks;
mod driver;
pub mod gateways;
mod health;
mod late;
mod machine;
pub mod parallel;
pub mod plan;
mod requests;
pub mod site;
pub mod swarm;

pub use driver::{run, run_metered};
