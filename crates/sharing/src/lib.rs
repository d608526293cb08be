//! A gateway's part in its site: it keeps a share of every guaranteed throughput, and is ready to divide them.
//!
//! The decisions are those of the machines of `weirgate_site`. This crate drives them: [`run`] measures the demand of
//! each class, reports it to the elected gateway, passes the shares on to the engine, stands for election in etcd, and
//! divides the guarantees while this gateway is the elected one. No request waits for any of it.
//!
//! Source: our own (`docs/adr/0023-shares-on-leases.md`). Gateways speak HTTP with mutual TLS, as all processes of a
//! site do, and a certificate speaks for one name only. A report is answered when there is news, so that a share
//! changes within one way of the network.
//!
//! # Modules
//! `state` (the machines and their surroundings, behind one lock), `member` (demand, reports and grants), `coordinator`
//! (the listener, and the elected machine), `election` (etcd), `learned` (costs), `messages` (the machines' messages as
//! JSON), `status` (for people), `told` (messages about changes), and `rollout` (a policy for all gateways).
#![forbid(unsafe_code)]

mod coordinator;
mod election;
mod learned;
mod member;
mod messages;
mod rollout;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod told;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, LocalSet, spawn_local};
use weirgate_engine::{Beside, Lease, Part, Time, WindowUse};
use weirgate_site::Member;
use weirgate_tls::LiveTrust;
use weirgate_wire::LearnedState;
use weirgate_wire::admin::EventKind;

pub use state::{Before, Shared};

/// The engine, the clock and the events, as this crate needs them. Calls must not block for long.
pub trait Floors: Send + Sync {
    /// The present time, as the engine counts it.
    fn now(&self) -> Time;

    /// Adds the arrivals of each class since the start to `counts`, in the order of [`weirgate_config::Sharing`].
    /// Adds nothing if another policy is in force.
    fn arrivals(&self, counts: &mut Vec<u64>);

    /// Keeps these parts of the guaranteed throughputs. Does nothing if another policy is in force.
    fn keep(&self, lease: Lease, parts: &[(usize, Part)]);

    /// The use of the windows, by group of nodes. Empty if they are not shared, or if another policy is in force.
    fn windows(&self) -> Vec<WindowUse>;

    /// Takes over what the other gateways do at each group of nodes, until `until`. Does nothing if another policy is
    /// in force.
    fn beside(&self, until: Time, groups: &[Beside]);

    /// The nodes that the engine has ejected, by names that are the same at all gateways.
    fn ejected(&self) -> Vec<String>;

    /// Tells the engine which nodes some gateway has ejected. It replaces what was told before.
    fn ejected_at_site(&self, nodes: &[String]);

    /// Returns the learned state of the engine. Blocks for some milliseconds.
    fn learned(&self) -> LearnedState;

    /// Takes over what another gateway had learned `age` ago, as far as it is of use here. Returns what that was in
    /// words, or `None` if it was nothing. Blocks for some milliseconds.
    fn take_over(&self, learned: LearnedState, age: Duration) -> Option<String>;

    /// Tells operators of a change, now and in the list of events.
    fn tell(&self, kind: EventKind, text: String);

    /// Checks that this gateway could put the policy `text` in force. Blocks while it is read.
    ///
    /// # Errors
    /// Why it could not.
    fn check(&self, text: &str) -> Result<(), String>;

    /// Puts the policy `text` of rollout `id` in force and into the policy file, and keeps the one before.
    /// `is_decided`: it will not be put back. Blocks meanwhile.
    ///
    /// # Errors
    /// Why it cannot. File and policy are as before.
    fn put(&self, id: &str, text: &str, is_decided: bool) -> Result<(), String>;

    /// Puts the policy before [`Floors::put`] of rollout `id` in force again, if there is one. Blocks meanwhile.
    ///
    /// # Errors
    /// Why it cannot.
    fn put_back(&self, id: &str) -> Result<(), String>;

    /// How requests have fared so far.
    fn seen(&self) -> Seen;
}

/// How requests have fared, of all classes since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Requests that arrived.
    pub asked: u64,
    /// Those that were refused, failed, or were given up by their clients.
    pub unanswered: u64,
    /// Names of classes that miss a guarantee now.
    pub missed: Vec<String>,
}

/// Maximum time for a farewell. The gateway that divides the guarantees answers within milliseconds, and a process that
/// ends must not wait for one that is gone.
const FAREWELL: Duration = Duration::from_secs(2);

/// How the work ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process ends: shares are given back.
    Leave,
    /// The policy has changed: shares are kept.
    Change,
}

/// Takes part in the site until `end` resolves, and returns the state to go on with. `before` is the state of the time
/// before a change of the policy.
pub async fn run(
    settings: weirgate_config::Sharing,
    trust: Option<Arc<LiveTrust>>,
    floors: Arc<dyn Floors>,
    before: Option<Before>,
    publish: impl FnOnce(Arc<Shared>),
    end: impl Future<Output = End>,
) -> Before {
    let shared = Arc::new(Shared::new(settings, trust, floors, before));
    publish(Arc::clone(&shared));
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let workers: [JoinHandle<()>; 4] = [
                spawn_local(member::follow(Arc::clone(&shared))),
                spawn_local(coordinator::divide(Arc::clone(&shared))),
                spawn_local(election::follow(Arc::clone(&shared))),
                spawn_local(learned::follow(Arc::clone(&shared))),
            ];
            let server = spawn_local(coordinator::serve(Arc::clone(&shared)));
            let leaves = end.await == End::Leave;
            shared.end(leaves);
            let _ = weirgate_clock::within(FAREWELL, shared.ended()).await;
            workers.iter().chain([&server]).for_each(JoinHandle::abort);
            shared.floors.ejected_at_site(&[]);
        })
        .await;
    shared.before()
}

/// A member for the present agreement with the shares of an earlier one, by the names of classes.
fn carried(before: &Before, settings: &weirgate_config::Sharing, incarnation: u64) -> Member {
    let from: Vec<Option<usize>> =
        settings.classes.iter().map(|(class, _)| before.classes.iter().position(|known| known == class)).collect();
    before.member.carried(Arc::clone(&settings.agreed), incarnation, &from)
}
