//! Constants of the judge, in one place, so that their influence can be measured.
//!
//! `cargo run --release -p weirgate-sim --example judge` halves and doubles each of them.
//! `docs/guide/simulator.md` has the table. The settling time belongs to the experiment
//! ([`weirgate_experiment::Experiment::settle`]), and the length of a tick to the meter ([`crate::IdleMeter`]).

use std::time::Duration;

/// Constants by which a run is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Fraction of the owed requests that must be served. One in a hundred may be lost to the granularity
    /// of counting.
    pub enough: f64,
    /// Fraction of the owed requests that must be served in a window of the reaction. In two seconds of a
    /// class at 50/s, one in ten is luck.
    pub enough_in_a_window: f64,
    /// Size of the bucket of a guaranteed rate, as time at that rate. Rates are guaranteed per second.
    pub burst: Duration,
    /// Fraction of a class's owed requests that may be refused while machines idle. A tenth of the loss
    /// that a floor allows, because idle seconds are counted in ticks.
    pub max_avoidable: f64,
    /// Length of the windows in which the reaction is judged: that of the windows in Quorum's figures.
    pub window: Duration,
    /// Length of the start of a run, in which nothing has been observed yet. Avoidable refusals after it
    /// are also counted separately.
    pub beginning: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            enough: 0.99,
            enough_in_a_window: 0.9,
            burst: Duration::from_secs(1),
            max_avoidable: 0.001,
            window: Duration::from_secs(2),
            beginning: Duration::from_secs(1),
        }
    }
}
