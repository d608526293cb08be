//! Four real Apache servers with PHP: a class that surges and then costs five times as much does not affect
//! the other's requests as it does behind HAProxy `leastconn`. This is a short version of
//! `experiments/real-servers/`. Its limits and rates are ratios of the servers' capacity at that moment.
//!
//! Whether every guarantee held is the question of the experiment, and the test prints it. On a shared
//! machine, seconds without a CPU break any guarantee in so short a run. The test therefore asserts a ratio
//! of two figures of one run: the numbers of requests that missed their guarantee.

use std::io::Write as _;

use weirgate_real_servers::{Options, Proxy, Scale, missing_packages, run};

/// Prints a line that the test runner does not capture.
fn say(line: &str) {
    // A closed standard error does not stop the test.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn a_class_is_protected_from_another_that_surges_and_becomes_dear() {
    let missing = missing_packages();
    if !missing.is_empty() && std::env::var_os("WEIRGATE_SKIP_PACKAGES").is_some_and(|value| value == "1") {
        say(&format!("SKIPPED: {} not installed", missing.join(", ")));
        return;
    }
    let options = Options {
        weirgate: env!("CARGO_BIN_EXE_weirgate").into(),
        scale: Scale::Short,
        turns: vec![(1, Proxy::Weirgate), (1, Proxy::HaProxy)],
    };
    let outcome = run(&options, &mut say).expect("the experiment runs");
    let limit = outcome.terms.a.limit;
    let unkept =
        |proxy: Proxy| outcome.runs.iter().filter(|run| run.proxy == proxy).map(|run| run.unkept(limit)).sum::<f64>();
    let (weirgate, haproxy) = (unkept(Proxy::Weirgate), unkept(Proxy::HaProxy));
    say(&format!(
        "requests of A not served within its limit: weirgate {:.1} %, haproxy {:.1} %\n{}",
        weirgate * 100.0,
        haproxy * 100.0,
        outcome.summary()
    ));
    assert!(haproxy > 0.2, "the load does not overload a plain proxy: {haproxy}");
    assert!(weirgate < haproxy / 2.0, "weirgate {weirgate}, haproxy {haproxy}");
}
