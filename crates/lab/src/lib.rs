//! The lab: an experiment on real sockets and real processes.
//!
//! A [`trial`] is one experiment under one approach (Weirgate with a discipline, or a peer) with one
//! seed: machines ([`backing`]: emulated [`nodes`], or real [`services`]) stand behind a gateway from
//! [`gateways`], [`load`] sends the experiment's traffic, and what comes back is a
//! [`weirgate_experiment::Run`], judged by the judge that the simulator uses. [`proof`] holds the ids that
//! clients saw against those that nodes answered. Several trials make a [`campaign`], whose directory
//! [`report`] writes, prints and compares; [`provision`] asks how many CPUs an approach needs.

pub mod backing;
pub mod campaign;
pub mod evidence;
pub mod gateways;
pub mod load;
pub mod nodes;
pub mod process;
pub mod programs;
pub mod proof;
pub mod provision;
pub mod report;
pub mod reserves;
pub mod services;
pub mod trial;
