//! Four real Apache servers with PHP behind Weirgate and behind HAProxy, under the same load.
//!
//! Two classes share the servers. Class A stays within its guarantee; class B surges to four times its
//! rate, and later costs five times as much a request. The claim: with Weirgate A keeps its throughput and its response
//! time throughout, with HAProxy's `leastconn` it does not. `README.md` beside this crate tells how it is
//! measured; [`run`] does it, [`Outcome`] judges and reports it.
//!
//! The experiment follows Blanquer et al., *Quorum* (NSDI 2005), Secs. 4.2 and 4.3 (a surge, requests
//! that become dearer), on one machine: the servers have one core together, everything else another.

mod calibration;
mod cluster;
mod experiment;
mod fetch;
mod machine;
mod outcome;
mod process;
mod proxy;
mod setup;
mod template;
mod terms;

pub use calibration::Calibration;
pub use cluster::missing_packages;
pub use experiment::{Options, Scale, run};
pub use outcome::{Outcome, Run};
pub use proxy::Proxy;
pub use setup::{load_average, setup};
pub use terms::{Contract, Terms};
