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

const STYLE: &str = "\
:root{color-scheme:light dark}*{box-sizing:border-box}\
body{margin:0 auto;max-width:76rem;padding:2rem 1.5rem 4rem;background:#fff;color:#1f2328;\
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .3rem;letter-spacing:-.01em}h2{font-size:1.15rem;margin:2.4rem 0 .6rem}\
h3{font-size:1rem;margin:1.6rem 0 .5rem}section+section{margin-top:4rem;border-top:1px solid #d1d9e0;padding-top:2rem}\
.lead,.note{color:#57606a}.note{font-size:.87rem;margin:.4rem 0}.wide{overflow-x:auto}\
.word{display:inline-block;font-weight:600;border-radius:2rem;padding:.1rem .75rem;margin:.2rem .6rem .2rem 0}\
.held{background:#dafbe1;color:#116329}.broken{background:#ffebe9;color:#a40e26}.none{background:#eaeef2;color:#424a53}\
table{border-collapse:collapse;font-size:.87rem;font-variant-numeric:tabular-nums;white-space:nowrap}\
th{font-weight:600;text-align:right;vertical-align:bottom;color:#57606a;padding:.3rem .6rem;border-bottom:1px solid #d1d9e0}\
td{text-align:right;padding:.22rem .6rem;border-bottom:1px solid #eaeef2}tr.first td{border-top:1px solid #afb8c1}\
th.l,td.l{text-align:left}th.part,td.part{padding-left:2rem}.y{color:#1a7f37;font-weight:700}.n{color:#cf222e;font-weight:700}.m{color:#57606a}\
.spread{color:#57606a;font-size:.92em}.paper td{color:#57606a;font-style:italic}\
figure{margin:1.2rem 0}figure svg{display:block;width:100%;height:auto}figcaption{margin:.2rem 0 .4rem;font-weight:600}\
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,29rem),1fr));gap:0 2rem}\
details{margin:.5rem 0}summary{cursor:pointer}summary:hover{text-decoration:underline}a{color:#0550ae}\
@media (max-width:40rem){body{padding:1.2rem .9rem 3rem}}\
pre{background:#f6f8fa;border:1px solid #d1d9e0;border-radius:6px;padding:.6rem .8rem;overflow-x:auto;font-size:.85rem}\
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}\
.lead,.note,.m,.spread,th,.paper td{color:#9198a1}section+section,th{border-color:#3d444d}td{border-color:#21262d}\
tr.first td{border-top-color:#59636e}.held{background:#12361f;color:#7ee2a8}.broken{background:#4b1113;color:#ffb1ab}\
.none{background:#2a313c;color:#b6bec8}.y{color:#3fb950}.n{color:#ff7b72}a{color:#79b8ff}pre{background:#151b23;border-color:#3d444d}}";

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
