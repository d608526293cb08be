//! Figures and table of an experiment with phases that are points of a curve.

use std::fmt::Write as _;

use super::{escape, svg};
use crate::report::{Cell, Curve, Report};

/// Everything over the axis: one figure per group, and all values in a table. Empty without an axis.
pub fn curve(report: &Report<'_>) -> String {
    let Some(curve) = Curve::of(report) else { return String::new() };
    let mut html = format!(
        "<h2>Over {}</h2><p class=\"note\">Each point is a judged phase. The dotted line of a class is its owed rate \
         there, or its limit. Hollow marks are published figures. A place marked <i>ours</i> has none in the paper. \
         With several seeds, lines are medians, and areas reach from the smallest to the largest value. Point at a \
         figure to see its numbers.</p>",
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
    html + &curve.table(report.groups, |spread| Cell::spread(spread, 1)).html()
}
