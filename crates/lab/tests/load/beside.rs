//! Comparison with the external generators wrk and oha: the same number of users at the same server get the
//! same throughput.
//!
//! Both are closed loops of users without think time, so the load plays such users. Both generators run at
//! the same time against one node. Its emulated CPUs are the bottleneck, and all requests in flight share
//! them equally. Other work on the machine therefore affects both generators alike. The test compares only
//! their ratio, never a time.
//!
//! wrk is a Debian package. oha is not, and takes half an hour to compile. It is compared if it is
//! installed (`cargo install oha`), and the test prints a note if it is not.

use std::io::Write;
use std::process::Command;

use weirgate_emulator::NodeSpec;

use super::{MS, check, experiment, node, start};

/// Maximum ratio of the two throughputs and of the two medians. On an otherwise idle machine they differ by a few
/// percent. The rest allows for one of the two being scheduled later than the other on a busy machine.
const RATIO: f64 = 1.25;

/// Duration of both in seconds.
const SECONDS: u64 = 3;

#[test]
fn users_without_think_time_get_the_same_as_those_of_wrk() {
    let Some(mut wrk) = program("wrk") else {
        let skip = std::env::var_os("WEIRGATE_SKIP_PACKAGES").is_some_and(|value| value == "1");
        assert!(skip, "wrk is missing: run `cargo xtask packages`, or set WEIRGATE_SKIP_PACKAGES=1 to do without");
        return;
    };
    wrk.args(["--threads", "1", "--connections", "16", "--latency", "--duration", &format!("{SECONDS}s")]);
    compare(wrk, |report| Some((number(report, "Requests/sec:")?, milliseconds(word(report, "50%")?)?)));
}

#[test]
fn users_without_think_time_get_the_same_as_those_of_oha() {
    let Some(mut oha) = program("oha") else { return };
    oha.args(["--no-tui", "-c", "16", "-z", &format!("{SECONDS}s")]);
    compare(oha, |report| {
        // `50.00% in 0.1602 sec`, with a unit of oha's choice.
        let mut median = report.split_once("50.00% in ")?.1.split_whitespace();
        let (figure, unit) = (median.next()?, median.next()?);
        let unit = if unit.starts_with("sec") { "s" } else { unit };
        Some((number(report, "Requests/sec:")?, milliseconds(&format!("{figure}{unit}"))?))
    });
}

/// Runs the load in parallel with `peer`. `figures` reads the peer's rate and its median in milliseconds.
fn compare(mut peer: Command, figures: impl Fn(&str) -> Option<(f64, f64)>) {
    // 32 users with 20 ms of work on 4 CPUs: 200 requests/s with 160 ms each, far above a client's own time
    // between a reply and its next request.
    let experiment = experiment("  - { class: A, users: 16, think: 1us, demand: 20ms }", SECONDS * 1000);
    let cluster = node(NodeSpec::new("a", 4));
    peer.arg(format!("http://{}/?demand=20ms", cluster.addresses()[0]));
    let running = start(&experiment, cluster.addresses()[0], |_| {});
    let report = String::from_utf8(peer.output().unwrap().stdout).unwrap();
    let sent = running.join().unwrap();
    check(&sent);

    let Some((rate, median)) = figures(&report) else { panic!("it says something else:\n{report}") };
    let our_rate = sent.records.iter().filter(|r| r.ended < SECONDS * 1000 * MS).count() as f64 / SECONDS as f64;
    let our_median = sent.histograms[0][0].value_at_quantile(0.5) as f64 / 1e3;
    println!("{peer:?} {rate:.0}/s, median {median:.1} ms; the load {our_rate:.0}/s, median {our_median:.1} ms");
    for (ours, theirs) in [(our_rate, rate), (our_median, median)] {
        assert!((theirs / RATIO..=theirs * RATIO).contains(&ours), "{ours} beside {theirs}:\n{report}");
    }
}

/// Returns the program, or `None` with a note if it is not installed.
fn program(name: &str) -> Option<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists());
    if found.is_none() {
        // Printed past the output capture of the test runner. A test goes on if the line cannot be printed.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {name} is not installed");
    }
    found.map(Command::new)
}

/// Returns the word after `mark`.
fn word<'a>(report: &'a str, mark: &str) -> Option<&'a str> {
    report.split_once(mark)?.1.split_whitespace().next()
}

fn number(report: &str, mark: &str) -> Option<f64> {
    word(report, mark)?.parse().ok()
}

/// Parses a time with its unit and returns milliseconds.
fn milliseconds(time: &str) -> Option<f64> {
    let unit = time.find(|c: char| c.is_ascii_alphabetic())?;
    let scale = match &time[unit..] {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return None,
    };
    Some(time[..unit].parse::<f64>().ok()? * scale)
}
