//! The verdict on a run of an experiment.
//!
//! The simulator and the lab leave the same [`weirgate_experiment::Run`]: one record per request. [`judge`] tells
//! which guarantees held in it, [`oracle`] what was possible, and [`report`] prints both as tables and pictures. A
//! figure of the simulator can therefore be compared with the same figure of the lab.
//!
//! In `judge`, `bucket` and `owed` find the requests that a guarantee covers, `class` and `statistic` judge them,
//! `avoidable` compares refusals with idle capacity, and `rules` has all constants. `resources` has the use of CPUs,
//! disks and links by class. `learned` compares a learned page table with the actual costs from `actual`.

mod judge;
pub mod oracle;
pub mod report;

pub use judge::{
    Avoidable, AvoidableVerdict, CeilingVerdict, ClassUse, ClassVerdict, CostChange, FloorVerdict, Kind, LearnedCost,
    LearnedRoute, LearnedTable, Miss, PageCounts, Part, PhaseCost, PhaseVerdict, Portion, ResourceUse, ResponseTimes,
    Rules, ShedLatency, Sheds, Verdict, ViolationFound, Word, judge, judge_against_oracle, judge_by, percentile,
};
