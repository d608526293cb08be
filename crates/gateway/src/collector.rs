//! Collectors: the gateway requests the nodes' own counts every few seconds.
//!
//! Source: Andreolini et al., "QoS-aware switching policies for a locally distributed Web system", Sec. 2.
//! There the coordinator in the switch collects the servers' counts every 10 s through a socket. Here it is an
//! HTTP request. All nodes are asked at the same times, the multiples of `every`, as in the paper and unlike
//! health checks. The loads are summed and compared, so they must be from the same moment. Such a request
//! costs a node far less than a normal one.
//!
//! If a report is missing, the last one stays in force, because assuming no load would be a worse guess. From
//! the third missed report on, the last one is marked stale, and this is logged once.
//!
//! The resource use in a report is used to learn the page table (`pages/`), with every discipline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weirgate_config::{Collector, agent_name};
use weirgate_engine::{NodeEvent, Time};
use weirgate_http_client::{Address, Answer, Error, Limits, Request, exchange};
use weirgate_log::{Level, Message};
use weirgate_tls::{LiveTrust, Role, Wanted};
use weirgate_wire::{Active, MAX_REPORT_BYTES, Report, admin as shape};

use crate::active_config::Endpoint;
use crate::gateway::Shared;

/// Number of consecutive missed reports after which the last one is stale. It equals the number of failures
/// that take a node out of service, see [`weirgate_config::HealthCheck`]. One or two misses can be a lost
/// packet or a pause.
const STALE_AFTER: u32 = 3;

/// Last report of every collector.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<BTreeMap<u64, Heard>>);

/// State of one collector.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    last: Option<(Time, Active)>,
    /// Number of consecutive missed reports.
    missed: u32,
    failures: u64,
}

/// A change that is worth logging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Too many consecutive reports were missed. Holds the age of the last report, if there is one.
    Stale(Option<Duration>),
    /// A report has arrived after that.
    Fresh,
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Heard>> {
        // The map holds plain data and stays usable after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tracks exactly these endpoints.
    pub(crate) fn retain(&self, endpoints: BTreeSet<u64>) {
        let mut heard = self.lock();
        heard.retain(|id, _| endpoints.contains(id));
        for id in endpoints {
            heard.entry(id).or_default();
        }
    }

    /// Records one response of an endpoint at `now`: its counts, or `None` for a miss.
    fn hear(&self, endpoint: u64, now: Time, active: Option<Active>) -> Option<Change> {
        let mut all = self.lock();
        let heard = all.get_mut(&endpoint)?;
        let before = heard.missed;
        match active {
            Some(active) => {
                heard.missed = 0;
                heard.last = Some((now, active));
                (before >= STALE_AFTER).then_some(Change::Fresh)
            }
            None => {
                heard.missed = before.saturating_add(1);
                heard.failures += 1;
                (heard.missed == STALE_AFTER).then(|| Change::Stale(heard.last.map(|(at, _)| now.since(at))))
            }
        }
    }

    /// Returns the state of an endpoint's collector at `now`, or `None` if it is not asked.
    pub(crate) fn of(&self, endpoint: u64, now: Time) -> Option<shape::Collector> {
        self.lock().get(&endpoint).map(|heard| shape::Collector {
            active: heard.last.map(|(_, active)| active),
            age_seconds: heard.last.map(|(at, _)| now.since(at).as_secs_f64()),
            stale: heard.missed >= STALE_AFTER,
            failures: heard.failures,
        })
    }
}

/// Polls the collector of one node until the task is aborted.
pub(crate) async fn watch(endpoint: Arc<Endpoint>, collector: Collector, shared: Arc<Shared>) {
    let agent = agent(&endpoint, &collector, shared.trust.clone());
    let clock = shared.control.clock();
    loop {
        let report = ask(&agent, &collector).await.and_then(|answer| Report::parse(&answer.body));
        let now = clock.now();
        if let Ok(Report { usage: Some(usage), .. }) = report {
            let shared = Arc::clone(&shared);
            let node = endpoint.id;
            // Not on this thread, which serves requests. The call returns nothing and does not panic.
            let _ = tokio::task::spawn_blocking(move || shared.pages.reported(node, now, &usage)).await;
        }
        let active = report.as_ref().ok().map(|report| report.active);
        if let Some(Active { static_content, dynamic_content }) = active {
            shared.control.tell(endpoint.id, |node| NodeEvent::Load { node, static_content, dynamic_content });
        }
        if let Some(change) = shared.reports.hear(endpoint.id, now, active) {
            let line = line(&endpoint, &agent, change, &report.err().unwrap_or_default());
            // Not on this thread: a slow reader of standard error would delay requests.
            tokio::task::spawn_blocking(move || weirgate_log::write(&[line]));
        }
        weirgate_clock::sleep(until_next(clock.now(), collector.every)).await;
    }
}

/// Returns the time from `now` to the next multiple of `every`.
fn until_next(now: Time, every: Duration) -> Duration {
    let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(every - now.as_nanos() % every)
}

/// Returns the message for a change.
fn line(endpoint: &Endpoint, agent: &Address, change: Change, why: &str) -> Message {
    let who = format!("the collector of {} in {} ({agent})", endpoint.name, endpoint.pool);
    match change {
        Change::Fresh => Message::new(Level::Info, format!("{who} reports again")),
        Change::Stale(None) => Message::new(Level::Warning, format!("{who} has not reported yet: {why}")),
        Change::Stale(Some(age)) => {
            let age = age.as_secs_f64();
            let missed = format!("{who} has missed {STALE_AFTER} reports: {why}.");
            Message::new(Level::Warning, format!("{missed} The last one, {age:.0} s old, stays in force"))
        }
    }
}

/// Returns the agent of a node as it is reached: with the site's trust it must be the agent of that node.
fn agent(endpoint: &Endpoint, collector: &Collector, trust: Option<Arc<LiveTrust>>) -> Address {
    let address = collector.at(&endpoint.address);
    let Some(trust) = trust else { return Address::Tcp(address) };
    let name = agent_name(&endpoint.name, &endpoint.address, &address).to_owned();
    Address::Trusted(address, trust, Wanted { role: Role::Agent, name: Some(name) })
}

/// Sends one request to a collector and returns its answer, which has status 200.
///
/// # Errors
/// The reason why there is none.
async fn ask(agent: &Address, collector: &Collector) -> Result<Answer, String> {
    // Any program can be a collector, and a simple one need not know more than HTTP/1.0.
    let request = Request::get(&agent.to_string(), &collector.path)
        .http_10()
        .field("user-agent", "weirgate-collector")
        .field("accept", "application/json");
    let limits = Limits::new(collector.timeout, MAX_REPORT_BYTES as u64);
    let answer = exchange(agent, request, &limits).await;
    answer.and_then(Answer::ok).map_err(|error| match error {
        Error::Late(_) => late(collector),
        Error::CutBody => "the connection was closed before the end of the report".to_owned(),
        Error::TooLong(limit) => format!("the report is longer than {limit} bytes"),
        error => error.to_string(),
    })
}

/// Returns the reason for a report that did not come in time.
fn late(collector: &Collector) -> String {
    format!("no whole report within {} s", collector.timeout.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIVE: Active = Active { static_content: 3, dynamic_content: 4 };

    #[test]
    fn the_last_report_stays_and_grows_stale_with_the_third_miss() {
        let reports = Reports::default();
        let at = Time::from_millis;
        assert_eq!(reports.of(7, at(0)), None);
        reports.retain([7].into());
        assert_eq!(reports.of(7, at(0)), Some(shape::Collector::default()));
        assert_eq!(reports.hear(7, at(0), Some(ACTIVE)), None);
        assert_eq!([10_000, 20_000].map(|ms| reports.hear(7, at(ms), None)), [None, None]);
        assert!(!reports.of(7, at(20_000)).expect("known").stale);
        assert_eq!(reports.hear(7, at(30_000), None), Some(Change::Stale(Some(Duration::from_secs(30)))));
        assert_eq!(reports.hear(7, at(40_000), None), None, "once");
        let view = reports.of(7, at(40_500)).expect("known");
        assert_eq!((view.active, view.age_seconds, view.stale, view.failures), (Some(ACTIVE), Some(40.5), true, 4));
        assert_eq!(reports.hear(7, at(50_000), Some(ACTIVE)), Some(Change::Fresh));
        assert!(!reports.of(7, at(50_000)).expect("known").stale);
        assert_eq!(reports.hear(8, at(50_000), Some(ACTIVE)), None, "an endpoint that is gone");
        reports.retain(BTreeSet::new());
        assert_eq!(reports.of(7, at(50_000)), None);
    }

    #[test]
    fn a_node_that_never_reported_is_said_once() {
        let reports = Reports::default();
        reports.retain([1].into());
        let said: Vec<_> = (0..5).map(|s| reports.hear(1, Time::from_millis(s * 1000), None)).collect();
        assert_eq!(said, [None, None, Some(Change::Stale(None)), None, None]);
    }

    #[test]
    fn all_nodes_are_asked_at_multiples_of_the_interval() {
        let ten = Duration::from_secs(10);
        assert_eq!(until_next(Time::from_millis(13_000), ten), Duration::from_secs(7));
        assert_eq!(until_next(Time::from_millis(20_000), ten), ten);
        assert_eq!(until_next(Time::ZERO, Duration::ZERO), Duration::from_nanos(1));
    }
}
