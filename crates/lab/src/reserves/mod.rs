//! The experiments of Cluster Reserves on real control groups. They measure the CPU time that the kernel's scheduler
//! gives to the classes of four nodes, with fixed shares, and with a coordinator and agents that move them.
//!
//! Source: Aron, Druschel and Zwaenepoel, "Cluster Reserves" (SIGMETRICS 2000), Secs. 5.2 to 5.4, Figs. 4
//! to 13. There, four machines with Apache served a hundred requests at a time per class. Here, a node is a
//! control group with its own part of a CPU (`cluster.rs`). A class that is busy on a node is a process
//! that never waits, which looks to a scheduler like a server with a full queue. Coordinator and agents are the
//! programs that you run in production.
//!
//! Playing a [`Scenario`] gives a [`Recording`], and all recordings make a page and a table with the
//! paper's figures next to ours (`report.rs`). [`chaos()`] kills coordinator, agents and nodes instead.

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
pub use scenario::{Band, Coordinator, Judged, SCENARIOS, Scenario};

/// Number of nodes, as in the paper.
pub const NODES: usize = 4;

/// Number of classes, as in the paper. Each reserves a fifth of the cluster.
pub const CLASSES: usize = 5;

/// Share of the cluster that each class reserves, in percent.
pub const SHARE: f64 = 100.0 / CLASSES as f64;
