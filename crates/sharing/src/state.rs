//! The machines and their surroundings, behind one lock that is never held while anything is waited for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use weirgate_config::Sharing;
use weirgate_engine::{Beside, Lease, Part, Time};
use weirgate_site::{Coordinator, Grant, GroupShare, Member, Record, Stage};
use weirgate_tls::LiveTrust;
use weirgate_wire::{RolloutAnswer, RolloutPolicy, RolloutStep};

use crate::told::{Health, Sender};
use crate::{Floors, carried};

/// Millionths of a request.
const MILLION: f64 = 1e6;

/// The state that outlives a change of the policy.
#[derive(Debug)]
pub struct Before {
    pub(crate) member: Member,
    /// The classes of its budgets.
    pub(crate) classes: Vec<String>,
}

/// State of all tasks.
pub struct Shared {
    pub(crate) settings: Sharing,
    pub(crate) trust: Option<Arc<LiveTrust>>,
    pub(crate) floors: Arc<dyn Floors>,
    state: Mutex<State>,
    /// Wake the tasks.
    pub(crate) member: Notify,
    pub(crate) coordinator: Notify,
    pub(crate) election: Notify,
    pub(crate) ended: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The elected gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elected {
    pub(crate) revision: u64,
    pub(crate) name: String,
}

/// A policy that is to be rolled out.
pub(crate) struct Proposal {
    pub(crate) policy: RolloutPolicy,
    /// Time for its canary.
    pub(crate) watch: Duration,
    /// Takes the id of the rollout when it is in etcd.
    pub(crate) answer: oneshot::Sender<Result<String, String>>,
}

pub(crate) struct State {
    pub(crate) member: Member,
    /// Present while this gateway is the elected one.
    pub(crate) coordinator: Option<Coordinator>,
    /// Records that it wants to be kept, in order.
    pub(crate) records: VecDeque<(usize, Record)>,
    /// Reports that wait for an answer, by member.
    pub(crate) replies: Vec<Option<oneshot::Sender<Grant>>>,
    pub(crate) elected: Option<Elected>,
    /// Whether the listener for the other gateways is open.
    pub(crate) listens: bool,
    /// Answers of etcd, and of the elected gateway.
    pub(crate) etcd: Health,
    pub(crate) answers: Health,
    pub(crate) refused: u64,
    /// Limits of the senders of reports, by member. The last one is for strangers.
    pub(crate) senders: Vec<Sender>,
    /// Number of times that shares have changed.
    pub(crate) changes: u64,
    /// Requests in flight of all others, as the elected gateway has told last. `None` before that.
    pub(crate) in_flight_of_others: Option<f64>,
    /// The latest rollout that etcd knows, and this gateway's answer to it.
    pub(crate) rollout: Option<(RolloutStep, Option<RolloutAnswer>)>,
    pub(crate) proposal: Option<Proposal>,
    /// Checksums of members that do not agree, of which people were told.
    disagreements: std::collections::BTreeMap<usize, String>,
    /// The last stage that people were told of.
    pub(crate) told: Option<Stage>,
    /// The steps of all shares, and their ends, as the engine has them. `None` before the first time.
    kept: Option<(Lease, Vec<[u64; 3]>)>,
    /// Ejected nodes that the engine was told of.
    ejected: Vec<String>,
    /// Whether the work ends, and whether shares are given back then.
    pub(crate) ending: Option<bool>,
    pub(crate) resigned: bool,
}

impl Shared {
    pub(crate) fn new(
        settings: Sharing,
        trust: Option<Arc<LiveTrust>>,
        floors: Arc<dyn Floors>,
        before: Option<Before>,
    ) -> Shared {
        // Incarnation 0 sends no report: the election gives it a number first.
        let member = match &before {
            Some(before) => carried(before, &settings, 0),
            None => Member::new(Arc::clone(&settings.agreed), 0),
        };
        let replies = settings.members.iter().map(|_| None).collect();
        let pace = settings.agreed.settings().pace;
        let senders = (0..=settings.members.len()).map(|_| Sender::new(pace)).collect();
        let state = State {
            member,
            coordinator: None,
            records: VecDeque::new(),
            replies,
            elected: None,
            listens: false,
            etcd: Health::default(),
            answers: Health::default(),
            refused: 0,
            senders,
            changes: 0,
            in_flight_of_others: None,
            rollout: None,
            proposal: None,
            disagreements: std::collections::BTreeMap::new(),
            told: None,
            kept: None,
            ejected: Vec::new(),
            ending: None,
            resigned: false,
        };
        Shared {
            settings,
            trust,
            floors,
            state: Mutex::new(state),
            member: Notify::new(),
            coordinator: Notify::new(),
            election: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Locks the state, also after a panic: it stays usable.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of this gateway.
    pub(crate) fn name(&self) -> &str {
        &self.settings.members[self.settings.own].0
    }

    /// Waits until `at`, or until `woken`.
    pub(crate) async fn wait(&self, at: Time, woken: &Notify) {
        /// Longest wait. Nothing here is due later.
        const LONGEST: Duration = Duration::from_secs(60);
        let span = at.since(self.floors.now()).min(LONGEST);
        let _ = weirgate_clock::within(span, woken.notified()).await;
    }

    /// Proposes a policy to all gateways of the site. Resolves to the id of the rollout when it is in etcd.
    ///
    /// # Errors
    /// Why it is not proposed.
    pub async fn roll_out(&self, text: String, watch: Duration) -> Result<String, String> {
        if !self.settings.rollouts {
            return Err("the policy in force does not allow it: write `rollouts: true` under `site:`".to_owned());
        }
        let id = format!("{:016x}", weirgate_clock::seed());
        let (send, receive) = oneshot::channel();
        self.lock().proposal = Some(Proposal { policy: RolloutPolicy { id, text }, watch, answer: send });
        self.election.notify_one();
        receive.await.unwrap_or_else(|_| Err("another rollout was asked for, or the policy has changed".to_owned()))
    }

    /// Begins the end of the work.
    pub(crate) fn end(&self, leaves: bool) {
        let mut state = self.lock();
        state.ending = Some(leaves);
        if leaves {
            state.member.leave();
        }
        drop(state);
        [&self.member, &self.coordinator, &self.election].into_iter().for_each(Notify::notify_one);
    }

    /// Resolves when shares are given back and the election is given up, as far as that is necessary.
    pub(crate) async fn ended(&self) {
        while !self.lock().has_ended() {
            self.ended.notified().await;
        }
    }

    pub(crate) fn before(&self) -> Before {
        let mut state = self.lock();
        // Connections may stay open for a while.
        state.coordinator = None;
        let classes = self.settings.classes.iter().map(|(class, _)| class.clone()).collect();
        Before { member: state.member.clone(), classes }
    }

    /// Gives the member its number, with which it reports from now on.
    pub(crate) fn begin(&self, incarnation: u64) {
        let mut state = self.lock();
        let before = Before {
            member: state.member.clone(),
            classes: self.settings.classes.iter().map(|(class, _)| class.clone()).collect(),
        };
        state.member = carried(&before, &self.settings, incarnation);
    }
}

impl State {
    /// Whether this gateway is elected and acts.
    pub(crate) fn is_elected(&self) -> bool {
        self.coordinator.is_some()
    }

    /// Notes that a member has another checksum. Returns whether that is news.
    pub(crate) fn disagrees(&mut self, member: usize, checksum: &str) -> bool {
        // It comes from another machine, and is only compared.
        let checksum: String = checksum.chars().take(32).collect();
        self.disagreements.insert(member, checksum.clone()) != Some(checksum)
    }

    fn has_ended(&self) -> bool {
        let left = self.ending == Some(false) || self.member.is_gone();
        left && self.resigned
    }

    /// Passes shares that have changed on to the engine. Called before each report, because a report confirms them.
    pub(crate) fn apply(&mut self, shared: &Shared) {
        let lease = self
            .member
            .ends()
            .map_or(Lease::ENDED, |(granted, safe)| Lease { granted_until: granted, safe_until: safe });
        let windows = self.member.take_windows();
        if !windows.is_empty() {
            let beside: Vec<Beside> = windows.iter().map(GroupShare::beside).collect();
            self.in_flight_of_others = Some(beside.iter().map(|group| group.in_flight).sum());
            shared.floors.beside(shared.floors.now() + shared.settings.agreed.windows_last(), &beside);
        }
        let ejected = self.member.ejected_at_site(shared.floors.now());
        if ejected != self.ejected {
            self.ejected = ejected.to_vec();
            shared.floors.ejected_at_site(&self.ejected);
        }
        let budgets = shared.settings.agreed.budgets();
        let steps: Vec<[u64; 3]> = (0..budgets).map(|budget| self.member.steps(budget)).collect();
        let before = self.kept.as_ref();
        if before.is_some_and(|(known, all)| *known == lease && *all == steps) {
            return;
        }
        let is_new = |budget: &usize| before.is_none_or(|(_, all)| all[*budget] != steps[*budget]);
        let changed: Vec<(usize, Part)> =
            (0..budgets).filter(is_new).map(|budget| (budget, part(steps[budget]))).collect();
        self.changes += u64::from(!changed.is_empty());
        shared.floors.keep(lease, &changed);
        self.kept = Some((lease, steps));
    }
}

fn part(steps: [u64; 3]) -> Part {
    let [granted, safe, least] = steps.map(|amount| amount as f64 / MILLION);
    Part { granted, safe, least }
}

/// An amount in requests a second.
pub(crate) fn per_second(amount: u64) -> f64 {
    amount as f64 / MILLION
}
