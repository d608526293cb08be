//! Compares runs with the results of queueing theory.

mod support;

use std::time::Duration;

use support::{experiment, exponential, ms, open, policy, sound, users};
use weirgate_experiment::{Distribution, Fate, Profile, Record, Run};

const PLAIN: &str = "classes: [{ name: all }]";

fn times(run: &Run) -> impl Iterator<Item = f64> {
    let served = run.records.iter().filter(|record| record.fate == Fate::Served);
    served.map(|record: &Record| (record.ended - record.arrived) as f64 / 1e9)
}

fn mean(run: &Run) -> f64 {
    times(run).sum::<f64>() / times(run).count() as f64
}

/// M/G/1 with processor sharing: E[T] = E[S] / (1 − ρ), for any distribution of demands.
#[test]
fn processor_sharing_is_insensitive_to_the_distribution() {
    let hyper = Distribution::HyperExponential { p: 0.9, first: ms(5), second: ms(55), max: Duration::from_secs(60) };
    for cpu in [Distribution::Fixed(ms(10)), exponential(ms(10)), hyper] {
        for rho in [0.3, 0.7] {
            let mut experiment = experiment(&policy(1, "none", "", PLAIN), 1, 3000);
            experiment.traffic.push(open(0, rho * 100.0, cpu));
            let run = sound(&experiment, 5);
            let expected = 0.010 / (1.0 - rho);
            assert!((mean(&run) / expected - 1.0).abs() < 0.05, "{cpu:?} at {rho}: {} of {expected}", mean(&run));
        }
    }
}

/// M/M/2 with processor sharing has the mean response time of M/M/2: S / (1 − ρ²).
#[test]
fn two_processors_are_those_of_erlang() {
    for rho in [0.5f64, 0.8] {
        let mut experiment = experiment(&policy(1, "none", "", PLAIN), 2, 3000);
        experiment.traffic.push(open(0, rho * 200.0, exponential(ms(10))));
        let run = sound(&experiment, 6);
        let expected = 0.010 / (1.0 - rho * rho);
        assert!((mean(&run) / expected - 1.0).abs() < 0.05, "at {rho}: {} of {expected}", mean(&run));
    }
}

/// A queue before the server's workers: M/M/2 with first come, first served has the same mean.
#[test]
fn a_concurrency_limit_makes_a_queue() {
    let mut experiment = experiment(&policy(1, "none", "", PLAIN), 2, 3000);
    experiment.machines[0].concurrency = Some(2);
    experiment.traffic.push(open(0, 160.0, exponential(ms(10))));
    let run = sound(&experiment, 6);
    let expected = 0.010 / (1.0 - 0.64);
    assert!((mean(&run) / expected - 1.0).abs() < 0.05, "{} of {expected}", mean(&run));
}

/// I/O adds its mean and takes no CPU. The network adds a delay each way.
#[test]
fn io_and_network_add_up() {
    let mut experiment = experiment(&policy(1, "none", "", PLAIN), 1, 1000);
    experiment.network_delay = ms(2);
    experiment.traffic.push(open(0, 50.0, exponential(ms(10))));
    experiment.traffic[0].demand[0].io = exponential(ms(30));
    let run = sound(&experiment, 7);
    let expected = 0.010 / 0.5 + 0.030 + 0.004;
    assert!((mean(&run) / expected - 1.0).abs() < 0.04, "{} of {expected}", mean(&run));
    // Utilisation is ρ.
    let busy = run.samples.last().expect("samples").busy[0] / 1000.0;
    assert!((busy / 0.5 - 1.0).abs() < 0.03, "busy {busy}");
}

/// A closed loop: X ≤ min(N / (Z + D), c / D), and close to either bound far from the knee. N = X·(R + Z).
#[test]
fn a_closed_loop_keeps_its_bounds() {
    for (n, expected) in [(10.0, 10.0 / 1.01), (1000.0, 200.0)] {
        let mut experiment = experiment(&policy(1, "none", "", PLAIN), 2, 400);
        let think = exponential(ms(1000));
        experiment.traffic.push(users(0, Profile::constant(n), think, exponential(ms(10))));
        let run = sound(&experiment, 8);
        let late: Vec<&Record> =
            run.records.iter().filter(|r| r.fate == Fate::Served && r.ended > 100_000_000_000).collect();
        let rate = late.len() as f64 / 300.0;
        assert!((rate / expected - 1.0).abs() < 0.04, "{n} users: {rate}/s of {expected}");
        let response = late.iter().map(|r| (r.ended - r.arrived) as f64 / 1e9).sum::<f64>() / late.len() as f64;
        assert!((rate * (response + 1.0) / n - 1.0).abs() < 0.05, "Little's law: {} of {n}", rate * (response + 1.0));
        let max = run.samples.iter().map(|sample| sample.outstanding).max();
        assert!(max <= Some(n as u32), "no user has two requests");
    }
}

/// Thrashing: with n requests always in the server, the speed is 1 / (1 + penalty × (n − beyond)).
#[test]
fn thrashing_divides_the_speed_by_what_is_inside() {
    let mut experiment = experiment(&policy(1, "none", "", PLAIN), 2, 200);
    experiment.machines[0].thrashing = Some(weirgate_experiment::Thrashing { beyond: 10, penalty: 0.05 });
    // Users without thinking time: 30 requests in the server, so 2 CPUs do 200 / (1 + 0.05 · 20) = 100/s.
    experiment.traffic.push(users(0, Profile::constant(30.0), Distribution::Fixed(ms(0)), exponential(ms(10))));
    let run = sound(&experiment, 9);
    let rate = times(&run).count() as f64 / 200.0;
    assert!((rate / 100.0 - 1.0).abs() < 0.03, "{rate}/s");
}

/// A fixed window of n in front of n single CPUs is a queue of M/M/n.
#[test]
fn a_window_makes_the_gateway_the_queue() {
    let discipline = "{ custom: { admit: none, load_control: { fixed: 2 }, precedence: fifo } }";
    let text = policy(2, discipline, "", PLAIN);
    let mut experiment = experiment(&text, 1, 3000);
    experiment.traffic.push(open(0, 160.0, exponential(ms(10))));
    let run = sound(&experiment, 10);
    let expected = 0.010 / (1.0 - 0.64);
    assert!((mean(&run) / expected - 1.0).abs() < 0.05, "{} of {expected}", mean(&run));
}
