//! The gateway's side: demand, reports, and shares for the engine.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_local;
use weirgate_engine::Time;
use weirgate_http_client::{Address, Connection, Limits, Request};
use weirgate_listening::UNIX;
use weirgate_log::Level;
use weirgate_site::{Demand, Grant, Refused, Report, Usage};
use weirgate_tls::{Role, Wanted};

use crate::messages::{MAX_SITE_BYTES, SITE_PATH, SiteReport};
use crate::state::{Shared, State};
use crate::told::{self, say};

/// Time over which arrivals are counted. The estimate of the demand is made for it.
const INTERVAL: Duration = Duration::from_millis(25);

/// Longest time over which arrivals are counted as if they had been even, in intervals.
const LONGEST: u32 = 64;

/// Connections to the elected gateway. One report waits there for news, and a change of the demand needs another.
const CONNECTIONS: usize = 2;

/// Time for an answer beyond that for which a report waits at the elected gateway.
const PATIENCE: Duration = Duration::from_secs(1);

/// Longest error of another gateway that is passed on, in characters.
const MAX_REASON: usize = 300;

/// Measures demand, sends reports and applies grants, until the task is aborted.
pub(crate) async fn follow(shared: Arc<Shared>) {
    let mut meter = Meter::new(&shared);
    let pool = Rc::new(RefCell::new(Pool::default()));
    loop {
        meter.measure(&shared);
        let (report, next) = {
            let now = shared.floors.now();
            let mut state = shared.lock();
            step(&shared, &mut state, now, &pool)
        };
        match report {
            Some((connection, report)) => {
                let (shared, pool) = (Arc::clone(&shared), Rc::clone(&pool));
                spawn_local(send(shared, connection, report, pool));
            }
            None => shared.wait(next.min(meter.due), &shared.member).await,
        }
    }
}

/// Returns the report to send, or else when there may be one.
fn step(shared: &Shared, state: &mut State, now: Time, pool: &RefCell<Pool>) -> (Option<(Pooled, Report)>, Time) {
    state.apply(shared);
    told::stage(shared, state, now);
    if state.member.is_gone() {
        shared.ended.notify_one();
    }
    let Some(elected) = state.elected.clone() else { return (None, Time::NEVER) };
    if elected.name == shared.name() {
        let Some(coordinator) = &mut state.coordinator else { return (None, Time::NEVER) };
        while let Some(report) = state.member.poll_report(now) {
            // A refused message is as good as a lost one.
            let _ = coordinator.report(now, shared.settings.own, report);
            shared.coordinator.notify_one();
        }
        return (None, state.member.next_timeout(now));
    }
    let Some(connection) = pool.borrow_mut().take(shared, &elected.name) else { return (None, Time::NEVER) };
    match state.member.poll_report(now) {
        Some(report) => (Some((connection, report)), now),
        None => {
            pool.borrow_mut().give(connection);
            (None, state.member.next_timeout(now))
        }
    }
}

/// Does the same without connections, for tests.
#[cfg(test)]
pub(crate) fn step_alone(shared: &Shared) {
    let mut state = shared.lock();
    step(shared, &mut state, shared.floors.now(), &RefCell::default());
}

/// Sends a report, and applies its answer.
async fn send(shared: Arc<Shared>, mut pooled: Pooled, report: Report, pool: Rc<RefCell<Pool>>) {
    let revision = report.revision;
    let text = serde_json::to_vec(&SiteReport::new(&shared.settings, report)).unwrap_or_default();
    let request = Request::put(&pooled.host, SITE_PATH, text).field("content-type", "application/json");
    let hold = shared.settings.agreed.settings().hold;
    let limits = Limits::new(2 * hold + PATIENCE, MAX_SITE_BYTES);
    let answer = pooled.connection.send(&request, &limits).await;
    let result = match answer {
        Ok(answer) if answer.status == 204 => Ok(None),
        Ok(answer) if answer.status == 200 => serde_json::from_slice::<Grant>(&answer.body)
            .map(Some)
            .map_err(|error| format!("its answer cannot be used: {error}")),
        Ok(answer) => Err(reason(answer.status, &answer.body)),
        Err(error) => Err(error.to_string()),
    };
    pool.borrow_mut().give(pooled);
    let now = shared.floors.now();
    let mut state = shared.lock();
    let result = result.and_then(|grant| match grant.map(|grant| state.member.granted(now, grant)) {
        // Messages overtake one another, and another gateway may have been elected meanwhile.
        None | Some(Ok(()) | Err(Refused::Old | Refused::Gap | Refused::Revision | Refused::Incarnation)) => Ok(()),
        Some(Err(refused)) => Err(format!("its grant cannot be used: {refused}")),
    });
    // Only answers of the gateway that is elected now say anything about it.
    if let Some(elected) = state.elected.clone().filter(|elected| elected.revision == revision) {
        let name = &elected.name;
        match result {
            Ok(()) if state.answers.hears(now) => say(Level::Info, format!("site: {name} answers again")),
            Ok(()) => {}
            Err(why) => {
                if state.answers.misses(why.clone()) {
                    say(Level::Warning, format!("site: {name} was elected, and does not grant anything: {why}"));
                }
            }
        }
    }
    drop(state);
    shared.member.notify_one();
}

/// Returns the reason of a refusal in words.
fn reason(status: u16, body: &[u8]) -> String {
    let said = serde_json::from_slice::<serde_json::Value>(body).ok();
    let said = said.as_ref().and_then(|value| value["error"].as_str()).unwrap_or("no reason");
    let said: String = said.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
    format!("{said} (status {status})")
}

/// Counts arrivals.
pub(crate) struct Meter {
    counts: Vec<u64>,
    demands: Vec<Demand>,
    usage: Usage,
    since: Time,
    due: Time,
}

impl Meter {
    pub(crate) fn new(shared: &Shared) -> Meter {
        let mut counts = Vec::new();
        shared.floors.arrivals(&mut counts);
        let now = shared.floors.now();
        let demands = vec![Demand::default(); shared.settings.agreed.budgets()];
        Meter { counts, demands, usage: Usage::default(), since: now, due: now + INTERVAL }
    }

    /// Counts the arrivals of the intervals that have ended. A busy machine is late, and counts several at once.
    pub(crate) fn measure(&mut self, shared: &Shared) {
        let now = shared.floors.now();
        if now < self.due {
            return;
        }
        let mut counts = Vec::with_capacity(self.counts.len());
        shared.floors.arrivals(&mut counts);
        let (windows, ejected) = (shared.floors.windows(), shared.floors.ejected());
        let intervals = (now.since(self.since).as_nanos() / INTERVAL.as_nanos()).clamp(1, u128::from(LONGEST)) as u32;
        // The rest of the time counts for the next interval, if it is shorter than one.
        self.since = (self.since + INTERVAL * intervals).max(now - INTERVAL);
        self.due = self.since + INTERVAL;
        let windows = self.usage.note(&windows, INTERVAL * intervals);
        let mut state = shared.lock();
        state.member.windows(now, windows);
        state.member.ejected(ejected.into_iter());
        // Both are empty while another policy is in force.
        if counts.len() == self.counts.len() && counts.len() == self.demands.len() {
            for (budget, demand) in self.demands.iter_mut().enumerate() {
                let arrived = counts[budget].saturating_sub(self.counts[budget]);
                let until = |interval: u32| arrived * u64::from(interval) / u64::from(intervals);
                let share = state.member.share(now, budget);
                (0..intervals).for_each(|interval| demand.note(until(interval + 1) - until(interval), share, INTERVAL));
                state.member.demand(budget, demand.micro_per_s(INTERVAL));
            }
        }
        self.counts = counts;
    }
}

/// Idle connections to the elected gateway.
#[derive(Default)]
struct Pool {
    to: String,
    idle: Vec<Connection>,
    busy: usize,
}

/// A connection in use.
struct Pooled {
    to: String,
    host: String,
    connection: Connection,
}

impl Pool {
    /// Returns a connection to the gateway of this name, if one is free.
    fn take(&mut self, shared: &Shared, name: &str) -> Option<Pooled> {
        if self.to != name {
            *self = Pool { to: name.to_owned(), ..Pool::default() };
        }
        if self.busy == CONNECTIONS {
            return None;
        }
        let (_, address) = shared.settings.members.iter().find(|(known, _)| known == name)?;
        let connection = self.idle.pop().unwrap_or_else(|| Connection::new(of_gateway(shared, name, address)));
        self.busy += 1;
        Some(Pooled { to: name.to_owned(), host: host(address).to_owned(), connection })
    }

    /// Takes a connection back. One to another gateway than the elected one is closed.
    fn give(&mut self, pooled: Pooled) {
        if pooled.to == self.to {
            self.busy = self.busy.saturating_sub(1);
            self.idle.push(pooled.connection);
        }
    }
}

/// Returns the host of a gateway's address, as requests name it.
pub(crate) fn host(address: &str) -> &str {
    if address.starts_with(UNIX) { "localhost" } else { address }
}

/// Returns the address of a gateway, which proves its name over TLS.
pub(crate) fn of_gateway(shared: &Shared, name: &str, address: &str) -> Address {
    match (address.strip_prefix(UNIX), &shared.trust) {
        (Some(path), _) => Address::Unix(path.into()),
        (None, Some(trust)) => {
            let wanted = Wanted { role: Role::Gateway, name: Some(name.to_owned()) };
            Address::Trusted(address.to_owned(), Arc::clone(trust), wanted)
        }
        (None, None) => Address::Tcp(address.to_owned()),
    }
}
