//! Sites of several gateways: the invariant under faults, and how closely shares follow the load.

use std::time::Duration;

use weirgate_sim::site::{Design, Scenario, play};

/// The observer's only demand under faults of all kinds. `cargo run -p weirgate-sim --example site -- seeds 4000` plays
/// more.
#[test]
fn shares_never_exceed_the_floor_under_faults() {
    for seed in 1..=16 {
        let outcome = play(&Scenario::with_faults(), Design::Leases, seed);
        assert_eq!(outcome.exceeded, Duration::ZERO, "seed {seed}: {outcome:?}");
        assert!(outcome.floor_error < 0.6, "seed {seed}: {outcome:?}");
    }
}

#[test]
fn a_steady_overload_is_served_to_the_floor() {
    let steady = Scenario { shift_every: Duration::from_secs(1_000), ..Scenario::default() };
    let outcome = play(&steady, Design::Leases, 1);
    assert!(outcome.floor_error < 0.015 && outcome.lost < 0.01 && outcome.messages_per_s < 40.0, "{outcome:?}");
    let fits = Scenario { load: 0.95, ..steady };
    let outcome = play(&fits, Design::Leases, 1);
    assert!(outcome.floor_error < 0.003 && outcome.lost < 0.001, "{outcome:?}");
}

#[test]
fn a_shift_of_load_is_followed_within_a_second() {
    let outcome = play(&Scenario::default(), Design::Leases, 1);
    let mut follow = outcome.follow.clone();
    follow.sort();
    assert_eq!(follow.len(), 18, "three classes shift six times");
    assert!(follow[9] < Duration::from_millis(400) && follow[17] < Duration::from_secs(1), "{follow:?}");
    assert!(outcome.floor_error < 0.035 && outcome.exceeded.is_zero(), "{outcome:?}");
}

/// Few requests of a small guarantee are lost, although little is known of some ten requests a second.
#[test]
fn a_shift_of_a_small_load_costs_one_request_in_a_hundred() {
    for (floor, lost) in [(100.0, 0.01), (400.0, 0.002)] {
        let scenario = Scenario { floor, load: 0.95, ..Scenario::default() };
        let all: Vec<f64> = (1..=8).map(|seed| play(&scenario, Design::Leases, seed).lost).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!(mean < lost, "{floor}: {all:?}");
    }
}

/// What the alternatives do is why they are not the chosen design.
#[test]
fn the_alternatives_split_badly_or_exceed_the_floor_or_delay_requests() {
    let shifts = Scenario { length: Duration::from_secs(35), ..Scenario::default() };
    assert!(play(&shifts, Design::Split, 1).floor_error > 0.3);
    assert!(play(&shifts, Design::Gossip, 1).exceeded > Duration::from_secs(1));
    let central = play(&shifts, Design::Central, 1);
    assert!(central.added_delay > Duration::from_millis(1) && central.messages_per_s > 1_000.0, "{central:?}");
}
