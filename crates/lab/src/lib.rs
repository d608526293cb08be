//! The lab: an experiment on real sockets and real processes.
//!
//! A [`trial`] is one experiment under one approach (Weirgate with a discipline, or a peer) with one seed.
//! Machines ([`servers`]: emulated [`nodes`], or real [`services`]) stand behind a gateway from
//! [`gateways`], and [`load`] sends the experiment's traffic. The result is a [`weirgate_experiment::Run`],
//! which the judge of the simulator judges. [`proof`] compares the ids that clients saw with those that
//! nodes answered. Several trials make a [`campaign`], and [`report`] writes, prints and compares its
//! directory. [`provision`] finds the number of CPUs that an approach needs.
//!
//! [`evidence`] accounts for the requests and the delays of the lab itself. [`process`] starts programs and ends them
//! with the trial. [`programs`] finds and installs the peers. [`mod@reserves`] plays Cluster Reserves on real control
//! groups.

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
pub mod servers;
pub mod services;
pub mod trial;
