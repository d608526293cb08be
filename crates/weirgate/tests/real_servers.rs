//! Four real Apache servers with PHP: a class that surges and then costs five times as much does not touch
//! the other's requests as it does behind HAProxy `leastconn`. A short version of `experiments/real-servers/`;
//! its limits and rates are ratios of what the servers can do at that moment.
//!
//! Whether every guarantee held is the experiment's question and is printed. On a machine that others use,
//! seconds without a CPU break any guarantee in so short a run; so what must hold here is a ratio of two
//! figures of one run: the requests that did not get what they were promised.

use std::io::Write as _;

use weirgate_real_servers::{Options, Proxy, Scale, missing_packages, run};

/// Prints a line that the test runner does not hold back.
fn say(line: &str) {
    // The test goes on if nobody listens.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn a_class_is_protected_from_another_that_surges_and_becomes_dear() {
    let missing = missing_packages();
    if !missing.is_empty() && std::env::var_os("WEIRGATE_SKIP_PACKAGES").is_some_and(|value| value == "1") {
        say(&format!("skipped: {} not installed", missing.join(", ")));
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
