//! Finds the classes of a site in the counts of its logs.
//!
//! By host, if at least two hosts matter, else by the first segment of the path. Of a host, a section that is much
//! slower than the rest becomes a class of its own, because it explains the load. Crawlers are a class without a
//! promise. The rest is `other`, with a promise if it is the rest of a single site. *Load* is the time at the servers,
//! or the number of requests in a log without times.

use std::time::Duration;

use super::NODE;
use super::observed::{ClassSeen, Seen, ServiceSeen, UpstreamSeen};
use crate::crawlers;
use crate::log::Tells;
use crate::names::name_of;
use crate::numbers::{count, percent, quantile, rate, told, two_digits};
use crate::policy::scalar;
use crate::tally::{CRAWLERS, Cell, Key, Row, SITE, Tally, WINDOW, Window};

/// Maximum number of classes. More would not fit a glance, and the smaller ones say little.
const MAX_CLASSES: usize = 8;

/// Smallest share of requests or load of a class of its own.
const MIN_SHARE: f64 = 0.02;

/// Smallest peak of a section that is a class of its own, in requests per second. At lower rates chance puts more
/// requests into one second than a promise of that rate allows, and a class of several sections evens that out.
const MIN_PEAK: f64 = 5.0;

/// Smallest share of the requests from which crawlers are a class.
const MIN_CRAWLERS: f64 = 0.005;

/// Smallest share of the load of a slow section, and how much slower than the rest of its host it is.
const SLOW: (f64, f64) = (0.05, 4.0);

/// Share of a class's windows that count as quiet, those with the least work in flight.
const QUIET: f64 = 0.25;

/// Fewest requests from which a mean or a percentile is told.
const MIN_REQUESTS: u64 = 50;

/// Share of busy windows' requests from one address that means a proxy in front.
const PROXY: f64 = 0.8;

/// A class as rows: those of `base` without those of the others.
struct Group {
    name: String,
    matches: Option<String>,
    base: Option<usize>,
    without: Vec<usize>,
    promised: bool,
    about: Vec<String>,
}

/// Returns the facts about the site in the logs, without its servers.
pub(super) fn observed(tally: &mut Tally, notes: &mut Vec<String>) -> Seen {
    let groups = groups(tally);
    let tells = tally.tells.unwrap_or_default();
    remarks(tally, notes);
    let services: Vec<Option<ServiceSeen>> = groups.iter().map(|group| service(tally, group, tells)).collect();
    let classes =
        groups.iter().zip(&services).map(|(group, service)| class(tally, group, service.clone(), tells)).collect();
    let seconds = WINDOW.as_secs_f64();
    // The work of a window is the time that its requests would take on quiet servers.
    let mut work: Vec<f64> = Vec::new();
    let mut answered: Vec<f64> = Vec::new();
    for window in tally.windows.all() {
        let cells = groups.iter().map(|group| f64::from(group.cell(|slot| window.cell(slot)).served));
        let each = cells.zip(&services).map(|(served, service)| served * service.as_ref().map_or(0.0, |s| s.quiet));
        work.push(each.sum::<f64>() / seconds);
        answered.push(f64::from(window.cell(SITE).served) / seconds);
    }
    let capacity = quantile(&mut work, 0.999).filter(|capacity| *capacity > 0.0);
    let upstream = UpstreamSeen {
        name: "app".into(),
        capacity,
        answered: quantile(&mut answered, 0.999).unwrap_or(0.0),
        ..UpstreamSeen::default()
    };
    let limit_per_source = sources(tally, notes);
    let mut about = Vec::new();
    if tells.step.is_none() {
        about.push(
            "The log has no times, so service times, limits of response times and the capacity of the servers cannot be \
             known from it, and are left out. Weirgate learns the service times. A limit is yours to choose. With \
             `$request_time` and `$upstream_response_time` (nginx) or `%D` (Apache) in the log they can be proposed."
                .into(),
        );
    }
    Seen { about, observe: true, upstreams: vec![upstream], classes, limit_per_source, ..Seen::default() }
}

impl Group {
    /// Returns a value of the rows of `base` without the others.
    fn cell(&self, of: impl Fn(usize) -> Cell) -> Cell {
        let base = self.base.map(&of).unwrap_or_default();
        self.without.iter().fold(base, |left, slot| left.without(of(*slot)))
    }

    /// Returns a sum of the rows of `base` without the others.
    fn sum(&self, tally: &Tally, of: impl Fn(&Row) -> f64) -> f64 {
        let base = self.base.map_or(0.0, |slot| of(&tally.rows[slot]));
        (base - self.without.iter().map(|slot| of(&tally.rows[*slot])).sum::<f64>()).max(0.0)
    }
}

/// Divides the requests into classes, in the order of the policy.
fn groups(tally: &Tally) -> Vec<Group> {
    let rows = &tally.rows;
    let site = &rows[SITE];
    let share = |row: &Row| {
        let requests = row.count as f64 / site.count.max(1) as f64;
        let load = if site.seconds > 0.0 { row.seconds / site.seconds } else { requests };
        (requests.max(load), load)
    };
    let sorted = |wanted: &dyn Fn(&Key) -> bool| {
        let matter = |slot: &usize| wanted(&rows[*slot].key) && share(&rows[*slot]).0 >= MIN_SHARE;
        let mut slots: Vec<usize> = (CRAWLERS + 1..rows.len()).filter(matter).collect();
        let by_load = |slot: &usize| share(&rows[*slot]).1;
        slots.sort_by(|a, b| by_load(b).total_cmp(&by_load(a)).then(rows[*a].key.cmp(&rows[*b].key)));
        slots
    };
    let mut groups = Vec::new();
    let mut names: Vec<String> = vec!["other".into()];
    let mut named = |text: &str| {
        names.push(name_of(text, &names));
        names.last().cloned().unwrap_or_default()
    };
    if rows[CRAWLERS].count as f64 >= MIN_CRAWLERS * site.count as f64 {
        let about = "Programs whose `User-Agent` names a crawler: best effort, because some do not say so. They have no \
                     promise and get what the others leave.";
        groups.push(Group {
            name: named("crawlers"),
            matches: Some(format!("{{ header: {{ User-Agent: {{ pattern: {} }} }} }}", scalar(&crawlers::pattern()))),
            base: Some(CRAWLERS),
            without: Vec::new(),
            promised: false,
            about: vec![about.into()],
        });
    }
    let room = MAX_CLASSES - 1 - groups.len();
    let hosts = sorted(&|key| key.host.is_some() && key.segment.is_none());
    let by_host = hosts.len() >= 2;
    let mut taken: Vec<usize> = groups.iter().filter_map(|group| group.base).collect();
    let mut group = |slot: usize, matches: String, without: Vec<usize>, name: &str, about: Vec<String>| {
        taken.push(slot);
        Group { name: named(name), matches: Some(matches), base: Some(slot), without, promised: true, about }
    };
    if by_host {
        let hosts = &hosts[..hosts.len().min(room)];
        let mut left = room - hosts.len();
        let mut wide = Vec::new();
        for &slot in hosts {
            let Some(host) = rows[slot].key.host.clone() else { continue };
            let slow = sorted(&|key| key.host.as_ref() == Some(&host) && key.segment.is_some());
            let slow: Vec<usize> =
                slow.into_iter().filter(|s| is_slow(&rows[*s], &rows[slot], share(&rows[*s]).1)).collect();
            let slow = &slow[..slow.len().min(left)];
            left -= slow.len();
            for &section in slow {
                let segment = rows[section].key.segment.clone().unwrap_or_default();
                let matches = format!("{{ host: {}, {} }}", scalar(&host), path(&segment));
                let about = "A class of its own, because its requests take much longer than the others of this host.";
                groups.push(group(section, matches, Vec::new(), &section_name(&host, &segment), vec![about.into()]));
            }
            let matches = format!("{{ host: {} }}", scalar(&host));
            wide.push(group(slot, matches, slow.to_vec(), &host, Vec::new()));
        }
        // Narrow conditions come before wide ones.
        groups.extend(wide);
    } else {
        let host = hosts.first().and_then(|slot| rows[*slot].key.host.clone());
        let mut sections = sorted(&|key| key.host == host && key.segment.is_some());
        sections.retain(|slot| peak(tally, |of| of.cell(*slot)).0 >= MIN_PEAK);
        for &slot in &sections[..sections.len().min(room)] {
            let segment = rows[slot].key.segment.clone().unwrap_or_default();
            let name = if segment.is_empty() { "home" } else { &segment };
            groups.push(group(slot, format!("{{ {} }}", path(&segment)), Vec::new(), name, Vec::new()));
        }
    }
    let alone = groups.iter().all(|group| !group.promised);
    let crawlers = !groups.is_empty();
    // The rows of the classes, each without the rows that it excludes itself.
    let mut without: Vec<usize> = taken;
    let inner: Vec<usize> = groups.iter().flat_map(|group| group.without.iter().copied()).collect();
    without.retain(|slot| !inner.contains(slot));
    let (name, about) = match (by_host, alone) {
        (_, true) if crawlers => (named("visitors"), "All others. No section of the site needs a class of its own."),
        (_, true) => {
            (named("everything"), "No host and no section of the site stands out, so all requests are one class.")
        }
        (true, false) => ("other".into(), "The rest, without a promise: it gets what the others leave."),
        (false, false) => ("other".into(), "The other sections of the site."),
    };
    groups.push(Group {
        name,
        matches: None,
        base: Some(SITE),
        without,
        promised: alone || !by_host,
        about: vec![about.into()],
    });
    groups
}

/// Returns whether a section is so much slower than the rest of its host that it explains the load.
fn is_slow(section: &Row, host: &Row, load: f64) -> bool {
    let rest = host.timed.saturating_sub(section.timed);
    if section.timed == 0 || rest < MIN_REQUESTS {
        return false;
    }
    let mean = section.seconds / section.timed as f64;
    let others = (host.seconds - section.seconds).max(0.0) / rest as f64;
    load >= SLOW.0 && mean >= SLOW.1 * others
}

fn path(segment: &str) -> String {
    match segment {
        "" => "path: /".into(),
        segment => format!("path_prefix: {}", scalar(&format!("/{segment}"))),
    }
}

fn section_name(host: &str, segment: &str) -> String {
    format!("{host}-{}", if segment.is_empty() { "home" } else { segment })
}

/// Returns the 99th percentile of the rates per second in windows with such requests, and the number of these windows.
fn peak(tally: &Tally, of: impl Fn(&Window) -> Cell) -> (f64, usize) {
    let cells = tally.windows.all().map(of).filter(|cell| cell.count > 0);
    let mut rates: Vec<f64> = cells.map(|cell| f64::from(cell.count) / WINDOW.as_secs_f64()).collect();
    (quantile(&mut rates, 0.99).unwrap_or(0.0), rates.len())
}

/// Returns the facts about a class.
fn class(tally: &Tally, group: &Group, service: Option<ServiceSeen>, tells: Tells) -> ClassSeen {
    let site = &tally.rows[SITE];
    let (peak, windows) = peak(tally, |window| group.cell(|slot| window.cell(slot)));
    let requests = group.sum(tally, |row| row.count as f64);
    let mut responses = group.base.map(|slot| tally.rows[slot].responses.clone());
    for slot in &group.without {
        // A row that is new may lack some of the requests of another one. Then the percentile stays that of both.
        let _ = responses.as_mut().map(|all| all.subtract(&tally.rows[*slot].responses));
    }
    let p95 = responses.filter(|all| all.len() >= MIN_REQUESTS).map(|all| all.value_at_quantile(0.95) as f64 / 1e6);
    let step = tells.step.unwrap_or_default().as_secs_f64();
    let unknown = match (tells.step, &service, p95) {
        (Some(step), None, Some(_)) => Some(format!(
            "The times of the log have steps of {}, too long for a service time of such requests. It is learned.",
            told(step.as_secs_f64())
        )),
        (Some(_), _, None) => Some("Too few requests with a time for a limit of the response time.".to_owned()),
        _ => None,
    };
    ClassSeen {
        name: group.name.clone(),
        matches: group.matches.clone(),
        promised: group.promised,
        about: group.about.clone(),
        share: requests / site.count.max(1) as f64,
        work: (site.seconds > 0.0).then(|| group.sum(tally, |row| row.seconds) / site.seconds),
        windows,
        peak,
        // A time that is cut off to whole steps may be a step longer.
        p95: p95.map(|p95| if step >= 0.1 { p95 + step } else { p95 }),
        p95_from: "95 % of the served requests in the log took at most".into(),
        service,
        unknown,
        ..ClassSeen::default()
    }
}

/// Returns the mean time at the servers in quiet windows.
fn service(tally: &Tally, group: &Group, tells: Tells) -> Option<ServiceSeen> {
    let step = tells.step?;
    let mut windows: Vec<(f32, Cell)> = Vec::new();
    for window in tally.windows.all() {
        let cell = group.cell(|slot| window.cell(slot));
        if cell.served > 0 {
            windows.push((window.cell(SITE).seconds, cell));
        }
    }
    windows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let quarter = (windows.len() as f64 * QUIET).ceil() as usize;
    let (mut used, mut served, mut seconds) = (0, 0u64, 0.0);
    for (_, cell) in &windows {
        if used >= quarter && served >= MIN_REQUESTS {
            break;
        }
        used += 1;
        served += u64::from(cell.served);
        seconds += f64::from(cell.seconds);
    }
    let all = group.sum(tally, |row| row.seconds) / group.sum(tally, |row| row.timed as f64).max(1.0);
    let quiet = seconds / served.max(1) as f64;
    // Of a mean that is shorter than two steps, half may be lost by cutting off.
    let told_enough = step < Duration::from_millis(100) || quiet >= 2.0 * step.as_secs_f64();
    if served < MIN_REQUESTS || quiet < 1e-6 || !told_enough {
        return None;
    }
    let mut from = vec![format!(
        "Mean time of {} requests in the {} of {} windows in which the servers had the least work.",
        count(served),
        count(used as u64),
        count(windows.len() as u64)
    )];
    from.push(match tells.service {
        true => "Too long if the servers were never quiet in this time.".into(),
        false => {
            "Too long if the servers were never quiet, or if clients read slowly: the log has the time until the last \
                  byte has been sent, and not that at the servers (`$upstream_response_time`)."
                .into()
        }
    });
    Some(ServiceSeen { quiet, all, from })
}

/// Returns the rate for one client, if clients can be told apart.
fn sources(tally: &mut Tally, notes: &mut Vec<String>) -> Option<(f64, String)> {
    let (busiest, share) = tally.sources.finish();
    if share.is_some_and(|share| share >= PROXY) {
        notes.push(format!(
            "{} of the requests in busy windows come from one address, probably a proxy in front of the server. Name it in \
             `trusted_proxies`, or all its clients are one to Weirgate",
            percent(share.unwrap_or_default())
        ));
        return None;
    }
    let mut rates: Vec<f64> = busiest.iter().map(|most| f64::from(*most) / WINDOW.as_secs_f64()).collect();
    let most = quantile(&mut rates, 0.999)?;
    let why = format!(
        "The busiest address of a window asked for {} at most (99.9th percentile). Twice that, and at least 1/s, leaves room.",
        rate(two_digits(most, true))
    );
    (rates.len() as u64 >= MIN_REQUESTS).then(|| (two_digits((2.0 * most).max(1.0), true), why))
}

/// Notes facts that the logs do not have.
fn remarks(tally: &Tally, notes: &mut Vec<String>) {
    let site = &tally.rows[SITE];
    if site.timed == 0 {
        notes.push(
            "the log has no times: service times, limits of response times and the capacity of the servers cannot be known \
             from it, and are left out"
                .into(),
        );
    }
    if tally.with_host * 2 < site.count {
        notes.push("the log does not name the host, so classes are by path. With `$host` (nginx) or `%v` (Apache) they can be by host".into());
    }
    if tally.with_agent == 0 {
        notes.push("the log has no `User-Agent`, so crawlers are in the other classes".into());
    }
    if tally.windows.sampled() {
        let kept = count(tally.windows.len() as u64);
        notes.push(format!(
            "the logs cover so much time that rates and service times are from a random {kept} of the windows"
        ));
    }
}

/// Fills in the servers: those that the operator gave, or those that the log names.
pub(super) fn nodes(seen: &mut Seen, tally: &Tally, given: &[String], notes: &mut Vec<String>) -> Result<(), String> {
    let upstream = &mut seen.upstreams[0];
    if !given.is_empty() {
        for text in given {
            let address = weirgate_config::node_address(text)?;
            if !upstream.nodes.contains(&address) {
                upstream.nodes.push(address);
            }
        }
        return Ok(());
    }
    let all: u64 = tally.nodes.values().sum();
    let mut named: Vec<(String, u64)> = tally
        .nodes
        .iter()
        // A server with less than a thousandth of the answers has gone, or was mistyped.
        .filter(|(_, count)| *count * 1000 >= all)
        .filter_map(|(text, count)| Some((weirgate_config::node_address(text).ok()?, *count)))
        .collect();
    named.sort();
    named.dedup_by(|later, first| later.0 == first.0);
    upstream.nodes = named.into_iter().map(|(node, _)| node).collect();
    if upstream.nodes.is_empty() {
        upstream.nodes.push(NODE.into());
        upstream.why.push("Your servers. The log does not name them, so change the address.".into());
        notes.push(format!(
            "the log does not name your servers: {NODE} stands for them. Change it, or give --node HOST:PORT for each"
        ));
    } else {
        upstream.why.push("The servers that the log names.".into());
    }
    Ok(())
}
