//! One page with everything: figures, verdicts, published figures next to ours, and the configuration. It
//! needs no other file and no script.

mod curve;
mod learned;
mod resources;
mod tables;

use std::fmt::Write as _;

use super::{Group, Kept, Outline, Played, svg};
pub use curve::curve;
pub use learned::learned;
pub use resources::resources;
pub use svg::{escape, figure_text};
pub use tables::{configuration, published, verdicts};

const STYLE: &str = include_str!("style.css");

/// The page of all experiments played by `command`.
pub fn page(played: &[Played], command: &str) -> String {
    let names: Vec<&str> = played.iter().map(|played| played.experiment.name.as_str()).collect();
    let sections: String = played.iter().map(section).collect();
    document(&names.join(", "), &format!("{sections}\n<h2>Command</h2><pre>{}</pre>", escape(command)))
}

/// A page around `body`, which is HTML. `title` is text.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{} · Weirgate</title><style>{STYLE}</style></head>\n<body>{body}</body></html>\n",
        escape(title)
    )
}

fn section(played: &Played) -> String {
    let outline = Outline::new(&played.experiment);
    let report = played.report(&outline);
    let mut html = format!("<section><h1>{}</h1>", escape(&outline.name));
    if !outline.title.is_empty() {
        let _ = write!(html, "<p class=\"lead\">{}</p>", escape(&outline.title));
    }
    html += "<p>";
    html.extend(played.groups.iter().map(word));
    html += "</p>";
    html += &curve(&report);
    if let Some(series) = played.groups.iter().find_map(|group| group.series.as_ref()) {
        let _ = write!(html, "<h2>Over time</h2>{}", legend(series.step));
    }
    html.extend(played.groups.iter().map(|group| figure(&outline, group)));
    html += &resources(&report);
    html += &learned(&report);
    html += &verdicts(&report);
    html += &published(&report);
    html += &configuration(&outline);
    html + "</section>"
}

/// Explanation of a figure with points `step` seconds apart.
pub fn legend(step: f64) -> String {
    format!(
        "<p class=\"note\">Each point covers {} s. Light grey: not judged, because no control is instant. Red: a \
         fault. The dotted line of a class is its guaranteed rate at the cost of its requests, or its limit. Point at \
         a figure to see its numbers.</p>",
        figure_text(step)
    )
}

/// Verdict of a group in a word.
pub fn word(group: &Group) -> String {
    let Kept { missed, runs: all } = group.missed();
    let (class, what) = match (all, missed, group.violations()) {
        (_, _, 1) => ("broken", "1 violation of an invariant".to_owned()),
        (_, _, violations @ 2..) => ("broken", format!("{violations} violations of invariants")),
        (0, _, _) => ("none", "nothing was judged".to_owned()),
        (_, 0, _) => ("held", format!("held: all {all} guarantees")),
        _ => ("broken", format!("broken: {missed} of {all} guarantees missed")),
    };
    let who = escape(&group.discipline);
    format!("<span class=\"word {class}\">{who}: {what}</span><span class=\"m\">{}</span> ", group.seeds())
}

fn figure(outline: &Outline, group: &Group) -> String {
    let Some(series) = &group.series else { return String::new() };
    let (who, seed) = (escape(&group.discipline), series.seed);
    format!("<figure><figcaption>{who}, seed {seed}</figcaption>{}</figure>", svg::whole(outline, series))
}
