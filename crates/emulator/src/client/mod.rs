//! Open-loop clients: load that does not yield, and the verdict over what came back.
//!
//! Requests of each class leave at instants drawn beforehand, whatever became of earlier ones, as the
//! users of a public service do not wait for one another. Response times count from the *intended*
//! instant, so a slow generator or an exhausted connection pool shows as response time and in
//! counters, and never as a lighter load.
//!
//! ```no_run
//! use std::time::Duration;
//! use weirgate_emulator::Distribution;
//! use weirgate_emulator::client::{ClassPlan, Guarantee, Load, Phase, Plan, Statistic};
//!
//! let mut gold = ClassPlan::new("gold", "127.0.0.1:8080".parse()?, "gold.test");
//! gold.guarantee = Guarantee {
//!     throughput: Some(150.0),
//!     response_time: Some((Statistic::Percentile(95.0), Duration::from_millis(200))),
//!     cost: Some(Duration::from_millis(20)),
//! };
//! let load = Load::poisson(120.0, Distribution::Fixed(Duration::from_millis(20)), "/?demand={us}us");
//! let plan = Plan::new(vec![gold], vec![Phase::new("calm", Duration::from_secs(10), vec![load])]);
//! let report = plan.start()?.join()?;
//! for verdict in report.verdicts() {
//!     println!("{verdict:?}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod connections;
mod exchange;
mod generator;
mod judge;
mod plan;
mod report;
mod run;
mod running;
mod text;
mod thread;

pub use generator::{Due, Generator};
pub use judge::{Ceiling, Floor, Verdict};
pub use plan::{Arrivals, ClassPlan, Guarantee, InvalidPlan, Load, Phase, Plan, Statistic};
pub use report::{ClassPoint, ClassReport, Ended, Failures, PhaseReport, Point, Report, Tally};
pub use running::Running;
pub use text::{Text, digits};
pub use thread::Thread;
