//! Windows of groups of nodes: every member learns what all others have in flight, and windows move to demand.
//!
//! Source: our own (ADR 27). Each member finds its window by itself, judging by the requests in flight of all members.
//! Here windows only change hands: a round multiplies each of them by a factor, and their sum stays. A factor is
//! applied once, because a grant is, and the next round counts a member only if its report confirms the last one. A
//! factor that is lost changes the sum until the members have found it again, so no share of a guarantee depends on
//! it.

use core::time::Duration;

use weirgate_engine::Time;

use super::Phase;
use super::slot::Slot;
use crate::fill::fill;
use crate::message::{GroupShare, GroupUse, MILLIONTHS};
use crate::settings::Site;

/// A round begins if a member that holds requests back is to have more by this part of its window. Requests in flight
/// vary by as much without a reason, and each round costs a cycle of measurements.
const WORTH: u64 = 4;

/// Minimum time between two rounds, in intervals: a quarter of a second at the usual pace. Requests in flight follow a
/// window within some of their own times.
const ROUNDS: u32 = 5;

/// Shortest low half of a swing: all members hear of a turn, and report what follows, in a fraction of it. And the
/// least number of requests' times in it: the number in flight follows a window within one.
const SHORTEST: Duration = Duration::from_millis(250);
const STAYS: u32 = 5;

/// Longest time of a request that counts for that. Hanging requests must not end the search.
const LONGEST_STAY: Duration = Duration::from_secs(1);

/// Length of a high half in low ones, when the first [`ROUGH`] halves have passed: nodes may run dry in low ones.
const STEADY: u32 = 12;
const ROUGH: u32 = 80;

/// One request, in thousandths: the least window of a member, and the least that is worth a round.
const REQUEST: u64 = 1_000;

/// The sums over all members that live, by group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Total {
    base: u64,
    in_flight: u64,
    answers: u64,
    work: u64,
    /// Windows of members that have left, which no other member has taken over yet.
    left: u64,
    /// The half of the swing, when it ends, and number of halves so far.
    high: bool,
    turns_at: Option<Time>,
    halves: u32,
}

impl Total {
    /// The mean time of a request on the nodes, by Little's law.
    fn stay(&self) -> Duration {
        Duration::from_millis(1_000 * self.in_flight / self.answers.max(1)).min(LONGEST_STAY)
    }

    /// Turns the swing of all windows when it is due. Returns whether it has turned.
    fn turn(&mut self, now: Time) -> bool {
        if self.turns_at.is_some_and(|at| now < at) {
            return false;
        }
        self.high = !self.high;
        self.halves = self.halves.saturating_add(1);
        let low = SHORTEST.max(STAYS * self.stay());
        let factor = match (self.high, self.halves > ROUGH) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => STEADY,
        };
        self.turns_at = Some(now + factor * low);
        true
    }
}

/// The account of the windows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Windows {
    totals: Vec<Total>,
    last: Option<Time>,
    last_round: Option<Time>,
    /// Something was reported since.
    touched: bool,
}

impl Windows {
    /// Takes the use of a member's windows from its report, which confirms the grant `applied`.
    pub(super) fn note(&mut self, slot: &mut Slot, uses: Vec<GroupUse>, applied: u64) {
        let was_settled = slot.is_settled();
        slot.applied = applied;
        self.touched |= slot.uses != uses || slot.is_settled() != was_settled;
        slot.uses = uses;
    }

    /// Notes that a member has begun to live.
    pub(super) fn touch(&mut self) {
        self.touched = true;
    }

    /// A member is gone, or its process is. Its windows are free.
    pub(super) fn gone(&mut self, slot: &mut Slot) {
        let uses = std::mem::take(&mut slot.uses);
        slot.factors.clear();
        if uses.len() == self.totals.len() {
            // A member that lies and comes back again and again must not make the sum overflow.
            let left = |total: &Total, used: &GroupUse| (total.left + u64::from(used.base)).min(u64::from(u32::MAX));
            self.totals.iter_mut().zip(&uses).for_each(|(total, used)| total.left = left(total, used));
            self.touched = true;
        }
    }

    /// When [`Self::divide`] has something to do.
    pub(super) fn due(&self, interval: Duration) -> Time {
        let Some(last) = self.last else { return if self.touched { Time::ZERO } else { Time::NEVER } };
        let turns = self.totals.iter().filter_map(|total| total.turns_at).min().unwrap_or(Time::NEVER);
        if self.touched { last + interval } else { turns.max(last + interval) }
    }

    /// Sums the use of all windows, and moves windows to the members that need them.
    pub(super) fn divide(&mut self, now: Time, interval: Duration, site: &Site, slots: &mut [Slot]) {
        self.last = Some(now);
        self.touched = false;
        let live = |slot: &Slot| slot.phase == Phase::Live && !slot.uses.is_empty();
        // Members with other groups have another policy for a moment.
        let Some(groups) = slots.iter().find(|slot| live(slot)).map(|slot| slot.uses.len()) else {
            self.totals.clear();
            return;
        };
        self.totals.resize(groups, Total::default());
        let live = |slot: &Slot| live(slot) && slot.uses.len() == groups;
        for (group, total) in self.totals.iter_mut().enumerate() {
            let of = |figure: fn(&GroupUse) -> u32| -> u64 {
                slots.iter().filter(|slot| live(slot)).map(|slot| u64::from(figure(&slot.uses[group]))).sum()
            };
            (total.base, total.in_flight) = (of(|used| used.base), of(|used| used.in_flight));
            (total.answers, total.work) = (of(|used| used.answers), of(|used| used.work));
        }
        let mut turned = false;
        for total in &mut self.totals {
            turned |= total.turn(now);
        }
        let rounds = self.last_round.is_none_or(|last| now >= last + ROUNDS * interval);
        for group in (0..groups).filter(|_| rounds) {
            // One that has not confirmed its last factor may have another window than it has reported.
            let settled: Vec<usize> =
                (0..slots.len()).filter(|member| live(&slots[*member]) && slots[*member].is_settled()).collect();
            let uses: Vec<GroupUse> = settled.iter().map(|member| slots[*member].uses[group]).collect();
            let total = &self.totals[group];
            let Some(targets) = division(&uses, total.left, need(site, total.stay())) else { continue };
            self.totals[group].left = 0;
            self.last_round = Some(now);
            for ((member, used), target) in settled.iter().zip(&uses).zip(targets) {
                let factor = target * MILLIONTHS / u64::from(used.base).max(1);
                slots[*member].factors.resize(groups, MILLIONTHS as u32);
                slots[*member].factors[group] = u32::try_from(factor).unwrap_or(u32::MAX);
                slots[*member].urgent = true;
            }
        }
        for slot in slots.iter_mut().filter(|slot| live(slot)) {
            slot.told.resize(groups, 0);
            let told = slot.told.iter().zip(&slot.uses).zip(&self.totals);
            slot.urgent |= turned
                || told.into_iter().any(|((told, used), total)| {
                    let others = total.in_flight.saturating_sub(u64::from(used.in_flight));
                    others.abs_diff(u64::from(*told)) > REQUEST.max(others / 8)
                });
        }
    }

    /// Returns the shares for a member's next grant, which has the slot's sequence number.
    pub(super) fn told(&self, slot: &mut Slot) -> Vec<GroupShare> {
        let groups = self.totals.len();
        if slot.uses.len() != groups {
            return Vec::new();
        }
        let factors = std::mem::take(&mut slot.factors);
        if !factors.is_empty() {
            slot.moved_in = slot.sequence;
        }
        let of = |(group, (used, total)): (usize, (&GroupUse, &Total))| {
            let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
            let base = u64::from(used.base);
            GroupShare {
                others: small(total.in_flight.saturating_sub(u64::from(used.in_flight))),
                answers: small(total.answers.saturating_sub(u64::from(used.answers))),
                work: small(total.work.saturating_sub(u64::from(used.work))),
                high: total.high,
                part: small(base * MILLIONTHS / total.base.max(base).max(1)),
                factor: factors.get(group).copied().unwrap_or(MILLIONTHS as u32),
            }
        };
        let shares: Vec<GroupShare> = slot.uses.iter().zip(&self.totals).enumerate().map(of).collect();
        slot.told = shares.iter().map(|share| share.others).collect();
        shares
    }
}

/// Requests on the nodes, in thousandths, that all guarantees of the site need if each stays for `stay`.
fn need(site: &Site, stay: Duration) -> u64 {
    let guaranteed: u64 = (0..site.budgets()).map(|budget| site.total(budget)).fold(0, u64::saturating_add);
    // Millionths a second, and microseconds.
    u64::try_from(u128::from(guaranteed) * stay.as_micros() / 1_000_000_000).unwrap_or(u64::MAX)
}

/// The windows that members are to have, or `None` if the present ones will do. Owed requests come first, and waiting
/// ones of classes with a guarantee up to the `need` of all guarantees: a share follows them later than they come. The
/// rest is divided among surplus by max-min, and the part that no member needs is divided evenly. `left` is beyond the
/// present windows.
fn division(uses: &[GroupUse], left: u64, need: u64) -> Option<Vec<u64>> {
    if uses.is_empty() {
        return None;
    }
    let all = left + uses.iter().map(|used| u64::from(used.base)).sum::<u64>();
    let claim = |used: &GroupUse| u64::from(used.owed.max(used.least)) + u64::from(used.claiming).min(need);
    let owed: Vec<u64> = uses.iter().map(claim).collect();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    fill(all, &owed, &mut first);
    let after = all.saturating_sub(first.iter().sum());
    let wanted = |used: &GroupUse| (u64::from(used.in_flight) + u64::from(used.waiting)).saturating_sub(claim(used));
    let wants: Vec<u64> = uses.iter().map(wanted).collect();
    fill(after, &wants, &mut rest);
    let even = after.saturating_sub(rest.iter().sum()) / uses.len() as u64;
    let targets: Vec<u64> = first.iter().zip(rest).map(|(owed, rest)| (owed + rest + even).max(REQUEST)).collect();
    let lacks = uses.iter().zip(&targets).any(|(used, target)| {
        let base = u64::from(used.base);
        used.waiting > 0 && *target > base + (base / WORTH).max(REQUEST)
    });
    (lacks || left > 0).then_some(targets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn used(base: u32, owed: u32, surplus: u32, waiting: u32) -> GroupUse {
        GroupUse { base, least: 1_000, in_flight: owed + surplus, owed, waiting, ..GroupUse::default() }
    }

    #[test]
    fn windows_move_to_those_who_hold_requests_back_and_their_sum_stays() {
        // The second member has the window of a load that has moved to the first one.
        let targets = division(&[used(2_000, 1_000, 1_000, 9_000), used(10_000, 0, 1_000, 0)], 0, 0).unwrap();
        assert_eq!(targets, [11_000, 1_000]);
        // Both want more than there is: owed requests first, the rest evenly.
        let targets = division(&[used(2_000, 4_000, 1_000, 9_000), used(10_000, 1_000, 9_000, 9_000)], 0, 0).unwrap();
        assert_eq!(targets, [7_500, 4_500]);
    }

    #[test]
    fn windows_follow_waiting_requests_of_guaranteed_classes_before_surplus() {
        let claims = |used: GroupUse, claiming| GroupUse { claiming, ..used };
        // All hold surplus back, and the guaranteed class has just come to the first one.
        let first = used(2_000, 0, 2_000, 100_000);
        let others = used(2_000, 0, 2_000, 100_000);
        assert_eq!(division(&[first, others, others, others], 0, 5_000), None);
        let targets = division(&[claims(first, 10_000), others, others, others], 0, 4_000).unwrap();
        assert_eq!(targets, [5_000, 1_000, 1_000, 1_000]);
        // More than all guarantees need is surplus.
        let targets = division(&[claims(first, 90_000), others, others, others], 0, 2_000).unwrap();
        assert_eq!(targets, [3_500, 1_500, 1_500, 1_500]);
    }

    #[test]
    fn the_need_is_that_of_all_guarantees() {
        let site = Settings::new(2, vec![60_000_000, 40_000_000]).check().unwrap();
        assert_eq!(need(&site, Duration::from_millis(50)), 5_000);
    }

    #[test]
    fn nothing_moves_without_need_or_for_a_trifle() {
        assert_eq!(division(&[used(2_000, 1_000, 1_000, 0), used(10_000, 0, 1_000, 0)], 0, 0), None);
        assert_eq!(division(&[used(5_000, 0, 5_000, 9_000), used(6_000, 0, 6_000, 9_000)], 0, 0), None);
        assert_eq!(division(&[], 5_000, 0), None);
    }

    #[test]
    fn a_window_that_was_left_behind_is_taken_over() {
        let targets = division(&[used(4_000, 0, 1_000, 0), used(4_000, 0, 1_000, 0)], 8_000, 0).unwrap();
        assert_eq!(targets, [8_000, 8_000]);
    }
}
