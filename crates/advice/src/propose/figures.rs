//! Derives the promises from observations.
//!
//! Rules, with the reasons in docs/guide/recommend.md: the throughput is the 99th percentile of the rates of 10-second
//! windows and a fifth more; the limit is twice the 95th percentile of the response time, and at least four service
//! times (docs/choosing-figures.md); all promises of an upstream together need no more than the capacity that its
//! servers have shown, or are cut alike.

use super::observed::{ClassSeen, Seen, UpstreamSeen};
use super::{Proposal, table};
use crate::numbers::{limit_above, percent, plain, rate, span, told, two_digits, written};
use crate::policy::{Class, Noted, Policy, Upstream, scalar};

/// Room for growth on top of the observed rate.
const GROWTH: f64 = 1.2;

/// Smallest promise per second. Rates below it are mostly chance, and it costs nothing while it is not used.
const MIN_RATE: f64 = 1.0;

/// Smallest limit of a response time in seconds. Any machine pauses for shorter times now and then.
const MIN_LIMIT: f64 = 0.05;

/// Promised rates of an upstream, and how far they were cut.
#[derive(Clone, Debug)]
struct Promise {
    /// Rate of each class of the site, 0 without a promise.
    rates: Vec<f64>,
    /// Service time of each class as it is written, in seconds.
    services: Vec<Option<f64>>,
}

/// Returns the proposal for a site.
pub(crate) fn propose(seen: Seen, notes: Vec<String>) -> Proposal {
    let services: Vec<Option<f64>> =
        seen.classes.iter().map(|class| class.service.as_ref().map(|s| written(s.quiet))).collect();
    let mut promise = Promise { rates: seen.classes.iter().map(|class| wanted(class, MIN_RATE)).collect(), services };
    let cuts: Vec<Option<f64>> = (0..seen.upstreams.len()).map(|upstream| promise.fit(&seen, upstream)).collect();
    let mut policy =
        Policy { about: about(&seen), listen: seen.listen.clone(), observe: seen.observe, ..Policy::default() };
    if policy.listen.is_empty() {
        policy.listen.push(super::LISTEN.into());
        policy.listen_why.push("Where clients connect. Nothing here says it, so change it.".into());
    }
    policy.upstreams = seen.upstreams.iter().enumerate().map(|(at, it)| upstream(it, at, &seen, &promise)).collect();
    for (at, class) in seen.classes.iter().enumerate() {
        let cut = cuts.get(class.upstream).copied().flatten();
        policy.classes.push(one(class, promise.rates[at], promise.services[at], cut, &seen));
    }
    if let Some((limit, why)) = &seen.limit_per_source {
        policy.end.push(format!(
            "To bound what one client may ask for, add `limit_per_source: {}` to a class. {why} Wrong if many people share \
             an address.",
            rate(*limit)
        ));
    }
    let table = table::table(&seen, &policy);
    Proposal { policy, table, notes }
}

impl Promise {
    /// Returns the capacity that the promises of an upstream need together, in the unit of its capacity.
    fn needed(&self, seen: &Seen, upstream: usize) -> f64 {
        let in_slots = seen.upstreams[upstream].capacity.is_some();
        let need = |at: usize| match self.services[at] {
            Some(service) if in_slots => self.rates[at] * service,
            // Without a service time, a class is not compared with slot-seconds.
            None if in_slots => 0.0,
            _ => self.rates[at],
        };
        (0..self.rates.len()).filter(|at| seen.classes[*at].upstream == upstream).map(need).sum()
    }

    /// Cuts the promises of an upstream so that they fit. Returns the factor.
    fn fit(&mut self, seen: &Seen, upstream: usize) -> Option<f64> {
        let it = &seen.upstreams[upstream];
        let shown = it.capacity.map_or(it.answered, |capacity| written_capacity(capacity, it) * it.nodes.len() as f64);
        // Sums of rounded figures must not exceed it by their rounding.
        let room = shown * (1.0 - 1e-6);
        let needed = self.needed(seen, upstream);
        if needed <= room {
            return None;
        }
        let classes: Vec<usize> = (0..self.rates.len()).filter(|at| seen.classes[*at].upstream == upstream).collect();
        // Where room is scarce, nothing is promised beyond the observed rates.
        classes.iter().for_each(|at| self.rates[*at] = wanted(&seen.classes[*at], 0.0));
        let factor = room / self.needed(seen, upstream).max(1e-9);
        if factor < 1.0 {
            classes.iter().for_each(|at| self.rates[*at] = two_digits(self.rates[*at] * factor, false));
        }
        Some(factor.min(1.0))
    }
}

/// Returns the rate that a class should be promised, at least `min`.
fn wanted(class: &ClassSeen, min: f64) -> f64 {
    if class.promised { two_digits((class.peak * GROWTH).max(min), true) } else { 0.0 }
}

/// Returns the capacity of one of the upstream's nodes as it is written.
fn written_capacity(capacity: f64, upstream: &UpstreamSeen) -> f64 {
    two_digits(capacity / upstream.nodes.len().max(1) as f64, true)
}

fn about(seen: &Seen) -> Vec<String> {
    let mut about = seen.about.clone();
    about.push(
        "Each figure has its reason and what would break it. Read them, then: weirgate check FILE, and weirgate run FILE."
            .into(),
    );
    about
}

fn upstream(it: &UpstreamSeen, at: usize, seen: &Seen, promise: &Promise) -> Upstream {
    let mut why = it.why.clone();
    let nodes = match it.capacity {
        Some(capacity) => {
            let each = written_capacity(capacity, it);
            let most = promise.needed(seen, at);
            why.push(format!(
                "capacity: the servers were seen to work on {} requests at once in their busiest windows (99.9th \
                 percentile of served requests \u{d7} service time){}. The promises below need {} of it. It is what they \
                 have shown, and perhaps not all that they can. Wrong if they were never busy, which only makes the \
                 promises smaller than they could be.",
                plain(capacity),
                if it.nodes.len() > 1 { ", divided by the number of nodes" } else { "" },
                plain(most),
            ));
            it.nodes.iter().map(|node| format!("{{ address: {}, capacity: {} }}", scalar(node), plain(each))).collect()
        }
        None => it.nodes.iter().map(|node| scalar(node)).collect(),
    };
    Upstream { name: it.name.clone(), why, nodes, fields: Vec::new() }
}

fn one(class: &ClassSeen, promised: f64, service: Option<f64>, cut: Option<f64>, seen: &Seen) -> Class {
    let mut about = class.about.clone();
    about.insert(
        0,
        match class.work {
            Some(work) => format!("{} of the requests, {} of the servers' time.", percent(class.share), percent(work)),
            None => format!("{} of the requests.", percent(class.share)),
        },
    );
    let several = seen.upstreams.len() > 1;
    let mut made = Class {
        name: class.name.clone(),
        about,
        matches: class.matches.clone(),
        per: class.per.clone(),
        upstream: several.then(|| seen.upstreams[class.upstream].name.clone()),
        ..Class::default()
    };
    if class.promised && promised > 0.0 {
        made.throughput = Some(throughput(class, promised, cut));
        made.response_time = class.p95.map(|p95| limit(class, p95, service));
    }
    made.service_time = class.service.as_ref().zip(service).map(|(service, written)| {
        let mut why = service.from.clone();
        if service.all > 1.5 * service.quiet {
            why.push(format!(
                "In all windows together they took {}, {} times as long: the servers were busy, or some requests are long.",
                told(service.all),
                plain((service.all / service.quiet * 10.0).round() / 10.0)
            ));
        }
        Noted::new(span(written), why)
    });
    if let Some(unknown) = class.unknown.as_ref().filter(|_| class.promised) {
        made.more.push(unknown.clone());
    }
    made
}

fn throughput(class: &ClassSeen, promised: f64, cut: Option<f64>) -> Noted {
    let windows = crate::numbers::count(class.windows as u64);
    let mut why = vec![format!(
        "In 99 % of the 10-second windows that had such requests ({windows} of them) there were at most {}. A fifth is added \
         for growth.",
        rate(two_digits(class.peak, true))
    )];
    if cut.is_none() && class.peak * GROWTH < MIN_RATE {
        why.push(format!("Less than {} is not worth a promise, and what is not used costs nothing.", rate(MIN_RATE)));
    }
    if let Some(factor) = cut.filter(|factor| *factor < 1.0) {
        why.push(format!(
            "All promises were cut to {} of that, so that together they fit what the servers have shown to give.",
            percent(factor)
        ));
    }
    why.push(
        "Too low once the class grows, or if its busiest days were not observed: requests beyond it have no promise."
            .into(),
    );
    Noted::new(rate(promised), why)
}

fn limit(class: &ClassSeen, p95: f64, service: Option<f64>) -> Noted {
    let quiet = service.unwrap_or(0.0);
    let limit = limit_above((2.0 * p95).max(4.0 * quiet).max(MIN_LIMIT));
    let mut why = vec![format!(
        "{} {}. Twice that, and at least four service times and {}, leaves room to wait.",
        class.p95_from,
        told(p95),
        told(MIN_LIMIT)
    )];
    why.push("Missed if requests become slower than that on quiet servers: no gateway can make them shorter.".into());
    Noted::new(format!("{{ p95: {} }}", span(limit)), why)
}
