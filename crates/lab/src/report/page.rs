//! A run as an HTML page: the result, the comparison of the approaches, the paper's figure once per
//! approach, and the evidence of the measurement. It needs no other file and no script.

use std::fmt::Write as _;

use weirgate_verdict::report::html::{self, escape, figure_text, spread_cell};
use weirgate_verdict::report::svg::{self, Scale};
use weirgate_verdict::report::{Report, Series};

use super::run_file::{ConfigFile, RunFile, Trial};
use super::text::late;
use super::totals::{Against, Total, reference, sentence, totals};

/// Returns the page of a run.
#[must_use]
pub fn page(run: &RunFile) -> String {
    let groups = run.groups();
    let outline = &run.experiment;
    let report = Report { outline, groups: &groups, by: "approach" };
    let mut body = format!("<h1>{}</h1>", escape(&outline.name));
    let _ = write!(body, "<p class=\"lead\">{}</p>", escape(&outline.title));
    let _ = write!(body, "<p><strong>{}</strong></p><p>", escape(&sentence(&report)));
    body.extend(groups.iter().map(html::word));
    body += "</p>";
    body += &notes(&run.notes);
    let doubted = run.trials.iter().filter(|trial| !trial.evidence.doubts().is_empty()).count();
    if doubted > 0 {
        let _ = write!(
            body,
            "<p><span class=\"word broken\">{doubted} of {} trials in doubt</span> <a href=\"#evidence\">see the evidence</a></p>",
            run.trials.len()
        );
    }
    body += &html::curve(&report);
    body += &total_table(&report);
    body += &html::resources(&report);
    body += &html::learned(&report);
    body += &html::verdicts(&report);
    body += &figures(run);
    body += &html::published(&report);
    body += &html::configuration(outline);
    body += &files(run);
    body += &evidence(run);
    body += &machine(run);
    html::document(&outline.name, &body)
}

fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("<p class=\"note\">{}</p>", escape(note))).collect()
}

fn total_table(report: &Report<'_>) -> String {
    let Some(reference) = reference(report.groups) else { return String::new() };
    let mut html = format!(
        "<h2>All classes together</h2><div class=\"wide\"><table><tr><th class=\"l\">phase<th class=\"l\">approach<th>served/s<th>in time/s\
         <th><th class=\"l\">against {}<th>utilisation<th>served / oracle</tr>",
        escape(&reference.discipline)
    );
    let mut last = "";
    for total in totals(report) {
        html += if total.phase == last { "<tr><td>" } else { "<tr class=\"first\"><td class=\"l\">" };
        if total.phase != last {
            let _ = write!(html, "<b>{}</b>", escape(total.phase));
        }
        last = total.phase;
        html += &total_row(&total);
    }
    html + "</table></div><p class=\"note\">All classes together, in the judged part of each phase: dear requests count like \
            cheap ones. In time are as many as keep their class's guaranteed statistic within its limit; Weirgate is compared by them. Utilisation is work done over capacity, served / oracle the work of \
            served requests over the most that could have been served.</p>"
}

fn total_row(total: &Total<'_>) -> String {
    let against = match total.against {
        None => "<td>".to_owned(),
        Some(against) => {
            let class = match against {
                Against::More(_) => "l y",
                Against::Level(_) => "l m",
                Against::Less(_) => "l n",
            };
            format!("<td class=\"{class}\">{}", against.text())
        }
    };
    format!(
        "<td class=\"l\">{}{}{}<td class=\"l\">{}{against}{}{}</tr>",
        escape(total.approach),
        spread_cell(Some(total.served), 1),
        spread_cell(Some(total.in_time), 1),
        if total.most { "<b>most</b>" } else { "" },
        spread_cell(total.utilisation, 2),
        spread_cell(total.served_over_oracle, 2)
    )
}

/// Returns the first trial of each approach that has a series over time.
fn drawn(run: &RunFile) -> Vec<(&Trial, &Series)> {
    let mut drawn: Vec<(&Trial, &Series)> = Vec::new();
    for trial in &run.trials {
        if let Some(series) = &trial.series
            && drawn.iter().all(|(other, _)| other.approach != trial.approach)
        {
            drawn.push((trial, series));
        }
    }
    drawn
}

fn figures(run: &RunFile) -> String {
    let drawn = drawn(run);
    let Some((_, first)) = drawn.first() else { return String::new() };
    let scale = Scale::of(drawn.iter().map(|(_, series)| *series));
    let mut html = format!("<h2>Over time</h2>{}<div class=\"grid\">", html::legend(first.step));
    for (trial, series) in &drawn {
        let _ = write!(
            html,
            "<figure><figcaption>{} <span class=\"m\">{}, seed {}</span></figcaption>{}</figure>",
            escape(&trial.approach),
            escape(&trial.version),
            trial.seed,
            svg::multiple(&run.experiment, series, &scale)
        );
    }
    html += "</div><p class=\"note\">The axes of all approaches are the same.</p>";
    for (trial, series) in drawn {
        if !series.window.is_empty() || series.classes.iter().any(|class| !class.waiting.is_empty()) {
            let who = escape(&trial.approach);
            let figure = svg::whole(&run.experiment, series);
            let _ = write!(
                html,
                "<details><summary>{who}: with window and queues</summary><figure>{figure}</figure></details>"
            );
        }
    }
    html
}

fn files(run: &RunFile) -> String {
    let mut html = String::from("<h3>Files</h3>");
    if !run.experiment_file.is_empty() {
        html += &file("experiment.yaml", Some(&run.experiment_file));
    }
    html.extend(run.configuration.iter().map(|ConfigFile { path, text, .. }| file(path, text.as_deref())));
    html + "<p><a href=\"latency.csv\">latency.csv</a>: quantiles of the response times per trial, phase and class. \
            <a href=\"run.json\">run.json</a>: everything on this page as data.</p>"
}

/// Shows a configuration file: its text, or a link to it.
fn file(path: &str, text: Option<&str>) -> String {
    let link = format!("<a href=\"{}\">{}</a>", escape(&address(path)), escape(path));
    match text {
        Some(text) => format!("<details><summary>{link}</summary><pre>{}</pre></details>", escape(text)),
        None => format!("<p>{link}</p>"),
    }
}

/// Returns a relative address. Bytes with another meaning in addresses become `%XX` (RFC 3986, Sec. 2.1).
fn address(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/=,:@+".contains(&byte);
    let byte = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.bytes().map(byte).collect()
}

fn evidence(run: &RunFile) -> String {
    let mut html = String::from(
        "<h2 id=\"evidence\">Evidence</h2><div class=\"wide\"><table><tr><th class=\"l\">approach<th class=\"l\">version<th>seed\
         <th>sent<th>served<th>shed<th>failed<th>left<th>cut<th>load late, ms<th>nodes late, ms<th>shed after, ms<th>gateway, µs/request\
         <th class=\"l\"></tr>",
    );
    for trial in &run.trials {
        let e = &trial.evidence;
        let (who, version) = (escape(&trial.approach), escape(&trial.version));
        let _ = write!(html, "<tr><td class=\"l\">{who}<td class=\"l\">{version}<td>{}", trial.seed);
        html.extend([e.sent, e.served, e.shed, e.failed, e.left, e.cut].map(|count| format!("<td>{count}")));
        html.extend(
            [e.generator_late_ms, e.node_late_ms, e.shed_after_ms].map(|late_ms| format!("<td>{}", late(late_ms))),
        );
        let _ = write!(html, "<td>{}", e.gateway_cpu_us.map_or(String::new(), |us| format!("{us:.1}")));
        let doubts = e.doubts();
        html += &match doubts.is_empty() {
            true => "<td class=\"l y\">✔".to_owned(),
            false => format!("<td class=\"l n\">✘ {}", escape(&doubts.join("; "))),
        };
        html += "</tr>";
    }
    html += "</table></div><p class=\"note\">Late: median / 99th percentile / largest, against the plan, of requests sent \
             and of nodes' replies. Shed after: the same of the time until a request that was turned away was told so. The mark at the end: every request sent was seen by at most one node, none that was not \
             sent, and each has one fate.</p>";
    for trial in &run.trials {
        for note in &trial.notes {
            let who = escape(&trial.approach);
            let _ = write!(html, "<p class=\"note\">{who}, seed {}: {}</p>", trial.seed, escape(note));
        }
    }
    html
}

fn machine(run: &RunFile) -> String {
    let machine = &run.machine;
    let cores: Vec<String> =
        machine.cores.iter().map(|core| format!("core {}: {}", core.core, core.used_for)).collect();
    let compression = match run.time_compression {
        times if (times - 1.0).abs() < f64::EPSILON => "as in the file".to_owned(),
        times => format!("{} s of the experiment in one second", figure_text(times)),
    };
    let rows = [
        ("date", run.date.clone()),
        ("CPU", machine.cpu.clone()),
        ("cores", cores.join(", ")),
        ("kernel", machine.kernel.clone()),
        ("memory", format!("{} MiB", machine.memory_mib)),
        ("time", compression),
    ];
    let mut html = String::from("<h2>Machine and command</h2><div class=\"wide\"><table>");
    for (name, value) in rows {
        let _ = write!(html, "<tr><td class=\"l m\">{name}<td class=\"l\">{}</tr>", escape(&value));
    }
    html + "</table></div><pre>" + &escape(&run.command) + "</pre>"
}
