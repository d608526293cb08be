//! The agreement of all processes of a site before they speak: budgets, number of members, times.
//!
//! Every constant here is a default that the policy may change, or a bound.

use core::fmt;
use core::time::Duration;

/// Maximum number of members. With 1,000 restless classes a coordinator of this many takes two
/// thirds of a core (ADR 23).
pub const MAX_MEMBERS: usize = 1_000;

/// Maximum number of budgets: the floors of 1,000 classes.
pub const MAX_BUDGETS: usize = 1_000;

/// Maximum number of groups of nodes whose windows messages carry. Members with more share no windows.
pub const MAX_GROUPS: usize = 64;

/// Maximum number of ejected nodes that a message names, and the longest name in bytes, so that the names are an eighth
/// of the longest message. Gateways find further ones by their own failures.
pub const MAX_EJECTED: usize = 64;
pub(crate) const MAX_NODE_NAME: usize = 128;

/// Largest budget: a thousand million requests a second, in millionths. Sums over all members fit 64 bits.
pub const MAX_BUDGET: u64 = 1_000_000_000_000_000;

/// Largest safe share, in millionths of the granted one. With the minimum shares, a hundredth, it makes 80 % of the
/// budget.
pub const MAX_SAFE: u32 = 790_000;

/// All minimum shares together are this part of a budget. It is what a coordinator cannot move, so it bounds the
/// error of a floor whose clients reach one gateway only.
const MINIMA: u64 = 100;

/// All pieces together are this part of a budget: a tenth is lent to members beyond their demand, so that a rise of one
/// piece waits for nothing.
const PIECES: u64 = 10;

/// Members × budgets beyond which messages are less frequent. More of them take a part of the coordinator's core
/// (ADR 23). With fewer, a share that moves is lost for a shorter time.
const LARGE: usize = 10_000;

/// The agreement of a site's processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Number of members, present or not. Members have indices below it.
    pub members: usize,
    /// The budgets, each in a unit of its own, at least 100 for each member.
    pub budgets: Vec<u64>,
    /// How long a member may use a granted share after it has sent the report that was answered.
    pub lease: Duration,
    /// Part of the granted share that a member keeps when its lease has ended, in millionths, at most [`MAX_SAFE`].
    pub safe: u32,
    /// How long the safe share lasts, from the same moment as the lease. Equal to the lease: no safe share.
    pub safe_for: Duration,
    /// How long a coordinator may act after it has asked for the proof that it is the elected one.
    pub proof: Duration,
    /// How long a coordinator keeps a report if it has no news for the member. Also the time between proofs of life.
    pub hold: Duration,
    /// Minimum time between two reports of a member, and between two allocations of the coordinator.
    pub pace: Duration,
    /// How much faster one clock may run than another one, in percent. Leases are counted for longer by this.
    pub margin_percent: u32,
    /// Part of each budget that is never granted, in millionths. Zero, because ADR 23 found it to cost more than it
    /// brings.
    pub reserve: u32,
}

impl Settings {
    /// The defaults for `members` members and these budgets.
    ///
    /// The lease outlives the election of another coordinator: at least four seconds of it are left at any time. The
    /// margin covers two clocks of which chrony slews one forward and one back at its default limit of 8.3 %.
    pub fn new(members: usize, budgets: Vec<u64>) -> Settings {
        let restless = members * budgets.len();
        Settings {
            members,
            budgets,
            lease: Duration::from_secs(5),
            safe: 500_000,
            safe_for: Duration::from_secs(30),
            proof: Duration::from_secs(1),
            hold: Duration::from_millis(500),
            pace: if restless > LARGE { Duration::from_millis(20) } else { Duration::from_millis(5) },
            margin_percent: 20,
            reserve: 0,
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The first setting that is out of its bounds.
    pub fn check(self) -> Result<Site, InvalidSettings> {
        let invalid = |why: String| Err(InvalidSettings(why));
        if self.members == 0 || self.members > MAX_MEMBERS {
            return invalid(format!("{} members; 1 to {MAX_MEMBERS} are possible", self.members));
        }
        if self.budgets.len() > MAX_BUDGETS {
            return invalid(format!("{} budgets; at most {MAX_BUDGETS} are possible", self.budgets.len()));
        }
        let least = MINIMA * self.members as u64;
        if let Some(budget) = self.budgets.iter().find(|budget| **budget < least || **budget > MAX_BUDGET) {
            return invalid(format!("a budget of {budget}; {least} to {MAX_BUDGET} are possible"));
        }
        if self.safe > MAX_SAFE || self.reserve > 500_000 {
            return invalid(format!(
                "a safe share of {} and a reserve of {} millionths; at most {MAX_SAFE} and 500000 are possible",
                self.safe, self.reserve
            ));
        }
        if self.margin_percent > 100 {
            return invalid(format!("a margin of {} %; at most 100 % are possible", self.margin_percent));
        }
        if self.pace.is_zero() || self.hold < self.pace || self.lease < self.hold * 2 || self.safe_for < self.lease {
            return invalid("times must obey 0 < pace ≤ hold ≤ half the lease, and lease ≤ safe_for".into());
        }
        if self.proof.is_zero() || self.safe_for > Duration::from_secs(86_400) || self.proof > self.safe_for {
            return invalid("times must obey 0 < proof ≤ safe_for ≤ one day".into());
        }
        Ok(Site(self))
    }
}

/// A setting that is out of its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSettings(String);

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for InvalidSettings {}

/// Checked [`Settings`], with the values that follow from them. Members and coordinator of a site must have equal ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site(Settings);

impl Site {
    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.0
    }

    /// Number of budgets.
    pub fn budgets(&self) -> usize {
        self.0.budgets.len()
    }

    /// The whole of a budget.
    ///
    /// # Panics
    /// If there is no such budget, as all methods here.
    pub fn total(&self, budget: usize) -> u64 {
        self.0.budgets[budget]
    }

    /// Minimum time between two messages with windows only. They move all the time, and half cycles of windows last a
    /// tenth of a second or longer.
    pub(crate) fn windows_pace(&self) -> Duration {
        10 * self.0.pace
    }

    /// Time for which a member believes what it has heard of the windows of the others. An answer takes up to `hold`.
    /// If it is lost, the next one takes two and a half of it, and a busy machine adds to that.
    #[must_use]
    pub fn windows_last(&self) -> Duration {
        4 * self.0.hold
    }

    /// The share that every member has at all times.
    pub fn minimum(&self, budget: usize) -> u64 {
        self.total(budget) / MINIMA / self.0.members as u64
    }

    /// The amount that a member is lent beyond its demand.
    pub fn piece(&self, budget: usize) -> u64 {
        (self.total(budget) / PIECES / self.0.members as u64).max(1)
    }

    /// The least change that is worth a message of its own: a quarter of a piece, since pieces are headroom.
    pub(crate) fn worth_telling(&self, budget: usize) -> u64 {
        (self.piece(budget) / 4).max(1)
    }

    /// The part of a budget that the coordinator wants back from members without use for it before anyone needs it.
    pub fn held_back(&self, budget: usize) -> u64 {
        self.total(budget) / PIECES
    }

    /// The part of a budget that is never granted.
    pub(crate) fn reserve(&self, budget: usize) -> u64 {
        millionths(self.total(budget), self.0.reserve)
    }

    /// The rest of a granted `share` when its lease has ended: the safe share.
    pub fn safe(&self, budget: usize, share: u64) -> u64 {
        self.minimum(budget).max(self.safe_part(share))
    }

    /// The safe part of any amount, without the minimum.
    pub(crate) fn safe_part(&self, amount: u64) -> u64 {
        if self.0.safe_for == self.0.lease { 0 } else { millionths(amount, self.0.safe) }
    }

    /// How long a process must count a `span` of another process's clock on its own.
    #[must_use]
    pub fn with_margin(&self, span: Duration) -> Duration {
        span * (100 + self.0.margin_percent) / 100
    }
}

/// `part` millionths of `amount`, rounded down.
fn millionths(amount: u64, part: u32) -> u64 {
    (u128::from(amount) * u128::from(part) / 1_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_sound_and_bounds_are_checked() {
        let settings = Settings::new(4, vec![800_000_000]);
        let site = settings.clone().check().unwrap();
        assert_eq!(site.minimum(0), 2_000_000);
        assert_eq!(site.piece(0), 20_000_000);
        assert_eq!(site.safe(0, 560_000_000), 280_000_000);
        assert_eq!(site.safe(0, 1_000_000), 2_000_000);
        assert_eq!(site.with_margin(Duration::from_secs(5)), Duration::from_secs(6));
        let broken: [fn(&mut Settings); 9] = [
            |s| s.members = 0,
            |s| s.members = MAX_MEMBERS + 1,
            |s| s.budgets = vec![1000; MAX_BUDGETS + 1],
            |s| s.budgets = vec![399],
            |s| s.budgets = vec![MAX_BUDGET + 1],
            |s| s.safe = MAX_SAFE + 1,
            |s| s.margin_percent = 101,
            |s| s.hold = s.lease,
            |s| s.safe_for = s.lease / 2,
        ];
        for change in broken {
            let mut settings = settings.clone();
            change(&mut settings);
            assert!(settings.check().is_err());
        }
    }

    #[test]
    fn all_safe_shares_together_stay_within_four_fifths() {
        let mut settings = Settings::new(10, vec![1_000_000]);
        settings.safe = MAX_SAFE;
        let site = settings.check().unwrap();
        // The whole budget at one member is the worst case: the others fall to the minimum.
        let one = site.safe(0, 1_000_000 - 9 * site.minimum(0));
        assert!(one + 9 * site.minimum(0) <= 800_000);
        assert!(10 * site.safe(0, 100_000) <= 800_000);
    }

    #[test]
    fn a_safe_share_of_no_time_is_the_minimum() {
        let mut settings = Settings::new(2, vec![1_000_000]);
        settings.safe_for = settings.lease;
        assert_eq!(settings.check().unwrap().safe(0, 900_000), 5_000);
    }
}
