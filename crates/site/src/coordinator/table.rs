//! The coordinator's account of all budgets: the amounts that each member wants, is to have and may have, and
//! the division.
//!
//! Division is max-min by demand. A member with demand gets a piece beyond it, as far as the budget goes. Raising uses
//! the part that no member can hold. If that is not enough, shares are lowered at the members with the largest surplus,
//! and only by as much as is missing: a small shift concerns few members. Without need, a tenth of the budget is called
//! back from members that have no use for it, so that the next rise finds it free.

use std::sync::Arc;

use super::slot::{Phase, Record, Slot};
use crate::fill::fill;
use crate::settings::Site;

/// One budget at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cell {
    demand: u64,
    /// The share that it is to have.
    next: u64,
    /// The share in the last grant.
    sent: u64,
    /// The largest share that it may hold now.
    high: u64,
    /// It is in the member's list of open budgets.
    open: bool,
}

impl Cell {
    /// The most that it may hold, or will with the next grant.
    fn counted(&self) -> u64 {
        self.high.max(self.next)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table {
    site: Arc<Site>,
    members: usize,
    /// By budget, and then by member.
    cells: Vec<Cell>,
    /// The shares that silent members may hold together, by budget.
    silent: Vec<u64>,
    touched: Vec<bool>,
}

/// Memory of [`Table::divide`], kept from budget to budget.
#[derive(Default)]
struct Work {
    members: Vec<usize>,
    wants: Vec<u64>,
    targets: Vec<u64>,
    needs: Vec<u64>,
    raises: Vec<u64>,
    surplus: Vec<(u64, usize)>,
}

impl Table {
    pub(super) fn new(site: &Arc<Site>, silent: usize) -> Table {
        let members = site.settings().members;
        let cell = |budget| {
            let least = site.minimum(budget);
            Cell { demand: 0, next: least, sent: least, high: least, open: false }
        };
        Table {
            members,
            cells: (0..site.budgets()).flat_map(|budget| (0..members).map(move |_| cell(budget))).collect(),
            silent: (0..site.budgets()).map(|budget| if silent == 0 { 0 } else { site.total(budget) }).collect(),
            touched: vec![true; site.budgets()],
            site: site.clone(),
        }
    }

    fn cell(&mut self, member: usize, budget: usize) -> &mut Cell {
        &mut self.cells[budget * self.members + member]
    }

    pub(super) fn held(&self, member: usize, budget: usize) -> u64 {
        self.cells[budget * self.members + member].counted()
    }

    pub(super) fn demanded(&self, member: usize, budget: usize) -> u64 {
        self.cells[budget * self.members + member].demand
    }

    pub(super) fn free(&self, budget: usize) -> u64 {
        let used: u64 = (0..self.members).map(|member| self.held(member, budget)).sum();
        self.site.total(budget).saturating_sub(self.silent[budget]).saturating_sub(used)
    }

    pub(super) fn demand(&mut self, member: usize, budget: usize, amount: u64) {
        let amount = amount.min(self.site.total(budget));
        self.cell(member, budget).demand = amount;
        self.touched[budget] = true;
    }

    pub(super) fn forget_demand(&mut self, member: usize) {
        for budget in 0..self.site.budgets() {
            self.demand(member, budget, 0);
        }
    }

    pub(super) fn touch_all(&mut self) {
        self.touched.fill(true);
    }

    pub(super) fn is_touched(&self) -> bool {
        self.touched.contains(&true)
    }

    /// Whether `member` may be believed to hold `held`: no more than it was told to.
    pub(super) fn was_told(&self, member: usize, held: &[u64]) -> bool {
        held.iter().enumerate().all(|(budget, held)| *held <= self.cells[budget * self.members + member].sent)
    }

    /// `member` holds `held` and no longer anything else. `left` members are still silent.
    ///
    /// A silent one that lies may state more than the others leave. Theirs are counted in full as well, because they do
    /// hold them. [`Table::divide`] lowers shares until all fit.
    pub(super) fn adopt(&mut self, member: usize, held: &[u64], was_silent: bool, left: usize) {
        for (budget, held) in held.iter().enumerate() {
            let least = self.site.minimum(budget);
            let held = (*held).max(least);
            let cell = self.cell(member, budget);
            (cell.next, cell.sent, cell.high, cell.open) = (held, held, held, true);
            if was_silent {
                let others = if left == 0 { 0 } else { self.silent[budget] - held.min(self.silent[budget]) };
                self.silent[budget] = others.max(least * left as u64);
            }
        }
        self.touch_all();
    }

    /// `member` has confirmed the last grant. Budgets that are to have another share stay open.
    pub(super) fn confirmed(&mut self, member: usize, open: &mut Vec<u32>) {
        open.retain(|&budget| {
            let budget = budget as usize;
            let cell = self.cell(member, budget);
            let before = cell.high;
            cell.high = cell.sent;
            cell.open = cell.next != cell.sent;
            let (lowered, open) = (cell.high < before, cell.open);
            self.touched[budget] |= lowered;
            open
        });
    }

    /// The lease of `member` has ended.
    pub(super) fn fall_to_safe_shares(&mut self, member: usize) {
        for budget in 0..self.site.budgets() {
            let high = self.cell(member, budget).high;
            let high = self.site.safe(budget, high);
            self.set(member, budget, high);
        }
    }

    /// `member` holds the minimum. `none_silent`: so do those that were silent.
    pub(super) fn gone(&mut self, member: usize, none_silent: bool) {
        for budget in 0..self.site.budgets() {
            let least = self.site.minimum(budget);
            self.set(member, budget, least);
            if none_silent {
                self.silent[budget] = 0;
            }
        }
    }

    /// `member` holds at most `high`, and is to have nothing else.
    fn set(&mut self, member: usize, budget: usize, high: u64) {
        let least = self.site.minimum(budget);
        let cell = self.cell(member, budget);
        (cell.high, cell.next, cell.sent, cell.open) = (high, least, high, false);
        self.touched[budget] = true;
    }

    /// The leases of the silent members have ended. Each keeps its safe share or the minimum.
    pub(super) fn silent_fall_to_safe_shares(&mut self, members: usize) {
        for budget in 0..self.site.budgets() {
            let bound = self.site.safe_part(self.silent[budget]) + self.site.minimum(budget) * members as u64;
            self.silent[budget] = self.silent[budget].min(bound);
        }
        self.touch_all();
    }

    /// The safe shares of the silent members have ended. They are counted one by one, with the minimum.
    pub(super) fn silent_hold_nothing(&mut self) {
        self.silent.fill(0);
        self.touch_all();
    }

    /// The shares that `member` is to have, of its open budgets, as they are sent to it.
    pub(super) fn granted(&mut self, member: usize, open: &[u32]) -> Vec<(u32, u64)> {
        let mut shares = Vec::with_capacity(open.len());
        for &budget in open {
            let cell = self.cell(member, budget as usize);
            cell.high = cell.counted();
            cell.sent = cell.next;
            shares.push((budget, cell.next));
        }
        shares
    }

    /// Divides the budgets in which something has changed.
    pub(super) fn divide(&mut self, slots: &mut [Slot]) {
        let mut work = Work::default();
        for budget in 0..self.touched.len() {
            if std::mem::take(&mut self.touched[budget]) {
                self.divide_one(budget, slots, &mut work);
            }
        }
    }

    fn divide_one(&mut self, budget: usize, slots: &mut [Slot], work: &mut Work) {
        let (least, piece) = (self.site.minimum(budget), self.site.piece(budget));
        let worth_telling = self.site.worth_telling(budget);
        let row = &mut self.cells[budget * self.members..][..self.members];
        work.members.clear();
        work.wants.clear();
        let mut to_divide = (self.site.total(budget) - self.site.reserve(budget)).saturating_sub(self.silent[budget]);
        let (whole, mut used, mut pending) = (to_divide, 0, 0);
        for (member, cell) in row.iter().enumerate() {
            let slot = &slots[member];
            used += cell.counted();
            if slot.phase == Phase::Live && slot.record != Record::Nothing {
                work.members.push(member);
                work.wants.push(cell.demand.max(least));
                pending += cell.high.saturating_sub(cell.next);
            } else {
                to_divide = to_divide.saturating_sub(cell.counted());
            }
        }
        fill(to_divide, &work.wants, &mut work.targets);
        // Demand first, then a piece beyond it for each member with demand.
        let left = to_divide.saturating_sub(work.targets.iter().sum());
        work.needs.clear();
        work.needs.extend(work.members.iter().map(|&member| if row[member].demand == 0 { 0 } else { piece }));
        fill(left, &work.needs, &mut work.raises);
        work.needs.clear();
        work.surplus.clear();
        for ((&member, target), headroom) in work.members.iter().zip(&work.targets).zip(&work.raises) {
            let target = (target + headroom).max(least);
            let next = row[member].next;
            work.needs.push(target.saturating_sub(next));
            if next > target {
                work.surplus.push((next - target, member));
            }
        }
        let needed: u64 = work.needs.iter().sum();
        let free = whole.saturating_sub(used);
        fill(free, &work.needs, &mut work.raises);
        for (&member, raise) in work.members.iter().zip(&work.raises).filter(|(_, raise)| **raise > 0) {
            change(&mut row[member], &mut slots[member], budget, |next| next + raise, *raise >= worth_telling);
        }
        let missing = (needed + used).saturating_sub(whole);
        let spare = free.saturating_sub(needed);
        // Without need only whole pieces are called back, and with the next renewal.
        let (goal, worth) =
            if missing > 0 { (missing, 1) } else { (self.site.held_back(budget).saturating_sub(spare), piece) };
        let mut recall = goal.saturating_sub(pending);
        if recall == 0 {
            return;
        }
        work.surplus.sort_unstable_by(|a, b| b.cmp(a));
        for (surplus, member) in work.surplus.iter().take_while(|(surplus, _)| *surplus >= worth) {
            let lowered = (*surplus).min(recall);
            change(&mut row[*member], &mut slots[*member], budget, |next| next - lowered, missing >= worth_telling);
            recall -= lowered;
            if recall == 0 {
                return;
            }
        }
    }
}

/// Changes the share that a member is to have.
fn change(cell: &mut Cell, slot: &mut Slot, budget: usize, to: impl Fn(u64) -> u64, urgent: bool) {
    cell.next = to(cell.next);
    slot.urgent |= urgent;
    if !cell.open {
        cell.open = true;
        slot.open.push(budget as u32);
    }
}
