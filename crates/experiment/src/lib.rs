//! An experiment: the file, the traffic that it describes, and the records that a run of it leaves.
//!
//! A file takes the same steps as a policy: a tree with positions, typed records (`file`), and the [`Experiment`] with
//! every name bound (`resolve`). Before the second step `--set` changes the tree.
//!
//! The simulator plays an experiment in virtual time, the lab on real sockets. Both take the same [`traffic`] with
//! the same seeds, know the same [`mod@condition`] of every machine, and leave a [`Run`]: one record per request.
//!
//! # Modules
//! - From file to experiment: `load`, `file`, `resolve`, `experiment`, `distribution`.
//! - From programs to experiment: `plain`.
//! - Other versions of an experiment: `compress` (in less time), [`scale`] (with other machines and guarantees),
//!   `deploy` (its policy as a file for a real gateway).
//! - Inputs of a run: [`traffic`], [`mod@condition`], [`random`], [`normal`].
//! - Results of a run: `run`, `idle` (unused capacity over time), `learned_costs` (learned costs over time).

mod compress;
pub mod condition;
mod deploy;
mod distribution;
mod experiment;
mod file;
mod grid;
mod idle;
mod learned_costs;
mod load;
pub mod normal;
mod plain;
pub mod random;
mod resolve;
mod run;
pub mod scale;
pub mod traffic;

pub use compress::{compressed, lasting};
pub use condition::{Change, Condition, Turn, availability, condition, turns};
pub use deploy::{Deployed, Deployment, deployed_policies};
pub use distribution::{Counts, Distribution, Tail};
pub use experiment::*;
pub use file::experiment_schema;
pub use grid::{GridCell, GridRow};
pub use idle::{Idle, IdleMeter, KINDS, Occupied};
pub use learned_costs::{CostEstimate, LearnedCosts, RouteCosts};
pub use load::{LoadedExperiment, is_experiment, load_experiment, load_experiment_file, under_discipline};
pub use run::{Fate, Page, RESOURCES, Record, Run, Sample, Violation, Work};
pub use weirgate_emulator::{Disk, Thrashing};
