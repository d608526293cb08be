//! The constants of the judge, in one place, so that their influence can be measured.
//!
//! `cargo run --release -p weirgate-sim --example judge` halves and doubles each of them; `docs/guide/simulator.md` has
//! the table. The settling time is the experiment's own ([`weirgate_experiment::Experiment::settle`]), the length of a tick
//! the meter's ([`crate::IdleMeter`]).

use std::time::Duration;

/// By which figures a run is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Share of what is owed that must be served: one in a hundred may be lost to the grain of counting.
    pub enough: f64,
    /// The same in a window of the reaction: in two seconds of a class at 50/s one in ten is luck.
    pub enough_in_a_window: f64,
    /// What the bucket of a guaranteed rate holds, as time at that rate. Rates are promised per second.
    pub burst: Duration,
    /// Share of what is owed of a class that may be refused though machines idle: a tenth of what a floor allows, as
    /// idle seconds are counted in ticks.
    pub most_avoidable: f64,
    /// How long the windows are in which the reaction is judged: as those of Quorum's figures.
    pub window: Duration,
    /// How long the beginning of a run is in which nobody has seen anything yet; avoidable refusals after it are told
    /// apart.
    pub beginning: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            enough: 0.99,
            enough_in_a_window: 0.9,
            burst: Duration::from_secs(1),
            most_avoidable: 0.001,
            window: Duration::from_secs(2),
            beginning: Duration::from_secs(1),
        }
    }
}
