//! Figures and table of an experiment with phases that are points of a curve.

use std::fmt::Write as _;

use super::tables::{mark, spread_cell, spread_text};
use super::{escape, svg};
use crate::report::curve::CurveClass;
use crate::report::{Curve, Group, OutlinedFigure, Report};

/// Everything over the axis: one figure per group, and all values in a table. Empty without an axis.
#[must_use]
pub fn curve(report: &Report<'_>) -> String {
    let Some(curve) = Curve::of(report) else { return String::new() };
    let mut html = format!(
        "<h2>Over {}</h2><p class=\"note\">Each point is a judged phase. The dotted line of a class is what it is owed \
         there, or its limit. Hollow marks are published figures; a place marked <i>ours</i> has none in the paper. Of several seeds the median, and the area from the \
         least to the largest. The pointer on a figure shows its numbers.</p>",
        escape(curve.axis)
    );
    let several = report.groups.len() > 1;
    html += if several { "<div class=\"grid\">" } else { "" };
    for group in report.groups {
        let (who, seeds) = (escape(&group.discipline), group.seeds());
        let figure = svg::curve(&curve, group);
        let _ =
            write!(html, "<figure><figcaption>{who} <span class=\"m\">{seeds}</span></figcaption>{figure}</figure>");
    }
    html += if several { "</div>" } else { "" };
    html + &table(&curve)
}

/// The table, with a row per place and group and three figures per class.
fn table(curve: &Curve<'_>) -> String {
    let by = curve.report.by;
    let mut html = format!(
        "<div class=\"wide\"><table><tr><th rowspan=\"2\">{}<th rowspan=\"2\" class=\"l\">{by}",
        escape(curve.axis)
    );
    for class in &curve.classes {
        let _ = write!(html, "<th colspan=\"5\" class=\"l part\">{}", escape(class.name));
    }
    html += "</tr><tr>";
    for class in &curve.classes {
        let _ = write!(html, "<th class=\"part\">served/s<th><th>{}, ms<th><th>shed, %", escape(class.statistic));
    }
    html += "</tr>";
    for place in &curve.places {
        let mut first = true;
        for group in curve.report.groups {
            html += if first { "<tr class=\"first\">" } else { "<tr>" };
            let x = if first { format!("<b>{}</b>", place.0) } else { String::new() };
            first = false;
            let ours = if curve.is_ours(group, *place) { " <span class=\"m\">ours</span>" } else { "" };
            let _ = write!(html, "<td>{x}<td class=\"l\">{}{ours}", escape(&group.discipline));
            html.extend(curve.classes.iter().map(|class| cells(curve, group, class, *place)));
            html += "</tr>";
            let paper: Vec<_> = curve.classes.iter().map(|class| curve.published(group, class, *place)).collect();
            if paper.iter().any(Option::is_some) {
                html += "<tr class=\"paper\"><td><td class=\"l\">published";
                html.extend(paper.into_iter().map(published));
                html += "</tr>";
            }
        }
    }
    html + "</table></div>"
}

fn cells(curve: &Curve<'_>, group: &Group, class: &CurveClass<'_>, place: (f64, usize)) -> String {
    let Some(point) = curve.point(group, class, place) else { return "<td class=\"part\"><td><td><td><td>".to_owned() };
    let [floor, ceiling] = curve.kept(group, class, place).map(mark);
    let response = spread_cell(point.response, 1);
    format!(
        "<td class=\"part\">{}{floor}{response}{ceiling}<td>{}",
        spread_text(&point.served, 1),
        spread_text(&point.shed, 1)
    )
}

fn published(figure: Option<&OutlinedFigure>) -> String {
    let cell = |figure: Option<f64>| figure.map_or(String::new(), |figure| format!("{figure:.1}"));
    let of = |which: fn(&OutlinedFigure) -> Option<f64>| cell(figure.and_then(which));
    format!(
        "<td class=\"part\">{}<td><td>{}<td><td>{}",
        of(|f| f.served_per_s),
        of(|f| f.response_time_ms),
        of(|f| f.shed.map(|share| share * 100.0))
    )
}
