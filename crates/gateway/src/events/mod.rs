//! Events: the changes that an operator acts on, on standard error and for the admin API.
//!
//! Once a second the engine's snapshots are compared with those before. Nothing is added to the path of a request, and
//! a change that comes and goes between two looks is not told. Refusals are counted, so they are always seen. The site
//! of the gateway tells its changes itself ([`Events::add`]).
//! [`Certificates`], [`Classes`], [`Connections`] and [`Nodes`] compare. [`words`] has the reasons in plain words.

mod certificates;
mod classes;
mod connections;
mod nodes;
#[cfg(test)]
mod tests;
mod words;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use weirgate_engine::{Snapshot, Time};
use weirgate_log::{Level, Message};
use weirgate_wire::admin::{self as shape, Event, EventKind};

use crate::gateway::{Shared, lock};
pub(crate) use certificates::Certificate;
use certificates::Certificates;
use classes::{Classes, Looks};
use connections::{Connections, Refused};
use nodes::Nodes;

/// Time between two looks: an event is told while it matters.
const EVERY: Duration = Duration::from_secs(1);

/// Number of classes that a look each second costs nothing noticeable for. With more, looks come less often, so that
/// they take the same share of a processor.
const CLASSES: u32 = 2000;

/// Time without a refusal, or without a missed guarantee, after which it has ended: as long as the sliding window of
/// `achieved` at least, because a guarantee that was missed once stays missed until the window has passed.
const QUIET: Duration = Duration::from_secs(10);

/// Number of events that are kept.
const KEPT: usize = 256;

/// Number of events of one look that are told one by one. More would hide one another.
const AT_ONCE: usize = 40;

/// The latest events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// Number of events since the start.
    count: u64,
    classes: Classes,
    connections: Connections,
    nodes: Nodes,
    certificates: Certificates,
}

impl Events {
    /// Returns the events after number `after`, and the latest refusals.
    pub(crate) fn since(&self, after: u64, now: Time) -> shape::Events {
        let state = lock(&self.state);
        let events = state.events.iter().filter(|event| event.number > after).cloned().collect();
        shape::Events { now_seconds: now.as_secs_f64(), events, refusals: state.classes.refusals() }
    }

    /// Returns the number of upstreams that had no usable node at the last look, and whether no other has nodes.
    pub(crate) fn unusable(&self) -> (usize, bool) {
        lock(&self.state).nodes.unusable()
    }

    /// Compares a look with the one before, and returns the messages for standard error. `unix` is the calendar time.
    fn look(
        &self,
        version: (u64, &str),
        whole: &Snapshot,
        (refused, looks): (connections::Look, &Looks),
        certificates: &[Certificate],
        unix: Duration,
    ) -> Vec<Message> {
        let mut state = lock(&self.state);
        let State { classes, connections, nodes, certificates: known, .. } = &mut *state;
        let mut told = Vec::new();
        let mut tell = |kind, text| told.push((kind, text));
        nodes.compare(version.0, version.1, &whole.nodes, &mut tell);
        connections.compare(whole.now, refused, &mut tell);
        classes.compare(whole.now, looks, &mut tell);
        known.compare(UNIX_EPOCH + unix, certificates, &mut tell);
        if let Some(more) = told.len().checked_sub(AT_ONCE).filter(|more| *more > 0) {
            told.truncate(AT_ONCE);
            told.push((EventKind::More, format!("{more} more changes at the same time")));
        }
        told.into_iter().map(|(kind, text)| state.add(whole.now, unix, kind, text)).collect()
    }

    /// Adds a change that was told by another part of the process, and returns its message for standard error.
    pub(crate) fn add(&self, now: Time, unix: Duration, kind: EventKind, text: String) -> Message {
        lock(&self.state).add(now, unix, kind, text)
    }
}

impl State {
    fn add(&mut self, now: Time, unix: Duration, kind: EventKind, text: String) -> Message {
        let message = Message { event: Some(name(kind)), ..Message::new(level(kind), text.clone()) };
        self.count += 1;
        let (at_seconds, unix_seconds) = (now.as_secs_f64(), unix.as_secs_f64());
        self.events.push_back(Event { number: self.count, at_seconds, unix_seconds, kind, text });
        if self.events.len() > KEPT {
            self.events.pop_front();
        }
        message
    }
}

/// Returns how much a change matters.
fn level(kind: EventKind) -> Level {
    match kind {
        EventKind::UpstreamUnusable | EventKind::CertificateEnded | EventKind::GatewayFenced => Level::Error,
        EventKind::NodeDown
        | EventKind::NodeEjected
        | EventKind::SheddingBegan
        | EventKind::GuaranteeMissed
        | EventKind::LimitImpossible
        | EventKind::ConnectionsRefused
        | EventKind::CertificateEnding
        | EventKind::SharesSafe
        | EventKind::SharesMinimum
        | EventKind::RolloutRefused
        | EventKind::RolloutWithdrawn
        | EventKind::More => Level::Warning,
        EventKind::PolicyChanged
        | EventKind::NodeDraining
        | EventKind::NodeUp
        | EventKind::NodeAppeared
        | EventKind::NodeLeft
        | EventKind::UpstreamUsable
        | EventKind::SheddingEnded
        | EventKind::WouldShedBegan
        | EventKind::WouldShedEnded
        | EventKind::GuaranteeHeld
        | EventKind::LimitPossible
        | EventKind::ConnectionsAccepted
        | EventKind::CertificateRenewed
        | EventKind::GatewayElected
        | EventKind::SharesGranted
        | EventKind::RolloutInForce => Level::Info,
    }
}

/// Returns the name of a kind, as `/events` has it.
fn name(kind: EventKind) -> String {
    serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Looks for ever.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut looks = Looks::default();
    loop {
        let classes = look(&shared, &mut looks).await;
        weirgate_clock::sleep(EVERY * classes.div_ceil(CLASSES).max(1)).await;
    }
}

/// Looks once, and returns the number of classes. Yields to requests between pages of classes. It returns before the
/// rest, in which a configuration must not be kept: it may be an old one by then.
async fn look(shared: &Shared, looks: &mut Looks) -> u32 {
    let whole = shared.control.snapshot();
    looks.begin();
    shared.control.each_class(|class| looks.add(&class)).await;
    let active_config = shared.control.active_config();
    let version = (active_config.version, active_config.checksum.as_str());
    let unix = weirgate_clock::calendar().duration_since(UNIX_EPOCH).unwrap_or_default();
    let counters = [&shared.counters.refused_connections, &shared.counters.over_rate_connections];
    let refused = counters.map(|count| Refused { total: count.total(), latest: count.latest() });
    let messages = shared.events.look(version, &whole, (refused, looks), &shared.certificates(), unix);
    if !messages.is_empty() {
        // Not on this thread: a slow reader of standard error would delay requests.
        tokio::task::spawn_blocking(move || weirgate_log::write(&messages));
    }
    whole.classes
}
