//! Precision and capacity of the emulation. The figures are printed (`--nocapture`). The assertions check
//! only ratios and accounts that also hold on a busy machine.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use weirgate_emulator::client::{ClassPlan, Load, Phase, Plan, Statistic};
use weirgate_emulator::{Cluster, Distribution, NodeSpec};

#[test]
fn timer_error_and_capacity() {
    let nodes = (1..=4).map(|i| NodeSpec::new(format!("node-{i}"), 2)).collect();
    let cluster = Cluster::start(nodes, 1).unwrap();
    // 250 requests of 8 ms per second use half of two CPUs. Processor-sharing theory for M/D/2 gives a
    // little more than 8 ms.
    let class = |i: usize| ClassPlan::new(format!("class-{i}"), cluster.addresses()[i], "x");
    let load = Load::poisson(125.0, Distribution::Fixed(Duration::from_millis(8)), "/?demand={us}us");
    let phase = Phase::new("half load", Duration::from_secs(2), vec![load; 4]);
    let report = Plan::new((0..4).map(class).collect(), vec![phase]).start().unwrap().join().unwrap();
    for (stats, class) in cluster.stats().unwrap().iter().zip(&report.classes) {
        let total = class.total();
        println!(
            "{}: {} requests, replies begun late by {:.0} µs on average, {} µs at p99; response time avg {:?}, p95 {:?}",
            stats.name,
            stats.requests,
            stats.lateness.mean() / 1e3,
            stats.lateness.value_at_percentile(99.0) / 1000,
            total.response_time(Statistic::Average).unwrap(),
            total.response_time(Statistic::Percentile(95.0)).unwrap(),
        );
        assert_eq!((total.served, stats.replies), (total.arrivals, total.arrivals));
        let busy = stats.busy.as_secs_f64() / (total.arrivals as f64 * 0.008);
        assert!((busy - 1.0).abs() < 1e-3, "CPUs were busy for {busy} of what was asked");
        assert!(total.response_time(Statistic::Percentile(1.0)).unwrap() >= Duration::from_micros(7990));
    }
    println!(
        "requests begun late by {:.0} µs on average, {} µs at p99",
        report.lateness.mean(),
        report.lateness.value_at_percentile(99.0)
    );
}
