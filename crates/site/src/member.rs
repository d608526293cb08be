//! The gateway's side: demand to report, and the shares that may be used at this instant.
//!
//! A share ends in steps: the granted share during the lease, the safe share after it, and then the minimum. All times
//! are of the member's own monotonic clock. The lease begins when the report was *sent* that a grant answers: the
//! coordinator cannot have counted it from an earlier moment.
//!
//! A member always keeps one report at the coordinator, which answers at once if it has news. So a share can be lowered
//! or raised within one way of the network. A further report is sent if a demand has changed by more than its noise.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use weirgate_engine::Time;

use crate::message::{Grant, GroupShare, GroupUse, MILLIONTHS, Refused, Report, Step, are_few};
use crate::settings::{MAX_BUDGET, MAX_EJECTED, MAX_GROUPS, MAX_NODE_NAME, Site};

/// Reports whose sending times are kept. Answers to older ones are refused. At one report every `pace` and answers that
/// take no longer than `hold`, 50 are under way at most.
const MAX_SENT: usize = 64;

/// Where the shares of a member come from at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The lease runs: granted shares.
    Granted,
    /// The lease has ended: safe shares.
    Safe,
    /// There is no grant, or the safe shares have ended: minimum shares.
    Minimum,
}

/// A budget at a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    granted: u64,
    demand: u64,
    /// Demand of the last report that named it.
    told: u64,
    /// Number of that report.
    told_in: u64,
    /// It is in `Member::untold`.
    listed: bool,
}

/// One gateway of a site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    site: Arc<Site>,
    incarnation: u64,
    /// The coordinator that is followed. Zero: none.
    revision: u64,
    /// Sequence number of the last message of this coordinator that was applied.
    applied: u64,
    /// That message asked for the shares.
    asked: bool,
    entries: Vec<Entry>,
    /// Budgets whose demand the coordinator may not know.
    untold: Vec<u32>,
    /// A demand has changed so far that a report must go now.
    urgent: bool,
    /// Use of the windows, as it is, and in the last report that was sent at this time.
    windows: Vec<GroupUse>,
    told_windows: (Option<Time>, Vec<GroupUse>),
    /// Shares of the windows that the driver has not taken.
    granted_windows: Vec<GroupShare>,
    /// Nodes that it has ejected, and those that some member has ejected by the last grant.
    ejected: Vec<String>,
    ejected_at_site: Vec<String>,
    /// Beginning of the lease.
    anchor: Option<Time>,
    /// Number of the last report, of the last answered one, and when the last one was sent.
    number: u64,
    answered: u64,
    last_sent: Option<Time>,
    sent: VecDeque<(u64, Time)>,
    left: bool,
}

impl Member {
    /// A member without grants. `incarnation` must be greater than that of every earlier process under its name.
    pub fn new(site: Arc<Site>, incarnation: u64) -> Member {
        let entry = |budget| Entry { granted: site.minimum(budget), demand: 0, told: 0, told_in: 0, listed: false };
        Member {
            incarnation,
            revision: 0,
            applied: 0,
            asked: false,
            entries: (0..site.budgets()).map(entry).collect(),
            untold: Vec::new(),
            urgent: false,
            windows: Vec::new(),
            told_windows: (None, Vec::new()),
            granted_windows: Vec::new(),
            ejected: Vec::new(),
            ejected_at_site: Vec::new(),
            anchor: None,
            number: 0,
            answered: 0,
            last_sent: None,
            sent: VecDeque::new(),
            left: false,
            site,
        }
    }

    /// This member under another agreement, or with another incarnation. `from` has for each budget of `site` its
    /// number here, if it stays. It then keeps its share, or less of it if the budget is smaller from now on, so that
    /// the shares of all members together stay within it. Other times leave the minimum, because the coordinator has
    /// counted by the old ones.
    #[must_use]
    pub fn carried(&self, site: Arc<Site>, incarnation: u64, from: &[Option<usize>]) -> Member {
        let mut member = Member::new(site, incarnation);
        let times = |site: &Site| (site.settings().lease, site.settings().safe, site.settings().safe_for);
        if self.left || times(&member.site) != times(&self.site) {
            return member;
        }
        member.anchor = self.anchor;
        for (budget, entry) in member.entries.iter_mut().enumerate() {
            let Some(old) = from.get(budget).copied().flatten().filter(|old| *old < self.entries.len()) else {
                continue;
            };
            let (granted, whole, before) = (self.entries[old].granted, member.site.total(budget), self.site.total(old));
            let part = u128::from(granted) * u128::from(whole.min(before)) / u128::from(before.max(1));
            entry.granted = (part as u64).max(member.site.minimum(budget));
            entry.demand = self.entries[old].demand;
        }
        member
    }

    /// Follows the coordinator with this revision, from now on and never an older one. Grants stay in force.
    pub fn follow(&mut self, revision: u64) {
        if revision <= self.revision {
            return;
        }
        (self.revision, self.applied, self.asked) = (revision, 0, false);
        self.answered = self.number;
        self.last_sent = None;
        self.sent.clear();
        self.untold.clear();
        for (budget, entry) in (0..).zip(&mut self.entries) {
            (entry.told, entry.told_in, entry.listed) = (0, 0, entry.demand > 0);
            if entry.listed {
                self.untold.push(budget);
            }
        }
    }

    /// Sets the demand for a budget. An unknown budget is ignored.
    pub fn demand(&mut self, budget: usize, amount: u64) {
        let site = &self.site;
        let Some(entry) = self.entries.get_mut(budget) else { return };
        entry.demand = amount.min(MAX_BUDGET);
        let (change, worth_telling) = (entry.demand.abs_diff(entry.told), site.worth_telling(budget));
        if !entry.listed && (change >= worth_telling || (entry.demand == 0 && entry.told > 0)) {
            entry.listed = true;
            self.untold.push(budget as u32);
        }
        // A sixteenth is beyond the noise of a demand that was measured for a second.
        self.urgent |= change > worth_telling + entry.told / 16;
    }

    /// Sets the use of the windows at `now`, by group. Of more than [`MAX_GROUPS`] groups none are shared.
    pub fn windows(&mut self, now: Time, uses: Vec<GroupUse>) {
        self.windows = if uses.len() > MAX_GROUPS { Vec::new() } else { uses };
        let (told_at, told) = &self.told_windows;
        let is_due = told_at.is_none_or(|at| now >= at + self.site.windows_pace());
        let is_new =
            self.windows.len() != told.len() || self.windows.iter().zip(told).any(|(new, old)| new.differs(old));
        self.urgent |= is_due && is_new;
    }

    /// Takes the shares of the windows that were granted since the last call, by group. Empty: none.
    pub fn take_windows(&mut self) -> Vec<GroupShare> {
        std::mem::take(&mut self.granted_windows)
    }

    /// Sets the nodes that this gateway has ejected, by names of at most 128 bytes that all members use.
    pub fn ejected(&mut self, nodes: impl Iterator<Item = String>) {
        let nodes: Vec<String> = nodes.filter(|name| name.len() <= MAX_NODE_NAME).take(MAX_EJECTED).collect();
        self.urgent |= nodes != self.ejected;
        self.ejected = nodes;
    }

    /// Nodes that some member has ejected, this one included. None without a lease.
    pub fn ejected_at_site(&self, now: Time) -> &[String] {
        if self.stage(now) == Stage::Granted { &self.ejected_at_site } else { &[] }
    }

    /// Gives everything back and reports that. No later grant is applied.
    pub fn leave(&mut self) {
        self.left = true;
        self.anchor = None;
        self.urgent = true;
    }

    /// Where the shares come from at `now`.
    pub fn stage(&self, now: Time) -> Stage {
        let settings = self.site.settings();
        match self.anchor.map(|anchor| now.since(anchor)) {
            Some(age) if age < settings.lease => Stage::Granted,
            Some(age) if age < settings.safe_for => Stage::Safe,
            _ => Stage::Minimum,
        }
    }

    /// The share of a budget that may be used at `now`: never nothing, and never more than the budget.
    ///
    /// # Panics
    /// If there is no such budget.
    pub fn share(&self, now: Time, budget: usize) -> u64 {
        let granted = self.entries[budget].granted;
        match self.stage(now) {
            Stage::Granted => granted,
            Stage::Safe => self.site.safe(budget, granted),
            Stage::Minimum => self.site.minimum(budget),
        }
    }

    /// The share of a budget in each stage: granted, safe and minimum.
    ///
    /// # Panics
    /// If there is no such budget.
    pub fn steps(&self, budget: usize) -> [u64; 3] {
        let granted = self.entries[budget].granted;
        [granted, self.site.safe(budget, granted), self.site.minimum(budget)]
    }

    /// Ends of the granted and of the safe shares. `None` without a grant.
    pub fn ends(&self) -> Option<(Time, Time)> {
        let settings = self.site.settings();
        self.anchor.map(|anchor| (anchor + settings.lease, anchor + settings.safe_for))
    }

    /// The demand for a budget, as set last.
    ///
    /// # Panics
    /// If there is no such budget.
    pub fn demanded(&self, budget: usize) -> u64 {
        self.entries[budget].demand
    }

    /// The coordinator that is followed, or 0.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether every report was answered. True for a member that has left: its farewell has arrived.
    pub fn is_answered(&self) -> bool {
        self.answered == self.number
    }

    /// Whether it has left and has nothing more to say: its farewell has arrived, or there is no coordinator.
    pub fn is_gone(&self) -> bool {
        self.left && self.report_due().is_none()
    }

    /// The report to send at `now`, if one is due.
    pub fn poll_report(&mut self, now: Time) -> Option<Report> {
        if now < self.report_due()? {
            return None;
        }
        self.number += 1;
        self.last_sent = Some(now);
        if self.sent.len() == MAX_SENT {
            self.sent.pop_front();
        }
        self.sent.push_back((self.number, now));
        self.urgent = false;
        self.told_windows = (Some(now), self.windows.clone());
        let mut demands = Vec::with_capacity(self.untold.len());
        for &budget in &self.untold {
            let entry = &mut self.entries[budget as usize];
            (entry.told, entry.told_in) = (entry.demand, self.number);
            demands.push((budget, entry.demand));
        }
        let held = self.asked.then(|| (0..self.entries.len()).map(|budget| self.share(now, budget)).collect());
        Some(Report {
            revision: self.revision,
            incarnation: self.incarnation,
            number: self.number,
            applied: self.applied,
            held,
            demands,
            windows: self.windows.clone(),
            ejected: self.ejected.clone(),
            leaving: self.left,
        })
    }

    /// When the next report is due, or `None` without a coordinator.
    fn report_due(&self) -> Option<Time> {
        let settings = self.site.settings();
        if self.revision == 0 || (self.left && self.is_answered() && !self.urgent) {
            return None;
        }
        let Some(last) = self.last_sent else { return Some(Time::ZERO) };
        let wait = if self.is_answered() || self.urgent {
            settings.pace
        } else {
            // The answer, or the report, is lost.
            settings.hold + settings.hold / 2
        };
        Some(last + wait)
    }

    /// Applies an answer that arrived at `now`.
    ///
    /// # Errors
    /// The reason if it is not applied.
    pub fn granted(&mut self, now: Time, grant: Grant) -> Result<(), Refused> {
        if grant.revision != self.revision {
            return Err(Refused::Revision);
        }
        if grant.incarnation != self.incarnation {
            return Err(Refused::Incarnation);
        }
        let sent = self.sent.iter().find(|(number, _)| *number == grant.report).map(|(_, at)| *at);
        let sent = sent.filter(|at| *at <= now).ok_or(Refused::Old)?;
        if grant.sequence <= self.applied {
            return Err(Refused::Old);
        }
        grant.step.check(&self.site)?;
        if grant.windows.len() > MAX_GROUPS || !are_few(&grant.ejected) {
            return Err(Refused::Size);
        }
        match grant.step {
            Step::State => self.asked = !self.left,
            Step::Shares { base, shares } => {
                if base > self.applied || (base == 0 && shares.len() != self.entries.len()) {
                    return Err(Refused::Gap);
                }
                if self.left {
                    return Err(Refused::Old);
                }
                for (budget, amount) in shares {
                    let budget = budget as usize;
                    self.entries[budget].granted = amount.max(self.site.minimum(budget));
                }
                self.asked = false;
                self.anchor = self.anchor.max(Some(sent));
                self.take_over(grant.windows);
                self.ejected_at_site = grant.ejected;
            }
            Step::Goodbye => {}
        }
        self.applied = grant.sequence;
        self.answer(grant.report);
        Ok(())
    }

    /// Keeps shares of windows for the driver. Factors that it has not taken are multiplied.
    fn take_over(&mut self, mut shares: Vec<GroupShare>) {
        // The next report confirms the factors, so it tells the windows with them.
        for (used, share) in self.windows.iter_mut().zip(&shares) {
            let base = u64::from(used.base) * u64::from(share.factor) / MILLIONTHS;
            used.base = u32::try_from(base).unwrap_or(u32::MAX);
        }
        for (new, old) in shares.iter_mut().zip(&self.granted_windows) {
            let factor = u64::from(new.factor) * u64::from(old.factor) / MILLIONTHS;
            new.factor = u32::try_from(factor).unwrap_or(u32::MAX);
        }
        if !shares.is_empty() {
            self.granted_windows = shares;
        }
    }

    /// Notes that the report `number` has arrived, with the demands in it.
    fn answer(&mut self, number: u64) {
        if number <= self.answered {
            return;
        }
        self.answered = number;
        self.sent.retain(|(sent, _)| *sent >= number);
        let (entries, site) = (&mut self.entries, &self.site);
        self.untold.retain(|&budget| {
            let entry = &mut entries[budget as usize];
            entry.listed =
                entry.told_in > number || entry.demand.abs_diff(entry.told) > site.piece(budget as usize) / 4;
            entry.listed
        });
    }

    /// When to call [`Self::poll_report`] next, or to ask for the shares because a stage ends.
    pub fn next_timeout(&self, now: Time) -> Time {
        let settings = self.site.settings();
        let ends = [settings.lease, settings.safe_for]
            .into_iter()
            .filter_map(|span| self.anchor.map(|anchor| anchor + span))
            .filter(|end| *end > now);
        ends.chain(self.report_due()).min().unwrap_or(Time::NEVER)
    }

    /// How long the present stage lasts, from `now` on, or `None` for minimum shares, which do not end.
    pub fn remaining(&self, now: Time) -> Option<Duration> {
        let settings = self.site.settings();
        let anchor = self.anchor?;
        match self.stage(now) {
            Stage::Granted => Some((anchor + settings.lease).since(now)),
            Stage::Safe => Some((anchor + settings.safe_for).since(now)),
            Stage::Minimum => None,
        }
    }
}
