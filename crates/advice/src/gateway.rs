//! Proposals from the observations of a running gateway.
//!
//! The gateway has counts since its start and figures of its last ten seconds, so it is looked at every ten seconds,
//! and each pair of looks is a window. Its conditions are told in words and without the values of headers, cookies and
//! parameters, which may be secrets. Where a condition is not told, the class gets one that no request meets, and says
//! so.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use weirgate_wire::admin::Class;

use crate::numbers::{long, quantile};
use crate::policy::scalar;
use crate::propose::observed::{ClassSeen, Seen, ServiceSeen, UpstreamSeen};
use crate::propose::{NODE, Proposal, propose};

/// Time between two looks in seconds: the window over which the gateway's own figures are.
pub const LOOK_EVERY_SECONDS: u64 = 10;

/// Header of the condition that no request meets.
const UNTOLD: &str = "X-Weirgate-Condition-Not-Told";

/// Windows below which the figures are mostly chance: ten minutes.
const FEW: usize = 60;

/// The parts of `/policy` that are used.
#[derive(Clone, Debug, Deserialize)]
pub struct RunningPolicy {
    listen: Vec<String>,
    upstreams: Vec<RunningUpstream>,
    classes: Vec<RunningClass>,
    templates: Vec<RunningClass>,
    rules: Vec<RunningRule>,
}

#[derive(Clone, Debug, Deserialize)]
struct RunningUpstream {
    name: String,
    nodes: Vec<RunningNode>,
}

#[derive(Clone, Debug, Deserialize)]
struct RunningNode {
    address: String,
}

#[derive(Clone, Debug, Deserialize)]
struct RunningClass {
    name: String,
    upstream: String,
    guarantee: weirgate_wire::admin::Guarantee,
}

#[derive(Clone, Debug, Deserialize)]
struct RunningRule {
    when: String,
    class: String,
    keyed_by: Option<String>,
}

/// The figures of a class, or of all classes of a template together.
#[derive(Debug, Default)]
struct Watched {
    /// Rates in windows with requests, those of each live class of a template on their own.
    rates: Vec<f64>,
    /// Served requests per second in each window, of all live classes.
    served: Vec<f64>,
    p95: Vec<f64>,
    service: Option<f64>,
    requests: u64,
}

/// Requests offered and served since the gateway's start, by class.
type Counts = HashMap<u32, (u64, u64)>;

/// Looks at a gateway.
#[derive(Debug, Default)]
pub struct Watch {
    /// Time of the last look, and the counts of that time.
    last: Option<(f64, Counts)>,
    classes: BTreeMap<String, Watched>,
    windows: usize,
    seconds: f64,
    /// Whether a class is only observed.
    observed: bool,
}

impl Watch {
    /// Takes a look: the gateway's time in seconds since its start, and its live classes.
    pub fn look(&mut self, now: f64, classes: &[Class]) {
        let counts = classes.iter().map(|class| (class.class, (class.offered, class.served))).collect();
        let last = self.last.replace((now, counts));
        // Time that goes back is that of another process.
        let Some((then, before)) = last.filter(|(then, _)| *then < now) else { return };
        let seconds = now - then;
        for class in classes {
            self.observed |= class.enforced_share == 0.0;
            let watched = self.classes.entry(class.name.clone()).or_default();
            watched.served.resize(self.windows + 1, 0.0);
            let (offered, served) = before.get(&class.class).copied().unwrap_or_default();
            let offered = class.offered.saturating_sub(offered);
            if let Some(window) = watched.served.last_mut() {
                *window += class.served.saturating_sub(served) as f64 / seconds;
            }
            watched.service =
                class.service_time_seconds.or(watched.service).filter(|time| time.is_finite() && *time >= 1e-6);
            if offered > 0 {
                watched.requests += offered;
                watched.rates.push(offered as f64 / seconds);
                watched.p95.extend(class.achieved.p95_seconds.filter(|time| time.is_finite() && *time >= 0.0));
            }
        }
        self.windows += 1;
        self.seconds += seconds;
    }

    /// Proposes figures for the classes of the running policy.
    ///
    /// # Errors
    /// The gateway had no request since the first look.
    pub fn propose(mut self, policy: &RunningPolicy, address: &str) -> Result<Proposal, String> {
        let all: u64 = self.classes.values().map(|watched| watched.requests).sum();
        if all == 0 {
            return Err(format!(
                "the gateway had no request in {}: watch it for longer (--for 10min), or while it has traffic",
                long(self.seconds)
            ));
        }
        let (defined, mut seen) = (policy.classes.iter().chain(&policy.templates), Seen::default());
        let defined: HashMap<&str, &RunningClass> = defined.map(|class| (class.name.as_str(), class)).collect();
        seen.listen = policy.listen.iter().filter(|text| !text.ends_with(":0")).cloned().collect();
        seen.observe = self.observed;
        seen.about = vec![
            format!(
                "Proposed by `weirgate recommend` from what the gateway at {address} observed in {} with {} requests.",
                long(self.seconds),
                crate::numbers::count(all)
            ),
            "TLS, header rules, health checks and other settings of the running policy are not here. Copy the figures into it."
                .into(),
        ];
        let promised =
            |name: &str| defined.get(name).is_some_and(|c| c.guarantee != weirgate_wire::admin::Guarantee::default());
        let none = !defined.keys().any(|name| promised(name));
        let mut served: Vec<Vec<f64>> = Vec::new();
        for rule in &policy.rules {
            let Some(class) = defined.get(rule.class.as_str()) else { continue };
            if seen.classes.iter().any(|other| other.name == class.name) {
                continue;
            }
            let watched = self.classes.remove(&class.name).unwrap_or_default();
            let rest = rule.when == ANYTHING && rule.keyed_by.is_none();
            let mut one = observed(&class.name, &watched, all);
            one.upstream = policy.upstreams.iter().position(|one| one.name == class.upstream).unwrap_or(0);
            one.promised = promised(&class.name) || (none && !rest);
            condition(rule, &seen.listen, &mut one);
            seen.classes.push(one);
            served.push(watched.served);
        }
        seen.upstreams = policy.upstreams.iter().map(upstream).collect();
        for (at, upstream) in seen.upstreams.iter_mut().enumerate() {
            let members: Vec<(&ClassSeen, &Vec<f64>)> =
                seen.classes.iter().zip(&served).filter(|(class, _)| class.upstream == at).collect();
            capacity(upstream, &members, self.windows);
        }
        let mut notes = Vec::new();
        if self.windows < FEW {
            notes.push(format!(
                "the gateway was watched for {} only. Busy hours are not in the figures: watch it for longer (--for 1h), or \
                 give its access log of a week",
                long(self.seconds)
            ));
        }
        Ok(propose(seen, notes))
    }
}

/// The words of a condition that everything meets.
const ANYTHING: &str = "anything matches";

/// Returns the facts about a class.
fn observed(name: &str, watched: &Watched, all: u64) -> ClassSeen {
    let service = watched.service.map(|time| ServiceSeen {
        quiet: time,
        all: time,
        from: vec![
            "As the gateway has learned it, or as its policy declares it.".into(),
            "Too long if the servers have never been quiet since the gateway started.".into(),
        ],
    });
    let p95 = quantile(&mut watched.p95.clone(), 0.5);
    let unknown = match (&service, p95) {
        (None, _) => Some("The gateway has not learned the service time yet: there were too few requests.".to_owned()),
        (_, None) => Some("There were too few requests for a limit of the response time.".to_owned()),
        _ => None,
    };
    ClassSeen {
        name: name.to_owned(),
        share: watched.requests as f64 / all.max(1) as f64,
        peak: quantile(&mut watched.rates.clone(), 0.99).unwrap_or(0.0),
        windows: watched.rates.len(),
        service,
        p95,
        p95_from: "In the median of these windows, 95 % of the served requests took at most".into(),
        unknown,
        ..ClassSeen::default()
    }
}

fn upstream(running: &RunningUpstream) -> UpstreamSeen {
    let sound = running.nodes.iter().filter_map(|node| weirgate_config::node_address(&node.address).ok());
    let mut upstream = UpstreamSeen { name: running.name.clone(), nodes: sound.collect(), ..UpstreamSeen::default() };
    if upstream.nodes.is_empty() {
        upstream
            .why
            .push("The gateway names no address of a server here, so this one stands for them. Change it.".into());
        upstream.nodes.push(NODE.into());
    }
    upstream
}

/// Fills in the capacity that the servers of an upstream have shown.
fn capacity(upstream: &mut UpstreamSeen, members: &[(&ClassSeen, &Vec<f64>)], windows: usize) {
    let sum = |of: &dyn Fn(&ClassSeen) -> f64| {
        let at =
            |window: usize| members.iter().map(|(class, served)| of(class) * served.get(window).unwrap_or(&0.0)).sum();
        quantile(&mut (0..windows).map(at).collect::<Vec<f64>>(), 0.999).unwrap_or(0.0)
    };
    let work = sum(&|class| class.service.as_ref().map_or(0.0, |service| service.quiet));
    upstream.answered = sum(&|_| 1.0);
    upstream.capacity = Some(work).filter(|work| *work > 0.0);
}

/// Fills in the condition of a class from its words.
fn condition(rule: &RunningRule, listen: &[String], class: &mut ClassSeen) {
    let key = rule.keyed_by.as_deref().and_then(|key| key.split_once(' '));
    class.per = key.map(|(kind, value)| format!("{{ {kind}: {} }}", scalar(value)));
    if class.per.is_some() {
        class
            .about
            .push("A template: the promise is for each live class, so it fits fewer of them than there may be.".into());
    }
    if rule.when == ANYTHING {
        return;
    }
    class.matches = Some(told(&rule.when, listen).unwrap_or_else(|| {
        class.about.push(format!(
            "The gateway does not tell the whole condition ({}). Write the `match` of your policy here: this one is met by no \
             request.",
            rule.when
        ));
        format!("{{ header: {{ {UNTOLD}: {} }} }}", scalar(&class.name))
    }));
}

/// Returns the condition that words such as `host a.test and (path /a or path below /b)` tell.
fn told(when: &str, listen: &[String]) -> Option<String> {
    let mut fields: Vec<(&str, Vec<String>)> = Vec::new();
    let parts: Vec<&str> = when.split(" and ").collect();
    for part in &parts {
        let inside = part.strip_prefix('(').and_then(|part| part.strip_suffix(')')).unwrap_or(part);
        // Alternatives stand in brackets, or alone.
        if inside.contains(" or ") && inside == *part && parts.len() > 1 {
            return None;
        }
        let mut values = Vec::new();
        let mut name = None;
        for word in inside.split(" or ") {
            let (field, value) = field(word, listen)?;
            if *name.get_or_insert(field) != field {
                return None;
            }
            values.push(value);
        }
        let name = name.filter(|name| fields.iter().all(|(other, _)| other != name))?;
        fields.push((name, values));
    }
    let text = fields.iter().map(|(name, values)| match values.as_slice() {
        [one] => format!("{name}: {one}"),
        all => format!("{name}: [{}]", all.join(", ")),
    });
    Some(format!("{{ {} }}", text.collect::<Vec<_>>().join(", ")))
}

/// Returns the field and the value of a single condition.
fn field(word: &str, listen: &[String]) -> Option<(&'static str, String)> {
    let plain = |text: &str| !text.is_empty() && !text.contains(['(', ')', ' ']);
    let names = [
        ("path below ", "path_prefix"),
        ("path ", "path"),
        ("host ", "host"),
        ("method ", "method"),
        ("port ", "port"),
    ];
    let (value, field) = names.iter().find_map(|(words, field)| Some((word.strip_prefix(words)?, *field)))?;
    let port = field != "port" || listen.iter().any(|address| address.ends_with(&format!(":{value}")));
    (plain(value) && port).then(|| (field, scalar(value)))
}

#[cfg(test)]
mod tests;
