//! Weirgate's own discipline on small clusters in virtual time.

mod support;

use support::*;
use weirgate_engine::*;

fn limit(statistic: Statistic, ms: u64) -> Option<(Statistic, u64)> {
    Some((statistic, ms))
}

#[test]
fn explore_table3() {
    for factor in [0.5, 1.0, 2.0] {
        let us = |us: f64| Some(std::time::Duration::from_micros((us * factor) as u64));
        let mut classes = vec![
            class("A", Some(375.0), limit(Statistic::Average, 200), None),
            class("B", Some(937.0), limit(Statistic::Average, 600), None),
            class("C", Some(562.0), limit(Statistic::Average, 300), None),
        ];
        for c in &mut classes {
            c.service_time = us(10_800.0);
        }
        let load = |rate| Load { rate, demand: 0.0108, exponential: true };
        let mut bench = Bench::new(
            policy(Discipline::weirgate(), 10, classes),
            2.0,
            vec![load(185.0), load(1718.0), load(557.0)],
            1,
        );
        for step in 0..12 {
            bench.reset();
            let from = bench.now;
            bench.run(from + 5.0);
            let s = bench.engine.snapshot(Time::ZERO);
            print!("{factor} t={:.0} W={:?} {:?} ", from + 5.0, s.window, s.moved.why);
            let mut util = 0.0;
            for t in &bench.tallies {
                let mean = t.served.iter().sum::<f64>() / t.served.len() as f64;
                util += t.served.len() as f64 * 0.0108 / 5.0 / 20.0;
                print!(
                    "| {:.0}/s {:.0}ms p95 {:.0} shed {} ",
                    t.served.len() as f64 / 5.0,
                    mean * 1e3,
                    percentile(&t.served, 0.95) * 1e3,
                    t.shed
                );
            }
            println!(" util {util:.3}");
            let _ = step;
        }
    }
}
