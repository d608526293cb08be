//! The figures of a look as lines of text.

use std::time::Duration;

use weirgate_spanned_yaml::unit::{number_text, span_text};
use weirgate_wire::admin::{Class, Followed, NodeState};

use super::{Look, site};

/// Titles of the columns of [`row`].
pub(super) const TITLES: [&str; COLUMNS] =
    ["CLASS", "STATE", "SERVED", "OF SENT", "FLOOR", "RESPONSE", "LIMIT", "REFUSED", "WOULD", "WAIT/FLIGHT"];

/// Number of columns.
const COLUMNS: usize = 10;

/// Maximum width of a class's name.
const NAME: usize = 32;

/// Maximum width of the table of gateways in [`text`], without the two spaces before it: a terminal has 80 columns.
const SITE: usize = 78;

/// Number of events in [`text`].
const EVENTS: usize = 5;

/// Returns whether a class misses its guarantee.
pub(super) fn misses(class: &Class) -> bool {
    class.achieved.throughput_held == Some(false) || class.achieved.response_time_held == Some(false)
}

fn promised(class: &Class) -> bool {
    class.guarantee.throughput_per_second.is_some() || class.guarantee.response_time.is_some()
}

/// Returns the classes in the order of interest: those that miss a guarantee, those that have one, the others.
pub(super) fn ordered(look: &Look) -> Vec<&Class> {
    let mut classes: Vec<&Class> = look.classes.iter().collect();
    classes.sort_by_key(|class| (!misses(class), !promised(class), class.class));
    classes
}

/// Returns the figures of a class.
pub(super) fn row(class: &Class) -> [String; COLUMNS] {
    let got = &class.achieved;
    let state = match (misses(class), promised(class)) {
        (true, _) => "MISSED",
        (false, true) => "held",
        (false, false) => "-",
    };
    let response = match &class.guarantee.response_time {
        Some(_) => got.limited.as_ref().map(|limited| (limited.statistic.as_str(), limited.seconds)),
        None => got.p95_seconds.map(|seconds| ("p95", seconds)),
    };
    [
        name(class),
        state.to_owned(),
        rate(got.served_per_second),
        rate(got.offered_per_second),
        floor(class),
        response.map_or("-".to_owned(), |(statistic, seconds)| format!("{statistic} {}", span(seconds))),
        class.guarantee.response_time.as_ref().map_or("-".to_owned(), |limit| span(limit.seconds)),
        if got.shed_per_second > 0.0 { rate(got.shed_per_second) } else { "-".to_owned() },
        would(class),
        format!("{}/{}", class.waiting, class.outstanding),
    ]
}

/// Returns the guaranteed throughput, and the part of it that this gateway keeps if others keep the rest.
fn floor(class: &Class) -> String {
    match (class.guarantee.throughput_per_second, class.part_per_second) {
        (Some(whole), Some(part)) => format!("{} of {}", number_text((10.0 * part).round() / 10.0), rate(whole)),
        (whole, _) => whole.map_or("-".to_owned(), rate),
    }
}

/// Returns the rate of the requests that passed and would have been refused, if the class is observed.
fn would(class: &Class) -> String {
    let got = class.achieved.would_shed_per_second;
    if got > 0.0 || class.enforced_share < 1.0 { rate(got) } else { "-".to_owned() }
}

/// Returns the classes that are not enforced for all sources.
pub(super) fn observed(look: &Look) -> Vec<String> {
    let observed = look.classes.iter().filter(|class| class.enforced_share < 1.0);
    let text = |class: &Class| match class.enforced_share {
        0.0 => format!("{}: nothing is refused, {} would be", name(class), rate(class.achieved.would_shed_per_second)),
        share => format!(
            "{}: enforced for {} % of the sources, {} of the others would be refused",
            name(class),
            number_text(share * 100.0),
            rate(class.achieved.would_shed_per_second)
        ),
    };
    observed.map(text).collect()
}

fn name(class: &Class) -> String {
    let name = match &class.key {
        Some(key) => format!("{} {key}", class.name),
        None => class.name.clone(),
    };
    shortened(&name, NAME)
}

/// Returns a name, or its first `most` characters and a mark.
pub(super) fn shortened(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

pub(super) fn rate(per_second: f64) -> String {
    format!("{}/s", number_text(per_second))
}

pub(super) fn span(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or("-".to_owned(), span_text)
}

/// Returns the gateway as a whole, in one line.
pub(super) fn summary(look: &Look) -> String {
    let sum = |of: fn(&Class) -> f64| rate(look.classes.iter().map(of).sum());
    let up = look.engine.nodes.iter().filter(|node| node.state == NodeState::Up).count();
    let window = look.engine.window.map_or("no limit".to_owned(), |window| format!("window {window}"));
    format!(
        "served {} of {}, refused {}, waiting {}, in flight {} ({window}), {up} of {} nodes usable",
        sum(|class| class.achieved.served_per_second),
        sum(|class| class.achieved.offered_per_second),
        sum(|class| class.achieved.shed_per_second),
        look.engine.waiting,
        look.engine.outstanding,
        look.engine.nodes.len(),
    )
}

/// Returns the name of the discipline, the version of the configuration and the time since the start.
pub(super) fn title(look: &Look) -> String {
    let up = span(look.engine.now_seconds.floor());
    format!("discipline {}, configuration {}, up {up}", look.engine.discipline, look.version)
}

/// Returns the reasons of present refusals.
pub(super) fn refusals(look: &Look) -> Vec<String> {
    let lasting = look.events.refusals.iter().filter(|refusals| refusals.lasts);
    lasting
        .map(|r| format!("{}: {} of {} requests refused ({}): {}", r.class, r.count, r.offered, r.reason, r.why))
        .collect()
}

/// Returns the windows with the reasons of their last moves.
pub(super) fn windows(look: &Look) -> Vec<String> {
    let line = |group: &weirgate_wire::admin::MachineGroup| {
        let window = group.window.map_or("no limit".to_owned(), |window| format!("window {window}"));
        let resource = group.resource.as_ref().map_or(String::new(), |resource| format!(" ({resource})"));
        format!("{}{resource}: {} in flight, {window}. {}", group.pools.join(", "), group.outstanding, group.moved.why)
    };
    look.engine.machine_groups.iter().map(line).collect()
}

/// Returns the nodes that are not usable.
pub(super) fn unusable(look: &Look) -> Vec<String> {
    let word = |state| match state {
        NodeState::Up => None,
        NodeState::Down => Some("down"),
        NodeState::Draining => Some("draining"),
        NodeState::Ejected => Some("ejected"),
    };
    let nodes = look.engine.nodes.iter();
    nodes.filter_map(|node| Some(format!("{}/{} {}", node.pool, node.name, word(node.state)?))).collect()
}

/// Returns the gateways that are followed, with the age of the last answer of each.
pub(super) fn followed(look: &Look) -> Vec<String> {
    let of = |one: &Followed| {
        let age = one
            .age_seconds
            .map_or("not heard yet".to_owned(), |age| format!("heard {} ago", span((10.0 * age).round() / 10.0)));
        let error = one.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        format!("follows {}: {age}{error}", one.gateway)
    };
    look.follows.iter().map(of).collect()
}

/// Returns everything as text.
pub(super) fn text(look: &Look) -> String {
    let mut rows = vec![TITLES.map(str::to_owned)];
    rows.extend(ordered(look).into_iter().map(row));
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = format!("{}\n{}\n\n", title(look), summary(look));
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    if look.more {
        text += "There are more classes: /snapshot has all of them.\n";
    }
    let latest = look
        .events
        .events
        .iter()
        .rev()
        .take(EVENTS)
        .map(|event| format!("{} ago: {}", ago(look, event.at_seconds), event.text));
    let of_site = site::lines(look).into_iter().chain(site::table(look, SITE, usize::MAX)).collect();
    let parts = [
        ("Refused", refusals(look)),
        ("Observed", observed(look)),
        ("In flight", windows(look)),
        ("Not usable", unusable(look)),
        ("Site", of_site),
        ("Standby", followed(look)),
        ("Changes", latest.collect()),
    ];
    for (title, lines) in parts.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        text += &format!("\n{title}\n");
        lines.iter().for_each(|line| text += &format!("  {line}\n"));
    }
    text
}

/// Returns the time since `at`, in seconds since the gateway started.
pub(super) fn ago(look: &Look, at: f64) -> String {
    span((look.engine.now_seconds - at).max(0.0).round())
}
