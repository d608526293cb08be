//! What came out: who held its guarantee, as a table, as a series over time.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use weirgate_emulator::client::{Ceiling, Floor, Report, Statistic, Tally, Verdict};

use crate::calibration::Calibration;
use crate::proxy::Proxy;
use crate::terms::{Contract, Terms};

/// The index of class A in plans and reports.
const A: usize = 0;

/// Everything measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the page costs.
    pub calibration: Calibration,
    /// What was promised.
    pub terms: Terms,
    /// One after the other.
    pub runs: Vec<Run>,
    /// The configurations with which proxies ran last, by the names of their files.
    pub configurations: BTreeMap<String, String>,
}

/// One proxy under the load.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which.
    pub proxy: Proxy,
    /// 1, 2, …
    pub round: usize,
    /// What its clients saw.
    pub report: Report,
}

impl Run {
    /// The phases in which class A did not get what it was promised.
    #[must_use]
    pub fn broken(&self) -> Vec<&str> {
        let phases = &self.report.classes[A].phases;
        let verdicts = self.report.verdicts().into_iter().filter(|v| v.class == A && !v.settling && !v.held());
        verdicts.map(|v| phases[v.phase].name.as_str()).collect()
    }

    /// Share of class A's requests, from the sixth second of each phase on, that were not served within
    /// `limit`, 0 to 1.
    #[must_use]
    pub fn unkept(&self, limit: Duration) -> f64 {
        let (mut arrived, mut kept) = (0, 0);
        for phase in &self.report.classes[A].phases {
            arrived += phase.settled.arrivals;
            kept += phase.settled.response.count_between(0, limit.as_micros() as u64);
        }
        if arrived == 0 { 0.0 } else { arrived.saturating_sub(kept) as f64 / arrived as f64 }
    }
}

impl Outcome {
    /// Class A held throughout every run with Weirgate, and not throughout any run with HAProxy, however
    /// that is set. Runs with other settings of Weirgate are for comparison.
    #[must_use]
    pub fn as_claimed(&self) -> bool {
        let holds = |run: &&Run| run.broken().is_empty();
        let (mut weirgate, mut haproxy) = (Vec::new(), Vec::new());
        for run in &self.runs {
            match run.proxy {
                Proxy::Weirgate => weirgate.push(run),
                Proxy::HaProxy | Proxy::HaProxyBounded => haproxy.push(run),
                Proxy::QuorumBounded | Proxy::Quorum | Proxy::QuorumAlways => {}
            }
        }
        let both = !weirgate.is_empty() && !haproxy.is_empty();
        both && weirgate.iter().all(holds) && !haproxy.iter().any(holds)
    }

    /// The series over time.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut csv =
            String::from("proxy,round,second,phase,class,arrivals,served,shed,failed,under_way,p95_ms,mean_ms\n");
        let ms = |time: Option<Duration>| time.map_or(String::new(), |t| format!("{:.1}", t.as_secs_f64() * 1e3));
        for Run { proxy, round, report } in &self.runs {
            for point in &report.points {
                let second = point.at.as_secs_f64();
                for (class, of) in report.classes.iter().zip(&point.classes) {
                    let (name, phase) = (&class.name, &class.phases[point.phase].name);
                    let (p95, mean) = (ms(of.response), ms(of.mean));
                    let counts =
                        [of.arrivals, of.served, of.shed, of.failed, of.under_way].map(|n| n.to_string()).join(",");
                    let _ = writeln!(csv, "{proxy},{round},{second:.1},{phase},{name},{counts},{p95},{mean}");
                }
            }
        }
        csv
    }

    /// Verdict and tables.
    #[must_use]
    pub fn summary(&self) -> String {
        let claim = if self.as_claimed() { "The claim holds" } else { "**The claim does not hold**" };
        let mut text = format!(
            "# Four Apache servers, two classes\n\n{claim}: class A keeps its guarantee in every phase with Weirgate, and \
             does not with HAProxy `leastconn`.\n\n- {}\n- A: {}\n- B: {}\n\n| run | phases in which A's guarantee broke |\n|---|---|\n",
            self.calibration, self.terms.a, self.terms.b
        );
        for run in &self.runs {
            let broken = run.broken();
            let broken = if broken.is_empty() { "none".into() } else { broken.join(", ") };
            let _ = writeln!(text, "| {}, round {} | {broken} |", run.proxy, run.round);
        }
        for (settling, when) in [(false, "from the sixth second of each phase"), (true, "the first five seconds")] {
            for class in 0..self.runs.first().map_or(0, |run| run.report.classes.len()) {
                self.table(&mut text, class, settling, when);
            }
        }
        text
    }

    fn table(&self, text: &mut String, class: usize, settling: bool, when: &str) {
        let Some(first) = self.runs.first() else { return };
        let _ = write!(
            text,
            "\n## Class {}, {when}\n\n| phase | proxy, round | requests | served | shed | failed | p50 ms | p95 ms | p99 ms | \
             floor: owed | ceiling |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
            first.report.classes[class].name
        );
        for phase in 0..first.report.classes[class].phases.len() {
            for run in &self.runs {
                let of = &run.report.classes[class];
                let parts = &of.phases[phase];
                let tally = if settling { &parts.settling } else { &parts.settled };
                let _ = write!(text, "| {} | {}, {} | ", parts.name, run.proxy, run.round);
                row(text, tally, Verdict::of(tally, &of.guarantee));
            }
        }
    }
}

fn row(text: &mut String, tally: &Tally, verdict: Option<(Option<Floor>, Option<Ceiling>)>) {
    let ms = |percent: f64| {
        let time = tally.response_time(Statistic::Percentile(percent));
        time.map_or("-".into(), |t| format!("{:.0}", t.as_secs_f64() * 1e3))
    };
    let word = |held: bool| if held { "held" } else { "**broken**" };
    let (floor, ceiling) = verdict.unwrap_or_default();
    let floor = floor.map_or("-".into(), |f| format!("{}: {:.0}", word(f.held), f.owed.ceil()));
    // Nothing served, nothing late: that is no achievement.
    let ceiling = ceiling.filter(|c| c.measured.is_some()).map_or("-", |c| word(c.held));
    let (served, shed, failed) = (tally.served, tally.shed, tally.failed.total());
    let [p50, p95, p99] = [50.0, 95.0, 99.0].map(ms);
    let arrivals = tally.arrivals;
    let _ = writeln!(text, "{arrivals} | {served} | {shed} | {failed} | {p50} | {p95} | {p99} | {floor} | {ceiling} |");
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "unloaded, a request takes {:.1} ms (p95 {:.1}), a dear one {:.1} ms (p95 {:.1}); the servers complete {:.0} ordinary ones/s",
            ms(self.p50),
            ms(self.p95),
            ms(self.dear_p50),
            ms(self.dear_p95),
            self.capacity
        )
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit.as_millis();
        write!(f, "guaranteed {:.1}/s and p95 ≤ {limit} ms, offers {:.1}/s", self.throughput, self.offered)
    }
}
