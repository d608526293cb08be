//! Turns the output of `wrk` into `SETUP.md`, `raw.csv` and `summary.md`.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::process::Command;

use super::Asked;
use crate::steps::read;

/// Name of HAProxy with the work on the messages that Weirgate does.
pub(crate) const EQUAL: &str = "haproxy-equal";
/// The name of the relay.
pub(crate) const RELAY: &str = "relay";
/// The name of the case with many nodes.
pub(crate) const MANY_NODES: &str = "1 KB, 1 and 1,000 nodes";
/// The name of the way without a proxy. It has response times and no CPU time.
pub(crate) const DIRECT: &str = "none";
/// Proxies in the order of the table. The last ones are in front of many nodes.
const NAMES: [&str; 10] =
    ["weirgate", "haproxy", EQUAL, "nginx", RELAY, DIRECT, "weirgate-1000", "haproxy-1000", "nginx-1000", "relay-1000"];

/// One measured run.
pub(crate) struct Run {
    case: &'static str,
    round: usize,
    proxy: &'static str,
    requests: u64,
    seconds: f64,
    cpu_seconds: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Run {
    /// Reads `wrk`'s report. Failed requests make a run worthless: they cost less.
    pub(crate) fn new(
        case: &'static str,
        round: usize,
        proxy: &'static str,
        cpu_seconds: f64,
        report: &str,
    ) -> Result<Run, String> {
        let broken = |what: &str| format!("{proxy}: {what} in wrk's report:\n{report}");
        if report.contains("Non-2xx") || report.contains("Socket errors") {
            return Err(broken("failed requests"));
        }
        // "  123456 requests in 8.00s, 150.00MB read" and "     99%    2.10ms"
        let line = report.lines().find(|l| l.contains(" requests in ")).ok_or_else(|| broken("no count"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [requests, "requests", "in", time, ..] = words.as_slice() else { return Err(broken("no count")) };
        let quantile = |percent: &str| {
            let time = report.lines().find_map(|line| line.trim().strip_prefix(percent)).map(str::trim);
            time.and_then(milliseconds).ok_or_else(|| broken(percent))
        };
        Ok(Run {
            case,
            round,
            proxy,
            requests: requests.parse().map_err(|_| broken("no count"))?,
            seconds: milliseconds(time.trim_end_matches(',')).ok_or_else(|| broken("no time"))? / 1e3,
            cpu_seconds,
            p50_ms: quantile("50%")?,
            p99_ms: quantile("99%")?,
        })
    }

    fn micros_per_request(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.requests as f64
    }

    fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<13} {:6.2} µs a request at {:.0}/s", self.proxy, self.micros_per_request(), self.rate())
    }
}

/// `8.00s`, `2.10ms`, `870.00us` or `1.02m` in milliseconds.
fn milliseconds(text: &str) -> Option<f64> {
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 6e4)];
    units.iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

/// Writes the three files and prints the summary.
pub(crate) fn write(place: &Path, setup: &str, runs: &[Run]) -> Result<(), String> {
    let mut csv = String::from("case,round,proxy,requests,seconds,cpu_seconds,cpu_us_per_request,p50_ms,p99_ms\n");
    for run in runs {
        let micros = run.micros_per_request();
        let Run { case, round, proxy, requests, seconds, cpu_seconds, p50_ms, p99_ms } = run;
        let _ = writeln!(
            csv,
            "{case},{round},{proxy},{requests},{seconds:.2},{cpu_seconds:.2},{micros:.3},{p50_ms:.3},{p99_ms:.3}"
        );
    }
    let summary = summary(runs);
    print!("{summary}");
    std::fs::create_dir_all(place).map_err(|e| format!("{}: {e}", place.display()))?;
    for (name, text) in [("raw.csv", csv), ("summary.md", summary), ("SETUP.md", setup.to_owned())] {
        let file = place.join(name);
        std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    println!("   written to {}", crate::repository::relative(place));
    Ok(())
}

/// Median rate of a proxy in a case, in requests per second.
pub(crate) fn rate_of(proxy: &str, case: &str, runs: &[Run]) -> f64 {
    Spread::of(of(proxy, case, runs).into_iter().map(Run::rate)).median
}

/// Returns the runs of a proxy in a case, by round.
fn of<'a>(proxy: &str, case: &str, runs: &'a [Run]) -> Vec<&'a Run> {
    let mut runs: Vec<&Run> = runs.iter().filter(|run| run.case == case && run.proxy == proxy).collect();
    runs.sort_by_key(|run| run.round);
    runs
}

/// Returns the CPU time of a request in `runs`, compared with that in the same rounds of `peer`.
fn ratio(runs: &[&Run], peer: &[&Run]) -> Spread {
    Spread::of(runs.iter().zip(peer).map(|(run, peer)| run.micros_per_request() / peer.micros_per_request()))
}

fn summary(runs: &[Run]) -> String {
    let mut text = String::from(
        "# CPU time of a request\n\nMedians over the rounds, with the lowest and the highest in brackets. A ratio is within a \
         round.\n\n| case | proxy | µs of CPU a request | to HAProxy | to haproxy-equal | requests/s | p50 ms | p99 ms |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut cases: Vec<&str> = runs.iter().map(|run| run.case).collect();
    cases.dedup();
    for case in cases {
        for proxy in NAMES {
            let of = |proxy: &str| of(proxy, case, runs);
            let runs = of(proxy);
            if runs.is_empty() {
                continue;
            }
            let spread = |value: fn(&Run) -> f64| Spread::of(runs.iter().map(|run| value(run)));
            let ratio = |peer: &str| ratio(&runs, &of(peer));
            let shown = |spread: Spread| if spread.median > 0.0 { spread.to_string() } else { "–".to_owned() };
            let _ = writeln!(
                text,
                "| {case} | {proxy} | {} | {} | {} | {:.0} | {:.2} | {:.2} |",
                shown(spread(Run::micros_per_request)),
                shown(ratio("haproxy")),
                shown(ratio(EQUAL)),
                spread(Run::rate).median,
                spread(|run| run.p50_ms).median,
                spread(|run| run.p99_ms).median,
            );
        }
    }
    if runs.iter().any(|run| run.case == MANY_NODES) {
        text += "\nCPU time of a request in front of 1,000 nodes, compared with one:";
        let proxies = ["weirgate", "haproxy", "nginx", RELAY].map(|proxy| {
            let of = |proxy: &str| of(proxy, MANY_NODES, runs);
            (proxy, of(&format!("{proxy}-1000")), of(proxy))
        });
        let played = || proxies.iter().filter(|(_, many, _)| !many.is_empty());
        for (proxy, many, one) in played() {
            let _ = write!(text, " {proxy} {}.", ratio(many, one));
        }
        text += "\nWhat they add, in µs of CPU a request:";
        for (proxy, many, one) in played() {
            let added = many.iter().zip(one).map(|(many, one)| many.micros_per_request() - one.micros_per_request());
            let _ = write!(text, " {proxy} {}.", Spread::of(added));
        }
        text += " That of the relay is the kernel's.\n";
    }
    text
}

struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}–{:.2})", self.median, self.low, self.high)
    }
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Spread { median: at(values.len() / 2), low: at(0), high: at(values.len().saturating_sub(1)) }
    }
}

/// Returns the conditions of the measurement, read before the first run.
pub(crate) fn setup(asked: &Asked) -> Result<String, String> {
    let line = |program: &str, words: &[&str]| -> Result<String, String> {
        Ok(read(Command::new(program).args(words))?.lines().next().unwrap_or_default().to_owned())
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").map_err(|e| format!("/proc/cpuinfo: {e}"))?;
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let cores = cpu.lines().filter(|l| l.starts_with("processor")).count();
    let load = std::fs::read_to_string("/proc/loadavg").map_err(|e| format!("/proc/loadavg: {e}"))?;
    // A package that has only been heard of has no version.
    let package = |name: &str| match line("dpkg-query", &["--show", "--showformat=${Package} ${Version}", name])? {
        shown if shown.ends_with(' ') => Err(format!("{name} is not installed")),
        shown => Ok(shown),
    };
    let control = "/proc/sys/net/ipv4/tcp_congestion_control";
    let control = std::fs::read_to_string(control).map_err(|e| format!("{control}: {e}"))?;
    // A tree that is not yet committed has no commit to name.
    let commit = line("git", &["rev-parse", "--short", "HEAD"]).unwrap_or_else(|_| "none".into());
    Ok(format!(
        "# Setup\n\n`cargo xtask bench proxy-cpu{options}`, see `experiments/proxy-cpu/README.md` for the method and the configurations.\n\n\
         - {date}, commit {commit}\n- {cores} cores,{model}; Linux {kernel}, TCP with {control}; load average before the first run {idle}\n- {rust}; the program of `cargo xtask release`\n- {nginx}, {haproxy}, {wrk} (Debian)\n\
         - {rounds} rounds; in each, every proxy in turn: {warm} s of warm-up, {measured} s measured\n\
         - proxies with one thread on core {proxy_core}, with two on both; node and `wrk -t1` on core {load_core}\n",
        date = line("date", &["+%Y-%m-%d %H:%M %Z"])?,
        model = model.trim_start_matches(['\t', ' ', ':']).replacen("", " ", 1),
        idle = load.split(' ').next().unwrap_or_default(),
        kernel = line("uname", &["-r"])?,
        control = control.trim(),
        rust = line("rustc", &["--version"])?,
        nginx = package("nginx-light").or_else(|_| package("nginx"))?,
        haproxy = package("haproxy")?,
        wrk = package("wrk")?,
        options = asked.options,
        rounds = asked.rounds,
        warm = super::WARM_UP,
        measured = super::MEASURED,
        proxy_core = super::PROXY_CORE,
        load_core = super::LOAD_CORE,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "Running 4s test @ http://127.0.0.1:18102/\n  1 threads and 64 connections\n  Latency Distribution\n     \
        50%    1.39ms\n     99%  870.00us\n  117546 requests in 4.02s, 139.00MB read\nRequests/sec:  29208.56\n";

    #[test]
    fn wrk_is_understood() {
        let run = Run::new("1 KB", 1, "haproxy", 2.35092, REPORT).expect("a sound report");
        assert_eq!((run.requests, run.seconds, run.p50_ms, run.p99_ms), (117_546, 4.02, 1.39, 0.87));
        assert!((run.micros_per_request() - 20.0).abs() < 1e-9);
    }

    #[test]
    fn what_many_nodes_add_is_compared_within_a_round() {
        let runs = [(1, "relay", 1.0), (1, "relay-1000", 1.2), (2, "relay", 2.0), (2, "relay-1000", 2.2)]
            .map(|(round, proxy, cpu)| Run::new(MANY_NODES, round, proxy, cpu, REPORT).expect("a sound report"));
        let text = summary(&runs);
        assert!(text.contains("compared with one: relay 1.20 (1.10–1.20).\nWhat they add"), "{text}");
        assert!(text.contains(" relay 1.70 (1.70–1.70). That of the relay"), "{text}");
    }

    #[test]
    fn failed_requests_are_refused() {
        let report = format!("{REPORT}  Non-2xx or 3xx responses: 3\n");
        assert!(Run::new("1 KB", 1, "haproxy", 1.0, &report).is_err_and(|why| why.contains("failed requests")));
    }

    #[test]
    fn a_spread_has_the_middle() {
        let Spread { median, low, high } = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!((median, low, high), (2.0, 1.0, 3.0));
    }
}
