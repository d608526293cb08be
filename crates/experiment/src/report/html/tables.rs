//! The tables of the page.

use std::fmt::Write as _;
use std::time::Duration;

use weirgate_config::{Experiment, Published};
use weirgate_engine::{Class, Policy};

use crate::judge::ClassVerdict;
use crate::report::Played;
use crate::report::summary::{ClassRuns, Kept, PhaseRuns, Spread};
use crate::report::svg::{escape, fault_text, figure_text};

/// A row per phase, class and discipline.
pub(crate) fn verdicts(played: &Played) -> String {
    let several = played.groups.len() > 1;
    let oracle = played.groups.iter().flat_map(|g| &g.verdicts).flat_map(|v| &v.phases).flat_map(|p| &p.classes);
    let oracle = oracle.into_iter().any(|class| class.oracle_served_per_s.is_some());
    let mut html =
        String::from("<h2>Verdicts</h2><div class=\"wide\"><table><tr><th class=\"l\">phase<th class=\"l\">class");
    html += if several { "<th class=\"l\">discipline" } else { "" };
    html += "<th>offered/s<th>served/s";
    html += if oracle { "<th>oracle/s" } else { "" };
    html += "<th>owed/s<th><th class=\"l\">response time, ms<th><th>shed<th>wrong<th>shed after, ms\
             <th>failed<th>left<th>reaction, s<th>utili&shy;sation<th>served / oracle</tr>";
    for (index, phase) in played.experiment.phases.iter().enumerate() {
        let mut first = true;
        let count = played.groups.iter().flat_map(|g| &g.verdicts).map(|v| v.phases[index].classes.len()).max();
        for class in 0..count.unwrap_or(0) {
            for group in &played.groups {
                let runs = PhaseRuns::new(&group.verdicts, index);
                let of = runs.class(class);
                if !of.any() {
                    continue;
                }
                html += if first { "<tr class=\"first\"><td class=\"l\">" } else { "<tr><td>" };
                if first {
                    html += &phase_name(&phase.name, phase.judged, runs.infeasible());
                }
                first = false;
                let name = of.each().next().map_or("", |c| c.class.as_str());
                let _ = write!(html, "<td class=\"l\">{}", escape(name));
                if several {
                    let _ = write!(html, "<td class=\"l\">{}", escape(&group.discipline));
                }
                html += &figures(&of, oracle);
                let whole = [runs.utilisation(), runs.served_over_oracle()];
                html += &whole.map(|spread| cell(spread, 2)).concat();
                html += "</tr>";
            }
        }
    }
    html + "</table></div><p class=\"note\">Judged from the settling time of each phase on. Owed: what arrived within the \
            guaranteed rate, at the agreed cost. Wrong: shed while the class was owed more. Of several seeds the median, \
            and the least and the largest.</p>"
}

fn phase_name(name: &str, judged: bool, infeasible: Kept) -> String {
    let note = match (judged, infeasible) {
        (false, _) => " <span class=\"m\">not judged</span>".to_owned(),
        (_, Kept { missed: 0, .. }) => String::new(),
        (_, Kept { missed, runs }) if missed == runs => " <span class=\"m\">infeasible</span>".to_owned(),
        (_, Kept { missed, runs }) => format!(" <span class=\"m\">infeasible {missed}/{runs}</span>"),
    };
    format!("<b>{}</b>{note}", escape(name))
}

fn figures(of: &ClassRuns<'_>, oracle: bool) -> String {
    let total = |figure: fn(&ClassVerdict) -> u64| cell(of.spread(|c| figure(c) as f64), 0);
    let shed = |figure: fn(&ClassVerdict) -> f64| {
        of.option(|c| (c.part.shed.count > 0).then(|| figure(c))).map(|spread| spread_text(&spread, 1))
    };
    let after = shed(|c| c.part.shed.latency_ms.p50).zip(shed(|c| c.part.shed.latency_ms.p95));
    let ceiling = of.ceilings().next();
    let response = match ceiling {
        Some(_) => of.option(|c| c.part.ceiling.as_ref().and_then(|c| c.value_ms)),
        None => of.option(|c| c.part.response_ms.map(|r| r.mean)),
    };
    let response = response.map_or(String::new(), |spread| {
        let statistic = ceiling.map_or("avg", |c| c.statistic.as_str());
        let limit =
            ceiling.map_or(String::new(), |c| format!(" <span class=\"m\">of {}</span>", figure_text(c.limit_ms)));
        format!("<span class=\"m\">{statistic}</span> {}{limit}", spread_text(&spread, 1))
    });
    [
        median(of.spread(|c| c.part.offered_per_s)),
        cell(of.spread(|c| c.part.served_per_s), 1),
        if oracle { median(of.option(|c| c.oracle_served_per_s)) } else { String::new() },
        median(Spread::of(of.floors().map(|f| f.owed_per_s))),
        mark(of.floor()),
        format!("<td class=\"l\">{response}"),
        mark(of.ceiling()),
        total(|c| c.part.shed.count),
        total(|c| c.part.shed.wrong),
        format!("<td>{}", after.map_or(String::new(), |(p50, p95)| format!("{p50} / {p95}"))),
        total(|c| c.part.failed),
        total(|c| c.part.left),
        of.reaction().map_or("<td>never".to_owned(), |spread| cell(Some(spread), 0)),
    ]
    .concat()
}

fn cell(spread: Option<Spread>, digits: usize) -> String {
    format!("<td>{}", spread.map_or(String::new(), |spread| spread_text(&spread, digits)))
}

/// What is asked for hardly differs between seeds; its median is enough.
fn median(spread: Option<Spread>) -> String {
    format!("<td>{}", spread.map_or(String::new(), |spread| format!("{:.1}", spread.median)))
}

/// The figure; of several the extremes in smaller print.
fn spread_text(spread: &Spread, digits: usize) -> String {
    match spread.text(digits).split_once(" (") {
        Some((median, rest)) => format!("{median} <span class=\"spread\">({rest}</span>"),
        None => spread.text(digits),
    }
}

fn mark(kept: Option<Kept>) -> String {
    match kept {
        None => "<td>".to_owned(),
        Some(kept) => format!("<td class=\"{}\">{}", if kept.missed == 0 { "y" } else { "n" }, kept.text()),
    }
}

/// Published figures beside ours; empty if there are none for the disciplines that were played.
pub(crate) fn published(played: &Played) -> String {
    let mut rows = String::new();
    for group in &played.groups {
        for figure in played.experiment.published.iter().filter(|p| p.discipline == group.discipline) {
            rows += &published_row(played, figure, PhaseRuns::new(&group.verdicts, figure.phase).class(figure.class));
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Paper and ours</h2><div class=\"wide\"><table><tr><th class=\"l\">discipline<th class=\"l\">phase<th class=\"l\">class\
         <th>served/s, paper<th>ours<th>difference<th>response time, ms, paper<th>ours<th>difference</tr>{rows}</table></div>"
    )
}

fn published_row(played: &Played, figure: &Published, ours: ClassRuns<'_>) -> String {
    let phase = played.experiment.phases.get(figure.phase).map_or("", |phase| phase.name.as_str());
    let name = ours.each().next().map_or("", |class| class.class.as_str());
    let served = ours.spread(|c| c.part.served_per_s);
    let response = ours.option(|c| match &c.part.ceiling {
        Some(ceiling) => ceiling.value_ms,
        None => c.part.response_ms.map(|r| r.mean),
    });
    let pair = |paper: Option<f64>, ours: Option<Spread>| match (paper, ours) {
        (Some(paper), Some(ours)) => {
            // Adding nothing turns a rounded −0 into 0.
            let percent = ((ours.median / paper - 1.0) * 100.0).round() + 0.0;
            let off = if paper > 0.0 { format!("{percent:+} %") } else { String::new() };
            format!("<td>{}{}<td>{off}", figure_text(paper), cell(Some(ours), 1))
        }
        (Some(paper), None) => format!("<td>{}<td><td>", figure_text(paper)),
        (None, _) => "<td><td><td>".to_owned(),
    };
    format!(
        "<tr><td class=\"l\">{}<td class=\"l\">{}<td class=\"l\">{}{}{}</tr>",
        escape(&figure.discipline),
        escape(phase),
        escape(name),
        pair(figure.served_per_s, served),
        pair(figure.response_time_ms, response)
    )
}

/// What was run: classes, machines, faults.
pub(crate) fn configuration(experiment: &Experiment) -> String {
    let policy = &experiment.site.policy;
    let mut html = String::from(
        "<h2>What was run</h2><div class=\"wide\"><table><tr><th class=\"l\">class<th class=\"l\">upstream<th>guaranteed/s\
         <th class=\"l\">response time<th>service time, ms</tr>",
    );
    let classes = policy.classes.iter().chain(policy.templates.iter().map(|template| &template.class));
    for class in classes {
        html += &class_row(policy, class);
    }
    html += "</table></div><p class=\"note\">";
    let settle = figure_text(experiment.settle.as_secs_f64());
    let _ = write!(html, "Machines: {}. ", escape(&machines(experiment)));
    let _ = write!(html, "Network: {} ms one way. ", millis(experiment.network_delay));
    let _ = write!(html, "The first {settle} s of each phase are not judged.");
    for fault in &experiment.faults {
        let until = fault.until.map_or("the end".to_owned(), |until| format!("{} s", figure_text(until.as_secs_f64())));
        let at = figure_text(fault.at.as_secs_f64());
        let _ = write!(html, " From {at} s to {until}: {}.", escape(&fault_text(experiment, fault)));
    }
    html + "</p>"
}

fn class_row(policy: &Policy, class: &Class) -> String {
    let pool = policy.pools.get(class.pool).map_or("", |pool| pool.name.as_str());
    let rate = class.guarantee.throughput.map_or("-".to_owned(), figure_text);
    let limit = class
        .guarantee
        .response_time
        .map_or("-".to_owned(), |limit| format!("{} ≤ {} ms", limit.statistic, millis(limit.limit)));
    let service = class.service_time.map_or("learned".to_owned(), millis);
    format!(
        "<tr><td class=\"l\">{}<td class=\"l\">{}<td>{rate}<td class=\"l\">{limit}<td>{service}</tr>",
        escape(&class.name),
        escape(pool)
    )
}

/// Like machines are counted, not listed.
fn machines(experiment: &Experiment) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for machine in &experiment.machines {
        let mut kind = format!("{} CPU{}", machine.cpus, if machine.cpus == 1 { "" } else { "s" });
        if (machine.speed - 1.0).abs() > f64::EPSILON {
            let _ = write!(kind, " of speed {}", figure_text(machine.speed));
        }
        if machine.servers > 1 {
            let _ = write!(kind, " and {} servers behind one address", machine.servers);
        }
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} with {kind}")).collect();
    kinds.join(", ")
}

fn millis(time: Duration) -> String {
    figure_text(time.as_secs_f64() * 1e3)
}
