//! Beside wrk, a generator that is not ours: as many users at the same server get the same throughput.
//!
//! wrk is a closed loop of users who never think, so the load plays those. Both run at the same time against one
//! node, whose emulated CPUs are the bottleneck and are shared equally by all requests inside: whatever else the
//! machine does, it does to both. What is compared is their ratio, never a time.

use std::io::Write;
use std::process::Command;

use weirgate_emulator::NodeSpec;

use super::{MS, check, experiment, node, start};

/// Most by which throughput and median may differ, up or down. Alone on a machine they differ by a few percent; the
/// rest is for one of the two being scheduled later than the other on a busy one.
const RATIO: f64 = 1.25;

#[test]
fn users_who_never_think_get_what_those_of_wrk_get() {
    const SECONDS: u64 = 3;
    // 32 users of 20 ms on 4 CPUs: 200 requests a second, 160 ms each, far above what clients need to turn around.
    let experiment = experiment("  - { class: A, users: 16, think: 1us, demand: 20ms }", SECONDS * 1000);
    let cluster = node(NodeSpec::new("a", 4));
    let Some(mut wrk) = wrk() else { return };
    wrk.args(["--threads", "1", "--connections", "16", "--latency", "--duration", &format!("{SECONDS}s")]);
    wrk.arg(format!("http://{}/?demand=20ms", cluster.addresses()[0]));
    let running = start(&experiment, cluster.addresses()[0], |_| {});
    let report = String::from_utf8(wrk.output().unwrap().stdout).unwrap();
    let sent = running.join().unwrap();
    check(&sent);

    let theirs = (number(&report, "Requests/sec:"), milliseconds(&report, "50%"));
    let (Some(rate), Some(median)) = theirs else { panic!("wrk says something else:\n{report}") };
    let our_rate = sent.records.iter().filter(|r| r.ended < SECONDS * 1000 * MS).count() as f64 / SECONDS as f64;
    let our_median = sent.histograms[0][0].value_at_quantile(0.5) as f64 / 1e3;
    println!("wrk {rate:.0}/s, median {median:.1} ms; the load {our_rate:.0}/s, median {our_median:.1} ms");
    for (ours, theirs) in [(our_rate, rate), (our_median, median)] {
        assert!((theirs / RATIO..=theirs * RATIO).contains(&ours), "{ours} beside {theirs}:\n{report}");
    }
}

/// The program. `None`, said aloud, if it is missing and the user wants to do without.
fn wrk() -> Option<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("wrk")).find(|file| file.exists());
    if found.is_none() {
        let skip = std::env::var_os("WEIRGATE_SKIP_PACKAGES").is_some_and(|value| value == "1");
        assert!(skip, "wrk is missing: run `cargo xtask packages`, or set WEIRGATE_SKIP_PACKAGES=1 to do without");
        // Past what the test runner holds back; a test goes on if nobody listens.
        let _ = writeln!(std::io::stderr(), "skipped: wrk is not installed");
    }
    found.map(Command::new)
}

/// The word after `mark`.
fn word<'a>(report: &'a str, mark: &str) -> Option<&'a str> {
    report.split_once(mark)?.1.split_whitespace().next()
}

fn number(report: &str, mark: &str) -> Option<f64> {
    word(report, mark)?.parse().ok()
}

/// A time as wrk prints it.
fn milliseconds(report: &str, mark: &str) -> Option<f64> {
    let time = word(report, mark)?;
    let unit = time.find(|c: char| c.is_ascii_alphabetic())?;
    let scale = match &time[unit..] {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return None,
    };
    Some(time[..unit].parse::<f64>().ok()? * scale)
}
