//! The paper's figures next to ours, and whether ours lie in their bands.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use weirgate_verdict::report::html::{document, escape};
use weirgate_verdict::report::svg::{Line, over_time};
use weirgate_verdict::report::{Cell, Column, Table};

use super::recording::Recording;
use super::scenario::{Judged, SCENARIOS, Scenario};
use super::{CLASSES, NODES};

/// Window of the figures in seconds, of the same order as the paper's.
const WINDOW: f64 = 0.5;

/// One of our figures, compared with the paper's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The scenario's name.
    pub scenario: String,
    /// Description of the figure.
    pub what: String,
    /// The paper's value.
    pub paper: String,
    /// Our value.
    pub ours: String,
    /// Band in which our value must lie.
    pub band: String,
    /// Whether our value lies in the band.
    pub holds: bool,
}

fn scenario(recording: &Recording) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == recording.scenario)
}

/// Returns the findings for the bands of each recording.
pub fn findings(recordings: &[Recording]) -> Vec<Finding> {
    let of = |recording| scenario(recording).into_iter().flat_map(move |scenario| found(scenario, recording));
    recordings.iter().flat_map(of).collect()
}

fn found(scenario: &Scenario, recording: &Recording) -> Vec<Finding> {
    let finding = |band: &super::Band| {
        let (what, ours): (String, Vec<f64>) = match band.judged {
            Judged::Class(class, from) => {
                let part = recording.of_cluster(class, from.as_secs_f64());
                (format!("class {}, % of the cluster", class + 1), vec![part])
            }
            Judged::Others(from) => {
                let parts = (1..CLASSES).map(|class| recording.of_cluster(class, from.as_secs_f64()));
                let (min, max) = parts.fold((f64::INFINITY, 0.0_f64), |(l, m), part| (l.min(part), m.max(part)));
                ("each other class, % of the cluster".to_owned(), vec![min, max])
            }
            Judged::Relocation => {
                let times = recording.relocation_times();
                let median = times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY);
                (format!("relocation, median of {}, s", times.len()), vec![median])
            }
        };
        let text: Vec<String> = ours.iter().map(|figure| format!("{figure:.2}")).collect();
        Finding {
            scenario: scenario.name.into(),
            what,
            paper: band.paper.into(),
            ours: text.join(" to "),
            band: format!("{} to {}", band.min, band.max),
            holds: ours.iter().all(|figure| (band.min..=band.max).contains(figure)),
        }
    };
    scenario.bands.iter().map(finding).collect()
}

/// Returns the table of the findings.
pub fn table(findings: &[Finding]) -> Table {
    let numbers = ["paper", "ours", "band"].map(Column::numbers);
    let first = ["scenario", "what"].map(Column::words).into_iter();
    let mut table = Table::new(first.chain(numbers).chain([Column::marks("").in_text("holds")]));
    for finding in findings {
        let cells = [&finding.scenario, &finding.what, &finding.paper, &finding.ours, &finding.band];
        table.row(cells.map(|cell| Cell::from(cell.as_str())).into_iter().chain([Cell::holds(finding.holds)]));
    }
    table
}

/// Returns one page with all findings and the figures of `recordings`.
pub fn page(findings: &[Finding], recordings: &[Recording]) -> String {
    const TITLE: &str = "Cluster Reserves on real control groups";
    let mut html = format!(
        "<h1>{TITLE}</h1><p class=\"lead\">Four nodes, and five classes that reserve 20 % of the cluster each: Secs. \
         5.2 to 5.4 of the paper, Figs. 4 to 13.</p>{}",
        table(findings).html()
    );
    html.extend(recordings.iter().filter_map(|recording| Some(section(scenario(recording)?, recording))));
    document(TITLE, &html)
}

fn section(scenario: &Scenario, recording: &Recording) -> String {
    let mut html = format!("<h2>{}</h2><div class=\"grid\">", escape(scenario.title));
    for (caption, svg) in scenario.figures.iter().zip(figures(scenario, recording)) {
        let _ = write!(html, "<figure><figcaption>{}</figcaption>{svg}</figure>", escape(caption));
    }
    html += "</div>";
    let times: Vec<String> = recording.relocation_times().iter().map(|took| format!("{took:.2}")).collect();
    if scenario.coordinator.is_some() && !times.is_empty() {
        let _ = write!(
            html,
            "<p class=\"note\">Seconds until a request's class had nine tenths of its share on the request's node: \
             {}.</p>",
            times.join(", ")
        );
    }
    if !recording.log.is_empty() {
        let log = escape(&recording.log.join("\n"));
        let _ = write!(html, "<details><summary>Log of coordinator and agents</summary><pre>{log}</pre></details>");
    }
    html
}

/// Returns the two figures of a scenario: one node or one class on all nodes, and the cluster.
pub fn figures(scenario: &Scenario, recording: &Recording) -> [String; 2] {
    let length = scenario.length.as_secs_f64();
    let classes = |node: Option<usize>| -> Vec<Line> {
        let line =
            |class| Line { name: format!("class {}", class + 1), points: recording.over_time(class, node, WINDOW) };
        (0..CLASSES).map(line).collect()
    };
    let Some(shown) = scenario.shown else {
        let all = over_time("Use of the cluster, %", &classes(None), length, 40.0);
        return [over_time("Use of node 1, %", &classes(Some(0)), length, 40.0), all];
    };
    let line = |node: usize| Line {
        name: format!("node {}", node + 1),
        points: recording.over_time(shown, Some(node), WINDOW),
    };
    let nodes: Vec<Line> = (0..NODES).map(line).collect();
    let highest = if scenario.request.is_some() { 100.0 } else { 50.0 };
    let single = over_time(&format!("Use of each node by class {}, %", shown + 1), &nodes, length, highest);
    [single, over_time("Use of the cluster, %", &classes(None), length, 40.0)]
}
