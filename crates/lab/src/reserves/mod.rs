//! The experiments of Cluster Reserves on real control groups: what the kernel's scheduler gives four nodes' classes,
//! with shares that stand still and with a manager and agents that move them.
//!
//! Source: Aron, Druschel and Zwaenepoel, "Cluster Reserves" (SIGMETRICS 2000), Secs. 5.2 to 5.4, Figs. 4 to 13. There
//! four machines with Apache served a hundred requests at a time per class. Here a node is a control group with its own
//! part of a CPU (`cluster.rs`), and a class that is busy on a node is a process there that never waits, which is what
//! a server with a full queue is to a scheduler. Manager and agents are the programs that operators run.
//!
//! A [`Scenario`] is played into a [`Recording`], and all recordings make a page and a table with the paper's figures
//! beside ours (`report.rs`). [`chaos()`] kills manager, agents and nodes instead.

mod chaos;
mod cluster;
mod managed;
mod play;
mod recording;
mod report;
mod scenario;

pub use chaos::{Chaos, KILLS, Kill, Victim, chaos};
pub use play::play;
pub use recording::{Recording, Relocation, Sample};
pub use report::{Finding, figures, findings, page, table};
pub use scenario::{Band, Judged, Manager, SCENARIOS, Scenario};

/// The paper's four nodes.
pub const NODES: usize = 4;

/// The paper's five classes, which reserve a fifth of the cluster each.
pub const CLASSES: usize = 5;

/// What each class reserves, in percent.
pub const SHARE: f64 = 100.0 / CLASSES as f64;
