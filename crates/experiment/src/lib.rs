//! An experiment apart from who plays it.
//!
//! The simulator plays an experiment in virtual time, the lab on real sockets. Both take the same
//! [`traffic`] with the same seeds, know the same [`mod@condition`] of every machine, and leave a [`Run`]:
//! one record per request. [`judge`] says which guarantees held in it, [`oracle`] what was possible, and
//! [`report`] prints both, so that a figure of one can be held against a figure of the other.

mod beliefs;
mod compress;
pub mod condition;
mod idle;
mod judge;
pub mod oracle;
pub mod random;
pub mod report;
mod run;
pub mod scale;
pub mod traffic;

pub use beliefs::{Belief, Beliefs, RouteBeliefs};
pub use compress::compressed;
pub use condition::{Change, Condition, Turn, condition, turns};
pub use idle::{Idle, IdleMeter, KINDS, Occupied};
pub use judge::{
    Avoidable, AvoidableVerdict, CeilingVerdict, ClassUse, ClassVerdict, CostChange, FloorVerdict, Kind, LearnedCost,
    LearnedRoute, LearnedTable, Miss, PageCounts, Part, PhaseCost, PhaseVerdict, Portion, ResourceUse, ResponseTimes,
    Rules, ShedLatency, Sheds, Verdict, ViolationFound, Word, judge, judge_against_oracle, judge_by,
};
pub use run::{Fate, Page, RESOURCES, Record, Run, Sample, Violation, Work};
