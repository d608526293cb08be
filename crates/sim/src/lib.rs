//! The simulator: a virtual-time driver of the same engine that runs in the gateway.
//!
//! [`run`] plays an experiment (a policy, a cluster, traffic, faults) with one seed and returns a
//! [`Run`]: what became of every request, samples of the state, and whatever the checkers found.
//! [`judge`] says which guarantees held. The same experiment and seed give the same run to the bit.

mod agenda;
mod checks;
mod driver;
pub mod flow;
mod health;
mod judge;
mod late;
mod machine;
pub mod oracle;
pub mod plan;
mod random;
pub mod report;
mod requests;
mod run;
pub mod swarm;
mod traffic;

pub use driver::run;

pub use judge::{
    CeilingVerdict, ClassVerdict, FloorVerdict, Kind, Miss, Part, PhaseVerdict, ResponseTimes, ShedLatency, Sheds,
    Verdict, ViolationFound, Word, judge, judge_against_oracle,
};
pub use run::{Fate, Record, Run, Sample, Violation};
