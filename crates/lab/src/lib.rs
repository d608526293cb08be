//! The lab: an experiment on real sockets and real processes.
//!
//! A *trial* is one experiment under one *approach* (Weirgate with a discipline, or a peer) with one
//! seed: [`nodes`] stand behind a gateway from [`gateways`], [`load`] sends the experiment's traffic, and
//! what comes back is a [`weirgate_experiment::Run`], judged by the judge that the simulator uses.
//! Several trials make a run directory, which [`report`] prints and compares.

pub mod clock;
pub mod gateways;
pub mod load;
pub mod nodes;
pub mod process;
pub mod report;
