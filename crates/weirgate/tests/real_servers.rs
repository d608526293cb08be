//! Four real Apache servers with PHP: a class that surges and then costs five times as much does not touch
//! the guarantee of the other. Behind HAProxy `leastconn` the same load does. A short version of
//! `experiments/real-servers/`, judged by the same rule; its limits and rates are ratios of what the servers
//! can do at that moment, so that a slow or busy machine is asked for less.

use std::io::Write as _;

use weirgate_real_servers::{Options, Proxy, Scale, missing_packages, run};

/// Prints a line that the test runner does not hold back.
fn say(line: &str) {
    // The test goes on if nobody listens.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn a_class_keeps_its_guarantee_while_another_surges_and_becomes_dear() {
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
    assert!(outcome.as_claimed(), "{}", outcome.summary());
}
