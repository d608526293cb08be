//! A comparison of two runs: both of the lab, or one of the lab and one of the simulator.
//!
//! Approaches, phases and classes are matched by name. A difference larger than that between two runs of
//! the same setup is marked, and parts that only one run has are listed.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use weirgate_verdict::Verdict;
use weirgate_verdict::report::{Cell, Column, PhaseRuns, Spread, Table, Tone};

use super::directory::{from_json, parse, read};
use super::run_file::RunFile;

/// Maximum difference in served requests per second, in percent. Arrivals are random: over a judged minute
/// at 500/s their count has a standard deviation of 0.6 %, and two seeds differ by 3 % less than once in a
/// thousand times.
pub const SERVED_BAND: f64 = 3.0;

/// Maximum difference in the response-time statistic, in percent. Real processes share their CPU with other
/// work, and a percentile under load varies several times as much as the load does. Near saturation, 3 %
/// more load adds well over 10 % to the wait.
pub const RESPONSE_BAND: f64 = 15.0;

/// One of two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Its name in the comparison.
    pub name: String,
    /// Approaches and their verdicts. For the simulator, a discipline takes the place of the approach.
    pub verdicts: Vec<(String, Verdict)>,
}

/// The comparison of two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Names of the two runs.
    pub names: [String; 2],
    /// Every approach, phase and class that both runs have.
    pub rows: Vec<Row>,
    /// Parts that only one run has.
    pub missing: Vec<Missing>,
}

/// A class in a phase under one approach, in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The experiment's name.
    pub experiment: String,
    /// The approach.
    pub approach: String,
    /// Name of the phase.
    pub phase: String,
    /// Whether the phase is judged. Only a judged phase can be out of band, so a warm-up cannot.
    pub judged: bool,
    /// Name of the class.
    pub class: String,
    /// Requests served per second.
    pub served: Gap,
    /// Name of the response-time statistic, such as `p95`. If the runs have different ones, both names
    /// appear with a stroke between them, and they are not compared.
    pub statistic: String,
    /// That statistic, in milliseconds.
    pub response: Option<Gap>,
}

/// A number in both runs, over the seeds of each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// Value in the first run, or `None` if nothing was measured.
    pub a: Option<Spread>,
    /// Value in the second run.
    pub b: Option<Spread>,
    /// Maximum difference of the medians, in percent.
    pub band: f64,
}

/// A part that only one run has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Index of the run that has it.
    pub side: usize,
    /// Description of the part: `haproxy`, `weirgate, phase surge`, `weirgate, phase surge, class A`.
    pub what: String,
}

impl Gap {
    /// Returns the percentage by which the second median exceeds the first, or `None` if only one run has
    /// the number, or the first is 0 and the second is not.
    pub fn percent(&self) -> Option<f64> {
        let (a, b) = (self.a?.median, self.b?.median);
        if a == b { Some(0.0) } else { (a != 0.0).then(|| (b / a - 1.0) * 100.0) }
    }

    /// Returns whether the runs differ by more than the band, or only one of them has the number.
    pub fn out(&self) -> bool {
        match (self.a, self.b) {
            (None, None) => false,
            // Rounding may put a difference of exactly the band slightly above it.
            _ => self.percent().is_none_or(|percent| percent.abs() > self.band + 1e-9),
        }
    }
}

impl Row {
    /// Returns whether one of its numbers is out of band.
    pub fn out(&self) -> bool {
        self.judged && (self.served.out() || self.response.is_some_and(|gap| gap.out()))
    }
}

impl From<&RunFile> for Side {
    fn from(run: &RunFile) -> Side {
        let trials = run.trials.iter().map(|trial| (trial.approach.clone(), trial.verdict.clone()));
        Side { name: format!("{} of {}", run.experiment.name, run.date), verdicts: trials.collect() }
    }
}

impl Side {
    /// Reads a run directory, its `run.json`, or the output of `weirgate sim --format json`.
    ///
    /// # Errors
    /// It cannot be read or is none of these. The error names path, line and column.
    pub fn read(path: &Path) -> Result<Side, String> {
        let name = path.display().to_string();
        if path.is_dir() {
            return read(path).map(|run| Side { name, ..Side::from(&run) });
        }
        let text = fs::read_to_string(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
        Side::parse(&name, &text)
    }

    fn parse(name: &str, text: &str) -> Result<Side, String> {
        /// Fields that distinguish a run from a verdict.
        #[derive(Deserialize)]
        struct Looks {
            trials: Option<IgnoredAny>,
            phases: Option<IgnoredAny>,
        }
        let verdicts: Vec<Verdict> = if text.trim_start().starts_with('[') {
            from_json(name, text)?
        } else {
            let looks: Looks = from_json(name, text)?;
            match (looks.trials, looks.phases) {
                (Some(_), _) => return parse(name, text).map(|run| Side { name: name.to_owned(), ..Side::from(&run) }),
                (None, Some(_)) => vec![from_json(name, text)?],
                (None, None) => {
                    return Err(format!(
                        "{name}:1:1: neither a `run.json` nor a verdict: give a run directory of the lab, or the \
                         output of `weirgate sim --format json`"
                    ));
                }
            }
        };
        Ok(Side { name: name.to_owned(), verdicts: verdicts.into_iter().map(|v| (v.discipline.clone(), v)).collect() })
    }

    /// Returns the verdicts by experiment and approach, in order of first appearance.
    fn groups(&self) -> Vec<Runs> {
        let mut groups: Vec<Runs> = Vec::new();
        for (approach, verdict) in &self.verdicts {
            match groups.iter_mut().find(|g| g.approach == *approach && g.experiment == verdict.experiment) {
                Some(group) => group.verdicts.push(verdict.clone()),
                None => groups.push(Runs {
                    experiment: verdict.experiment.clone(),
                    approach: approach.clone(),
                    verdicts: vec![verdict.clone()],
                }),
            }
        }
        groups
    }
}

struct Runs {
    experiment: String,
    approach: String,
    verdicts: Vec<Verdict>,
}

impl Runs {
    fn name(&self) -> String {
        format!("{}: {}", self.experiment, self.approach)
    }

    /// Returns index and name of each phase, with the names of its classes.
    fn phases(&self) -> impl Iterator<Item = (usize, &str, Vec<&str>)> {
        let phases = self.verdicts.first().into_iter().flat_map(|verdict| verdict.phases.iter().enumerate());
        phases.map(|(index, phase)| {
            (index, phase.name.as_str(), phase.classes.iter().map(|class| class.class.as_str()).collect())
        })
    }
}

/// Compares two runs.
pub fn compare(a: &Side, b: &Side) -> Comparison {
    let sides = [a.groups(), b.groups()];
    let mut comparison = Comparison { names: [a.name.clone(), b.name.clone()], rows: Vec::new(), missing: Vec::new() };
    let same = |x: &Runs, y: &Runs| x.experiment == y.experiment && x.approach == y.approach;
    for ours in &sides[0] {
        match sides[1].iter().find(|theirs| same(ours, theirs)) {
            Some(theirs) => comparison.runs(ours, theirs),
            None => comparison.miss(0, ours.name()),
        }
    }
    for theirs in sides[1].iter().filter(|theirs| !sides[0].iter().any(|ours| same(ours, theirs))) {
        comparison.miss(1, theirs.name());
    }
    comparison
}

impl Comparison {
    /// Returns the rows that are out of band.
    pub fn out(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.out())
    }

    fn miss(&mut self, side: usize, what: String) {
        self.missing.push(Missing { side, what });
    }

    fn runs(&mut self, a: &Runs, b: &Runs) {
        for (ours, phase, classes) in a.phases() {
            match b.phases().find(|(_, name, _)| *name == phase) {
                None => self.miss(0, format!("{}, phase {phase}", a.name())),
                Some((theirs, _, others)) => {
                    for (index, class) in classes.iter().enumerate() {
                        match others.iter().position(|other| other == class) {
                            None => self.miss(0, format!("{}, phase {phase}, class {class}", a.name())),
                            Some(other) => self.rows.extend(row((a, ours, index), (b, theirs, other))),
                        }
                    }
                    for class in others.iter().filter(|other| !classes.contains(other)) {
                        self.miss(1, format!("{}, phase {phase}, class {class}", b.name()));
                    }
                }
            }
        }
        for (_, phase, _) in b.phases() {
            if a.phases().all(|(_, name, _)| name != phase) {
                self.miss(1, format!("{}, phase {phase}", b.name()));
            }
        }
    }

    /// Returns the comparison as columns, followed by the parts that only one run has.
    pub fn text(&self) -> String {
        let mut text = format!("A: {}\nB: {}\n\n{}\n", self.names[0], self.names[1], self.table().text("  "));
        for missing in &self.missing {
            text += &format!("only in {}: {}\n", ["A", "B"][missing.side], missing.what);
        }
        text + &self.result() + "\n"
    }

    /// Returns the table, with a row for every approach, phase and class that both runs have.
    pub(super) fn table(&self) -> Table {
        let difference = || Column::numbers("B − A").in_text("B-A");
        let mut table = Table::new([
            Column::words("approach"),
            Column::words("phase"),
            Column::words("class"),
            Column::numbers("served/s A"),
            Column::numbers("B"),
            difference(),
            Column::marks(""),
            Column::words(""),
            Column::numbers("response time, ms A").in_text("response, ms A"),
            Column::numbers("B"),
            difference(),
            Column::marks(""),
        ]);
        let mut last = None;
        for row in &self.rows {
            let part = Some((&row.approach, &row.phase));
            if part != last {
                table.start_group();
            }
            last = part;
            let names = [&row.approach, &row.phase, &row.class].map(|name| Cell::from(name.as_str()));
            let response = row.response.as_ref().map(|gap| cells(gap, row.judged));
            let served = cells(&row.served, row.judged).into_iter().chain([Cell::faint(&row.statistic)]);
            table.row(names.into_iter().chain(served).chain(response.into_iter().flatten()));
        }
        table
    }

    /// Returns the result in one sentence.
    pub fn result(&self) -> String {
        let compared = self.rows.len();
        let bands = format!("{SERVED_BAND} % of served/s and {RESPONSE_BAND} % of the response time");
        match (compared, self.out().count()) {
            (0, _) => "nothing to compare: no approach, phase and class is in both".to_owned(),
            (_, 0) => format!("all {compared} within {bands}"),
            (_, out) => format!("{out} of {compared} not within {bands}"),
        }
    }
}

/// Returns both numbers, the difference, and a mark if it is out of band.
fn cells(gap: &Gap, judged: bool) -> [Cell; 4] {
    let show = |spread: Option<Spread>| spread.map_or("-".into(), |spread| Cell::spread(Some(spread), 1));
    // Adding 0.0 turns a rounded −0 into 0.
    let percent = gap.percent().map_or(String::new(), |p| format!("{:+.1} %", (p * 10.0).round() / 10.0 + 0.0));
    let (mark, tone) = match (judged, gap.out()) {
        (false, _) => ("not judged", Tone::Faint),
        (true, true) => ("✘", Tone::Bad),
        (true, false) => ("", Tone::Faint),
    };
    [show(gap.a), show(gap.b), Cell::from(percent).tone(tone), Cell::from(mark).tone(tone)]
}

/// Compares one class in one phase. Returns `None` if the class had no requests in either run.
fn row((a, phase_a, class_a): (&Runs, usize, usize), (b, phase_b, class_b): (&Runs, usize, usize)) -> Option<Row> {
    let phases = [PhaseRuns::new(&a.verdicts, phase_a), PhaseRuns::new(&b.verdicts, phase_b)];
    let classes = [phases[0].class(class_a), phases[1].class(class_b)];
    if !classes.iter().any(|class| class.any()) {
        return None;
    }
    let first = phases[0].each().next()?;
    let [served_a, served_b] = classes.map(|class| class.spread(|c| c.part.served_per_s));
    let statistics = classes.map(|class| class.statistic());
    let same = statistics[0] == statistics[1];
    let [response_a, response_b] = classes.map(|class| class.response());
    Some(Row {
        experiment: a.experiment.clone(),
        approach: a.approach.clone(),
        phase: first.name.clone(),
        judged: phases.iter().all(|phase| phase.each().all(|phase| phase.judged)),
        class: classes[0].name().to_owned(),
        served: Gap { a: served_a, b: served_b, band: SERVED_BAND },
        statistic: if same { statistics[0].to_owned() } else { statistics.join("/") },
        response: same.then_some(Gap { a: response_a, b: response_b, band: RESPONSE_BAND }),
    })
}
