//! The elected process's side: the account of all shares, and their division.
//!
//! Source: leases of Gray and Cheriton, see the crate. The rules of this coordinator:
//!
//! - **It acts only while it is surely the elected one**, for [`Settings::proof`] after it asked for the last proof.
//! - **It begins by asking.** Its predecessor may act for as long, so it says nothing before that has passed, with the
//!   margin. Then it asks each member for the shares that it holds. The answer binds the member to this coordinator.
//! - **A silent member may hold anything** that the others do not, until its safe share must have ended. The driver
//!   keeps a [`Record`] of each member, in etcd, for the successor: a member is recorded before its first grant, and
//!   again before anything of its share is used because its lease has ended. So a silent member without a record holds
//!   the minimum. If none is recorded as lapsed, no other member has used their shares, and
//!   their leases leave safe shares of them.
//! - **It counts the most that a member may hold**: of all grants that may have arrived, the largest, until a later one
//!   is confirmed.
//! - **A member that confirms nothing loses its lease.** After [`Settings::lease`] without a confirmation it is asked
//!   for its shares, as one that has begun anew. If it states more than it was told to hold, its share ends in steps.
//!
//! The coordinator answers each report once: at once if there is news worth telling, else after
//! [`Settings::hold`], which renews the lease.
//!
//! [`Settings::lease`]: crate::Settings::lease
//! [`Settings::proof`]: crate::Settings::proof
//! [`Settings::hold`]: crate::Settings::hold

mod slot;
mod table;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use slot::Slot;
use table::Table;
use weirgate_engine::Time;
use windows::Windows;

use crate::message::{Grant, Refused, Report, Step};
use crate::settings::{MAX_EJECTED, Site};

pub use slot::{Phase, Record};

/// Sums of a coordinator's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reports accepted.
    pub reports: u64,
    /// Reports refused.
    pub refused: u64,
    /// Answers sent.
    pub answers: u64,
    /// Shares in the answers.
    pub shares: u64,
    /// Leases of members that have ended without another report.
    pub lapsed: u64,
}

/// No decision depends on sums, so states that differ in them only are one to a search over states.
impl core::hash::Hash for Counts {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// The coordinator of a site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    site: Arc<Site>,
    revision: u64,
    began: Time,
    now: Time,
    /// It is the elected one until then.
    proved_until: Time,
    slots: Vec<Slot>,
    table: Table,
    /// Members that have not stated their shares and may hold some.
    silent: Silent,
    last_run: Option<Time>,
    grants: VecDeque<(usize, Grant)>,
    records: VecDeque<(usize, Record)>,
    windows: Windows,
    /// Nodes that live members have ejected.
    ejected: Vec<String>,
    counts: Counts,
}

/// The part of a predecessor's grants that silent members may still hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Silent {
    /// Everything. The leases end, and leave safe shares of it.
    Leases,
    /// Their leases have ended. It is to be recorded that their safe shares are left.
    Recording,
    /// Safe shares, until they end.
    SafeShares,
    Nothing,
}

impl Coordinator {
    /// Begins at `now`, when it has learned that it is elected. `revision` must be greater than that of all
    /// predecessors, and `records` be the records of all members, read after the election. Members beyond its end count
    /// as [`Record::Lapsed`].
    pub fn new(now: Time, site: Arc<Site>, revision: u64, records: &[Record]) -> Coordinator {
        let members = site.settings().members;
        let slots: Vec<Slot> =
            (0..members).map(|member| Slot::new(records.get(member).copied().unwrap_or(Record::Lapsed))).collect();
        let silent = slots_silent(&slots).0;
        Coordinator {
            table: Table::new(&site, silent),
            windows: Windows::default(),
            site,
            revision,
            began: now,
            now,
            proved_until: Time::ZERO,
            silent: match slots_silent(&slots) {
                (0, _) => Silent::Nothing,
                (_, false) => Silent::Leases,
                (_, true) => Silent::SafeShares,
            },
            slots,
            last_run: None,
            grants: VecDeque::new(),
            records: VecDeque::new(),
            ejected: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Notes a proof, asked for at `asked`, that this is still the elected coordinator.
    pub fn proved(&mut self, asked: Time) {
        self.proved_until = self.proved_until.max(asked + self.site.settings().proof);
    }

    /// Whether it may act at `now`.
    pub fn is_leading(&self, now: Time) -> bool {
        now < self.proved_until
    }

    /// When no predecessor acts any more.
    fn settled(&self) -> Time {
        self.began + self.site.with_margin(self.site.settings().proof)
    }

    /// Takes a report of `member`, as authenticated by the driver. Call [`Self::run`] afterwards.
    ///
    /// # Errors
    /// The reason if the report changes nothing.
    pub fn report(&mut self, now: Time, member: usize, report: Report) -> Result<(), Refused> {
        let now = self.at(now);
        // A late report must not confirm shares that have ended since.
        self.expire(now);
        let result = self.accept(now, member, report);
        match result {
            Ok(()) => self.counts.reports += 1,
            Err(_) => self.counts.refused += 1,
        }
        result
    }

    fn accept(&mut self, now: Time, member: usize, report: Report) -> Result<(), Refused> {
        let slot = self.slots.get_mut(member).ok_or(Refused::Member)?;
        if report.revision != self.revision {
            return Err(Refused::Revision);
        }
        if report.incarnation < slot.incarnation {
            return Err(Refused::Incarnation);
        }
        let restarted = report.incarnation > slot.incarnation;
        if !restarted && (report.number <= slot.number || report.applied > slot.sequence) {
            return Err(Refused::Old);
        }
        report.check(&self.site)?;
        if restarted {
            self.windows.gone(slot);
            slot.restart(report.incarnation);
            self.table.forget_demand(member);
        }
        if slot.answered == slot.number {
            slot.waits_since = now;
        }
        slot.number = report.number;
        slot.received = now;
        self.windows.note(slot, report.windows, report.applied);
        slot.urgent |= slot.ejected != report.ejected;
        slot.ejected = report.ejected;
        for (budget, amount) in &report.demands {
            self.table.demand(member, *budget as usize, *amount);
        }
        if report.leaving {
            self.left(member);
        } else if report.applied == self.slots[member].sequence && report.applied > 0 {
            match self.slots[member].phase {
                Phase::Asked => {
                    let slot = &self.slots[member];
                    let believed = |held: &&Vec<u64>| slot.silent || self.table.was_told(member, held);
                    if let Some(held) = report.held.as_ref().filter(believed) {
                        self.adopt(now, member, held);
                    }
                }
                Phase::Live => self.confirmed(now, member),
                Phase::Unknown | Phase::Left => {}
            }
        }
        Ok(())
    }

    /// A member has stated its shares: it holds these, and nothing else, until it has confirmed another grant.
    fn adopt(&mut self, now: Time, member: usize, held: &[u64]) {
        let slot = &mut self.slots[member];
        slot.phase = Phase::Live;
        self.windows.touch();
        slot.fresh = true;
        // A later report that confirms the question confirms no grant.
        slot.acked = slot.sequence;
        slot.confirmed_at = now;
        slot.falling = false;
        // It may hold them as granted or as safe shares, so they last at most as long as safe shares.
        let until = now + self.site.with_margin(self.site.settings().safe_for);
        (slot.level_until, slot.tail_until) = (until, until);
        slot.open = (0..held.len() as u32).collect();
        let was_silent = std::mem::take(&mut slot.silent);
        if slot.record != Record::Granted {
            self.record(member, Record::Granted);
        }
        let left = self.silent_members();
        self.table.adopt(member, held, was_silent, left);
        if left == 0 {
            self.silent = Silent::Nothing;
        }
    }

    /// Asks the driver to keep a record of a member.
    fn record(&mut self, member: usize, record: Record) {
        self.slots[member].unrecorded += 1;
        self.records.push_back((member, record));
    }

    fn silent_members(&self) -> usize {
        slots_silent(&self.slots).0
    }

    /// A member has confirmed the last grant, so it can hold no earlier one.
    fn confirmed(&mut self, now: Time, member: usize) {
        let settings = self.site.settings();
        let slot = &mut self.slots[member];
        slot.confirmed_at = now;
        if slot.acked == slot.sequence {
            return;
        }
        slot.acked = slot.sequence;
        slot.level_until = slot.granted_at + self.site.with_margin(settings.lease);
        slot.tail_until = slot.granted_at + self.site.with_margin(settings.safe_for);
        self.table.confirmed(member, &mut slot.open);
    }

    /// A member has given everything back.
    fn left(&mut self, member: usize) {
        let slot = &mut self.slots[member];
        self.windows.gone(slot);
        slot.phase = Phase::Left;
        let was_silent = std::mem::take(&mut slot.silent);
        slot.open.clear();
        slot.falling = false;
        slot.reset_until();
        if slot.record != Record::Nothing {
            // Nothing is granted until the next record is kept.
            slot.record = Record::Nothing;
            self.record(member, Record::Nothing);
        }
        let left = self.silent_members();
        if was_silent && left == 0 {
            self.silent = Silent::Nothing;
        }
        self.table.gone(member, was_silent && left == 0);
    }

    /// `now`, or the latest time seen if it is later.
    fn at(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    /// Lets leases end.
    fn expire(&mut self, now: Time) {
        let settings = self.site.settings();
        let (proof, lease, safe_for) = (settings.proof, settings.lease, settings.safe_for);
        if self.silent == Silent::Leases && now >= self.began + self.site.with_margin(proof + lease) {
            self.silent = Silent::Recording;
            for member in 0..self.slots.len() {
                if self.slots[member].silent {
                    self.record(member, Record::Lapsed);
                }
            }
        }
        if self.silent != Silent::Nothing && now >= self.began + self.site.with_margin(proof + safe_for) {
            self.silent = Silent::Nothing;
            for slot in &mut self.slots {
                slot.silent = false;
            }
            self.table.silent_hold_nothing();
        }
        for member in 0..self.slots.len() {
            let slot = &mut self.slots[member];
            if slot.level_until > now {
                continue;
            }
            if slot.phase == Phase::Live || slot.phase == Phase::Asked {
                self.counts.lapsed += u64::from(slot.phase == Phase::Live);
                slot.phase = Phase::Unknown;
                self.windows.gone(slot);
            }
            if slot.tail_until > now {
                // Its share is used when the record is kept.
                slot.level_until = slot.tail_until;
                slot.falling = true;
                self.record(member, Record::Lapsed);
            } else {
                slot.falling = false;
                slot.reset_until();
                self.table.gone(member, false);
            }
        }
    }

    /// Lets leases end, divides the budgets, and answers the reports that are due. Then take the messages from
    /// [`Self::poll_grant`] and the members from [`Self::poll_record`].
    pub fn run(&mut self, now: Time) {
        let now = self.at(now);
        self.expire(now);
        if !self.is_leading(now) || now < self.settled() || self.last_run.is_some_and(|last| self.may_run(last) > now) {
            return;
        }
        self.last_run = Some(now);
        self.table.divide(&mut self.slots);
        let interval = self.site.windows_pace();
        if self.windows.due(interval) <= now {
            self.windows.divide(now, interval, &self.site, &mut self.slots);
        }
        self.gather_ejected();
        let hold = self.site.settings().hold;
        for member in 0..self.slots.len() {
            let slot = &mut self.slots[member];
            if slot.answered == slot.number {
                continue;
            }
            if slot.phase == Phase::Live && slot.record == Record::Nothing {
                continue;
            }
            if slot.phase == Phase::Live && !slot.urgent && !slot.fresh && now < slot.waits_since + hold {
                continue;
            }
            self.answer(member);
        }
    }

    /// Finds the nodes that live members have ejected. All members hear of a change at once.
    fn gather_ejected(&mut self) {
        let live = self.slots.iter().filter(|slot| slot.phase == Phase::Live);
        let all: BTreeSet<&String> = live.flat_map(|slot| &slot.ejected).collect();
        if all.iter().copied().take(MAX_EJECTED).eq(&self.ejected) {
            return;
        }
        self.ejected = all.into_iter().take(MAX_EJECTED).cloned().collect();
        self.slots.iter_mut().for_each(|slot| slot.urgent = true);
    }

    /// Answers the last report of `member`.
    fn answer(&mut self, member: usize) {
        let site = &self.site;
        let slot = &mut self.slots[member];
        slot.sequence += 1;
        slot.answered = slot.number;
        if slot.phase == Phase::Live && slot.received >= slot.confirmed_at + site.settings().lease {
            slot.phase = Phase::Asked;
        }
        let step = match slot.phase {
            Phase::Unknown | Phase::Asked => {
                slot.phase = Phase::Asked;
                Step::State
            }
            Phase::Left => Step::Goodbye,
            Phase::Live => {
                (slot.urgent, slot.granted_at) = (false, slot.received);
                let settings = site.settings();
                slot.level_until = slot.level_until.max(slot.received + site.with_margin(settings.lease));
                slot.tail_until = slot.tail_until.max(slot.received + site.with_margin(settings.safe_for));
                let base = if std::mem::take(&mut slot.fresh) { 0 } else { slot.acked };
                let shares = self.table.granted(member, &slot.open);
                self.counts.shares += shares.len() as u64;
                Step::Shares { base, shares }
            }
        };
        let (windows, ejected) = match slot.phase {
            Phase::Live => (self.windows.told(slot), self.ejected.clone()),
            _ => Default::default(),
        };
        self.counts.answers += 1;
        let (revision, incarnation) = (self.revision, slot.incarnation);
        let (report, sequence) = (slot.answered, slot.sequence);
        self.grants.push_back((member, Grant { revision, incarnation, report, sequence, step, windows, ejected }));
    }

    /// The next record to keep, durably and as the elected one: in one transaction that fails if another coordinator
    /// was elected. Records of a member must be kept in this order.
    pub fn poll_record(&mut self) -> Option<(usize, Record)> {
        self.records.pop_front()
    }

    /// Notes that a record is kept. Call [`Self::run`] afterwards.
    pub fn recorded(&mut self, member: usize, record: Record) {
        let Some(slot) = self.slots.get_mut(member) else { return };
        slot.unrecorded = slot.unrecorded.saturating_sub(1);
        if slot.unrecorded > 0 {
            // A later record of it is under way, and that one counts.
            return;
        }
        slot.record = record;
        self.table.touch_all();
        if record == Record::Lapsed && std::mem::take(&mut slot.falling) {
            self.table.fall_to_safe_shares(member);
        }
        let recorded = |slot: &Slot| !slot.silent || slot.record == Record::Lapsed;
        if self.silent == Silent::Recording && self.slots.iter().all(recorded) {
            self.silent = Silent::SafeShares;
            let members = self.silent_members();
            self.table.silent_fall_to_safe_shares(members);
        }
    }

    /// The next message to send, and its member.
    pub fn poll_grant(&mut self) -> Option<(usize, Grant)> {
        self.grants.pop_front()
    }

    fn may_run(&self, last: Time) -> Time {
        last + self.site.settings().pace
    }

    /// When to call [`Self::run`] next. [`Time::NEVER`] while it must not act: then another proof comes first.
    pub fn next_timeout(&self) -> Time {
        if !self.is_leading(self.now) {
            return Time::NEVER;
        }
        let settings = self.site.settings();
        let hold = settings.hold;
        let mut next = match self.silent {
            Silent::Leases => self.began + self.site.with_margin(settings.proof + settings.lease),
            Silent::Recording | Silent::SafeShares => {
                self.began + self.site.with_margin(settings.proof + settings.safe_for)
            }
            Silent::Nothing => Time::NEVER,
        };
        for slot in &self.slots {
            next = next.min(slot.level_until);
            if slot.answered < slot.number {
                let waits = slot.phase == Phase::Live && !slot.urgent && !slot.fresh;
                next = next.min(if waits { slot.waits_since + hold } else { slot.received });
            }
        }
        if self.table.is_touched() {
            next = next.min(self.now);
        }
        next = next.min(self.windows.due(self.site.windows_pace()));
        next.max(self.last_run.map_or(self.settled(), |last| self.may_run(last)))
    }

    /// The revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Sums of its work.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The state of `member`, if there is one.
    pub fn phase(&self, member: usize) -> Option<Phase> {
        self.slots.get(member).map(|slot| slot.phase)
    }

    /// Requests that `member` has in flight on all groups of nodes, by its last report. `None` if its lease has ended,
    /// or if it shares no windows.
    pub fn in_flight(&self, member: usize) -> Option<f64> {
        let slot = self.slots.get(member).filter(|slot| slot.phase == Phase::Live && !slot.uses.is_empty())?;
        Some(slot.uses.iter().map(|used| f64::from(used.in_flight)).sum::<f64>() / 1e3)
    }

    /// Whether `member` is surely without a lease: it has left, or has been silent for longer than one.
    pub fn is_gone(&self, now: Time, member: usize) -> bool {
        let settings = self.site.settings();
        // Grants of a predecessor have ended by then.
        let knows = now >= self.began + self.site.with_margin(settings.proof + settings.lease);
        match self.slots.get(member) {
            Some(slot) if slot.phase == Phase::Left => true,
            // One that was asked for its shares may never answer.
            Some(slot) if slot.phase != Phase::Live => {
                knows && now >= slot.received + self.site.with_margin(settings.lease)
            }
            _ => false,
        }
    }

    /// When the last report of `member` arrived.
    pub fn heard(&self, member: usize) -> Option<Time> {
        self.slots.get(member).filter(|slot| slot.number > 0).map(|slot| slot.received)
    }

    /// The most of a budget that `member` may hold, without the shares of silent ones.
    ///
    /// # Panics
    /// If there is no such member or budget.
    pub fn held(&self, member: usize, budget: usize) -> u64 {
        self.table.held(member, budget)
    }

    /// The demand of `member`, by its last report: at most the whole budget. `None` if its lease has ended, because a
    /// member without one does not report.
    ///
    /// # Panics
    /// If there is no such member or budget.
    pub fn demanded(&self, member: usize, budget: usize) -> Option<u64> {
        (self.slots[member].phase == Phase::Live).then(|| self.table.demanded(member, budget))
    }

    /// The part of a budget that no member can hold.
    ///
    /// # Panics
    /// If there is no such budget.
    pub fn free(&self, budget: usize) -> u64 {
        self.table.free(budget)
    }
}

/// Number of silent members, and whether one of them is recorded as lapsed.
fn slots_silent(slots: &[Slot]) -> (usize, bool) {
    let silent = || slots.iter().filter(|slot| slot.silent);
    (silent().count(), silent().any(|slot| slot.record == Record::Lapsed))
}
