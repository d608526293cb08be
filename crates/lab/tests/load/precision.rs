//! Precision and capacity of the emulation. The figures are printed (`--nocapture`). The assertions check
//! only ratios and accounts that also hold on a busy machine.

use weirgate_emulator::NodeSpec;
use weirgate_experiment::Fate;

use super::{experiment, node, play};

/// CPU time of a request, in nanoseconds.
const WORK: u64 = 8_000_000;

#[test]
fn work_takes_its_time_and_nothing_is_lost() {
    // 125 requests of 8 ms per second use half of two CPUs. Processor-sharing theory for M/D/2 gives a
    // little more than 8 ms.
    let experiment = experiment("  - { class: A, rate: 125/s, arrivals: poisson, demand: 8ms }", 2000);
    let cluster = node(NodeSpec::new("node", 2));
    let sent = play(&experiment, &cluster);
    let stats = &cluster.stats().unwrap()[0];
    let times = &sent.histograms[0][0];
    println!(
        "{} requests, replies begun late by {:.0} µs on average, {} µs at p99; response time avg {:.0} µs, p95 {} µs; \
         requests begun late by {:.0} µs on average, {} µs at p99",
        stats.requests,
        stats.lateness.mean() / 1e3,
        stats.lateness.value_at_percentile(99.0) / 1000,
        times.mean(),
        times.value_at_quantile(0.95),
        sent.lateness.mean(),
        sent.lateness.value_at_percentile(99.0),
    );
    let arrivals = sent.records.len();
    assert!(arrivals > 150 && sent.records.iter().all(|record| record.fate == Fate::Served));
    assert_eq!((stats.requests, stats.replies), (arrivals as u64, arrivals as u64));
    let busy = stats.busy.as_secs_f64() * 1e9 / (arrivals as u64 * WORK) as f64;
    assert!((busy - 1.0).abs() < 1e-3, "CPUs were busy for {busy} of the work");
    let shortest = sent.records.iter().map(|record| record.ended - record.arrived).min().unwrap();
    assert!(shortest >= WORK - 10_000, "{shortest} ns");
}
