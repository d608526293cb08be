//! Charts of resources and of learned costs, for pages and for documents that show one of them.

use super::svg::{self, Bars, Line};
use super::{Curve, Report, Series, learned as tables, resources as figures};

/// Heading of the charts of learned costs.
pub(super) const LEARNED: &str = "Learned costs";

/// A chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// Name for use in a file name, unique in a report: `heavy-use`, `in_flight-mqos`.
    pub name: String,
    /// Heading of the chart, such as its phase.
    pub heading: String,
    /// Subject of the chart, where the heading and the chart itself do not name it.
    pub caption: String,
    /// The SVG, for use alone or in a page.
    pub svg: String,
}

/// Every chart of the report. For each judged phase (or for all together over an axis): use of each
/// resource by class, throughput, latency and its composition. Then requests in flight over time, and
/// learned costs. The former are absent if requests need only CPU time, the latter if nothing is learned.
pub fn drawings(report: &Report<'_>) -> Vec<Drawing> {
    [resources(report), learned(report)].concat()
}

/// Learned costs of the first run of each group, over time.
pub(super) fn learned(report: &Report<'_>) -> Vec<Drawing> {
    let drawing = |group: &super::Group| {
        let (verdict, table) = (group.verdicts.first()?, tables::first(group)?);
        let svg = svg::learned(report.outline, table, verdict.seed);
        (!svg.is_empty()).then(|| Drawing {
            name: plain(&format!("learned-{}", group.discipline)),
            heading: LEARNED.to_owned(),
            caption: format!("{}, seed {}", group.discipline, verdict.seed),
            svg,
        })
    };
    report.groups.iter().filter_map(drawing).collect()
}

/// Resource usage and requests in flight.
pub(super) fn resources(report: &Report<'_>) -> Vec<Drawing> {
    let drawing = |heading: &str, start: &str, name: &str, chart: &Bars| Drawing {
        name: plain(&format!("{start}{name}")),
        heading: heading.to_owned(),
        caption: String::new(),
        svg: svg::bars(chart),
    };
    let mut all = Vec::new();
    if let Some(curve) = Curve::of(report) {
        let heading = format!("Over {}", curve.axis);
        let charts = figures::charts_over_axis(report);
        all.extend(
            charts.iter().zip(["throughput", "latency"]).map(|(chart, name)| drawing(&heading, "", name, chart)),
        );
    } else {
        for (index, phase) in report.outline.phases.iter().enumerate().filter(|(_, phase)| phase.judged) {
            let names = ["use", "throughput", "latency", "composition"];
            let start = format!("{}-", phase.name);
            let charts = figures::charts(report, index);
            all.extend(charts.iter().zip(names).map(|(chart, name)| drawing(&phase.name, &start, name, chart)));
        }
    }
    all.extend(in_flight(report));
    all
}

/// Requests in flight by the resource of which they need the largest part, for each discipline. Each chart
/// has its own axis, because without scheduling all requests are in flight.
fn in_flight(report: &Report<'_>) -> Vec<Drawing> {
    let with =
        |series: &&Series| series.in_flight.iter().flat_map(|line| &line.requests).any(|requests| *requests > 0.0);
    let drawn = report.groups.iter().filter_map(|group| Some((group, group.series.as_ref().filter(with)?)));
    let drawing = |(group, series): (&super::Group, &Series)| {
        let middle = |point: usize| ((point as f64 + 0.5) * series.step).min(series.length);
        let line = |of: &super::InFlightSeries| Line {
            name: of.resource.clone(),
            points: of.requests.iter().enumerate().map(|(point, in_flight)| (middle(point), *in_flight)).collect(),
        };
        let lines: Vec<Line> = series.in_flight.iter().map(line).collect();
        let max = lines.iter().flat_map(|line| &line.points).map(|(_, in_flight)| *in_flight).fold(0.0, f64::max);
        Drawing {
            name: plain(&format!("in-flight-{}", group.discipline)),
            heading: "Requests in flight, by the resource that they use most".to_owned(),
            caption: format!("{}, seed {}", group.discipline, series.seed),
            svg: svg::over_time("Requests in flight", &lines, series.length, svg::axis_for(max)),
        }
    };
    drawn.map(drawing).collect()
}

/// Replaces the characters of a name that some file system does not allow.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}
