//! Reports one row per variant, as CSV and as a table.

use std::fmt::Write as _;

use crate::figures::{Figure, Figures};
use crate::play::{Group, Job, Played};

/// The discipline with one figure changed, or with none by default.
#[derive(Clone, Default)]
pub struct Variant {
    /// The changed figure. `None` is the defaults.
    pub figure: Option<&'static Figure>,
    /// The intended factor.
    pub factor: f64,
    /// The value of the changed figure.
    pub value: f64,
    /// Whether the value is the exact product. If not, it is the limit that the engine accepts.
    pub exact: bool,
    /// All figures.
    pub figures: Figures,
}

/// The result of one variant.
pub struct Row {
    /// The variant.
    pub variant: Variant,
    /// Guarantees missed, per group.
    pub misses: [u64; 3],
    /// Misses of the defaults, per group.
    pub base_misses: [u64; 3],
    /// Number of violated invariants.
    pub violations: u64,
    /// Served work over that of the defaults, per group.
    pub goodput: [f64; 3],
    /// Geometric mean of the response times of classes within their guarantee, over those of the defaults.
    pub response: f64,
}

impl Row {
    /// Compares the runs of a variant with those of the defaults.
    pub fn new(variant: Variant, jobs: &[Job], base: &[Played], played: &[Played]) -> Row {
        let per_group = |of: &dyn Fn(usize) -> f64| {
            Group::ALL.map(|group| (0..jobs.len()).filter(|job| jobs[*job].group() == group).map(of).sum::<f64>())
        };
        let was = per_group(&|job| base[job].work);
        let is = per_group(&|job| played[job].work);
        let cells = base.iter().zip(played).flat_map(|(was, is)| was.within.iter().zip(&is.within));
        let ratios: Vec<f64> = cells.filter_map(|(was, is)| Some((is.as_ref()? / was.as_ref()?).ln())).collect();
        Row {
            variant,
            misses: per_group(&|job| played[job].misses as f64).map(|n| n as u64),
            base_misses: per_group(&|job| base[job].misses as f64).map(|n| n as u64),
            violations: played.iter().map(|played| played.violations).sum(),
            goodput: [0, 1, 2].map(|group| is[group] / was[group]),
            response: (ratios.iter().sum::<f64>() / ratios.len().max(1) as f64).exp(),
        }
    }

    /// Returns a line for progress reports.
    pub fn line(&self) -> String {
        let goodput = self.goodput.map(|share| format!("{:+.2} %", (share - 1.0) * 100.0)).join(", ");
        format!(
            "{} {}: misses {:?}, goodput {goodput}, response × {:.2}",
            self.name(),
            self.value(),
            self.misses,
            self.response
        )
    }

    /// Returns the figure's name.
    pub fn name(&self) -> &'static str {
        self.variant.figure.map_or("defaults", |figure| figure.name)
    }

    fn value(&self) -> String {
        self.variant.figure.map_or_else(String::new, |figure| text(figure, self.variant.value))
    }

    /// Returns the largest loss of goodput in any group, in percent. Negative if every group gains.
    pub fn loss(&self) -> f64 {
        self.goodput.iter().map(|share| (1.0 - share) * 100.0).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Returns the number of missed guarantees of experiments, minus that of the defaults.
    pub fn more_misses(&self) -> i64 {
        (self.misses[0] + self.misses[1]) as i64 - (self.base_misses[0] + self.base_misses[1]) as i64
    }

    /// Returns the number of random scenarios with a miss, minus that of the defaults.
    pub fn more_swarm(&self) -> i64 {
        self.misses[2] as i64 - self.base_misses[2] as i64
    }

    fn cells(&self) -> String {
        let clamped = if self.variant.exact { "" } else { "*" };
        let goodput = self.goodput.map(|share| format!("{:+.1}", (share - 1.0) * 100.0)).join(" ");
        format!(
            "{}{clamped} | {} | {} | {goodput} | {:.2}",
            self.value(),
            self.misses[0] + self.misses[1],
            self.misses[2],
            self.response
        )
    }
}

/// Formats a figure with its unit and without trailing zeros.
fn text(figure: &Figure, value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if figure.is_time { format!("{text} ms") } else { text.to_owned() }
}

/// Returns one line per variant.
pub fn csv(rows: &[Row]) -> String {
    let mut out = String::from(
        "figure,factor,value,exact,misses_published,misses_ours,swarm_runs_with_a_miss,violations,goodput_published,goodput_ours,goodput_swarm,response_time\n",
    );
    for row in rows {
        let Variant { factor, value, exact, .. } = row.variant;
        let [a, b, c] = row.misses;
        let [x, y, z] = row.goodput;
        let _ = writeln!(
            out,
            "{},{factor},{value},{exact},{a},{b},{c},{},{x:.5},{y:.5},{z:.5},{:.4}",
            row.name(),
            row.violations,
            row.response
        );
    }
    out
}

/// Returns one line per figure.
pub fn markdown(rows: &[Row]) -> String {
    let mut out = String::from(
        "Misses: guarantees missed in all experiments; swarm: random scenarios of 100 with any miss. Goodput: change of the\nserved CPU work in percent, published experiments, ours, swarm. Time: mean response time of classes that keep to their\nguarantee, relative. *: the border of what the engine accepts.\n\n",
    );
    if let Some(base) = rows.first() {
        let _ = writeln!(
            out,
            "With the defaults: {} misses, {} of the swarm.\n",
            base.misses[0] + base.misses[1],
            base.misses[2]
        );
    }
    out.push_str(
        "| figure | default | ×0.5 | misses | swarm | goodput | time | ×1.5 | misses | swarm | goodput | time |\n",
    );
    out.push_str("|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for pair in rows.get(1..).unwrap_or_default().chunks_exact(2) {
        let default = pair[0].variant.figure.map_or_else(String::new, |figure| text(figure, figure.default_value()));
        let _ = writeln!(out, "| `{}` | {default} | {} | {} |", pair[0].name(), pair[0].cells(), pair[1].cells());
    }
    out
}
