//! The proposal as a table for people.

use super::observed::Seen;
use crate::numbers::{percent, rate, told, two_digits};
use crate::policy::Policy;

/// Titles of the columns.
const TITLES: [&str; 8] = ["CLASS", "REQUESTS", "OF THE TIME", "PEAK", "PROMISED", "SERVICE TIME", "P95", "LIMIT"];

/// Returns the table.
pub(super) fn table(seen: &Seen, policy: &Policy) -> String {
    let mut rows = vec![TITLES.map(str::to_owned)];
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for (class, made) in seen.classes.iter().zip(&policy.classes) {
        let limit = made
            .response_time
            .as_ref()
            .map(|limit| limit.value.trim_matches(['{', '}', ' ']).trim_start_matches("p95:").trim().to_owned());
        rows.push([
            class.name.clone(),
            percent(class.share),
            or_none(class.work.map(percent)),
            rate(two_digits(class.peak, true)),
            or_none(made.throughput.as_ref().map(|rate| rate.value.clone())),
            or_none(made.service_time.as_ref().map(|time| time.value.clone())),
            or_none(class.p95.map(told)),
            or_none(limit),
        ]);
    }
    let widths: [usize; 8] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}
