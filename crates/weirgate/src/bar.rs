//! Bars of progress on standard error, which are drawn only if it is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a bar of this length, or a spinner if the length is unknown.
pub(crate) fn bar(length: impl Into<Option<u64>>, template: &str) -> ProgressBar {
    let bar = length.into().map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    draw_as(&bar, template);
    bar
}

/// Changes the form of a bar. Templates are constants, and the bar's own style serves as well.
pub(crate) fn draw_as(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
