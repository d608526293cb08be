//! A run as an HTML page: the result, the comparison of the approaches, the paper's figure once per
//! approach, and the evidence of the measurement. It needs no other file and no script.

use std::fmt::Write as _;

use weirgate_verdict::report::html::{self, escape, figure_text};
use weirgate_verdict::report::svg::{self, Scale};
use weirgate_verdict::report::{Report, Series};

use super::run_file::{ConfigFile, RunFile, Trial};
use super::totals::{self, sentence};
use super::{clients, evidence};

/// Returns the page of a run.
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
    if let Some(table) = clients::table(run) {
        body += "<h2>Clients with a name</h2>";
        body += &table.html();
        body += "<p class=\"note\">Median over the seeds, with minimum and maximum.</p>";
    }
    body += &html::resources(&report);
    body += &html::learned(&report);
    body += &html::verdicts(&report);
    body += &figures(run);
    body += &html::published(&report);
    body += &html::configuration(outline);
    body += &files(run);
    body += &evidence_part(run);
    body += &machine(run);
    html::document(&outline.name, &body)
}

fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("<p class=\"note\">{}</p>", escape(note))).collect()
}

fn total_table(report: &Report<'_>) -> String {
    if report.groups.is_empty() {
        return String::new();
    }
    format!("<h2>All classes together</h2>{}", totals::table(report).html())
        + "<p class=\"note\">All classes together, in the judged part of each phase. Expensive requests count like \
           cheap ones. In time: as many requests as keep the guaranteed statistic of their class within its limit. \
           The comparison with Weirgate is by these. Utilisation is work done over capacity. Served / oracle is the \
           work of served requests over the maximum that could have been served.</p>"
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

fn evidence_part(run: &RunFile) -> String {
    let mut html = format!("<h2 id=\"evidence\">Evidence</h2>{}", evidence::table(run).html());
    html += "<p class=\"note\">Late: median / 99th percentile / largest delay against the plan, of requests sent and \
             of nodes' replies. Shed after: the same for the time until a refused request got its answer. The mark at \
             the end: at most one node saw each request sent, no node saw one that was not sent, and each has one \
             outcome.</p>";
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
