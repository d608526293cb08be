//! The coordinator's account of one member: its process, its messages, its lease.

use weirgate_engine::Time;

use crate::message::GroupUse;

weirgate_engine::named! {
    /// The coordinator's knowledge of a member.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Phase {
        /// It has not stated its shares, or its lease has ended.
        Unknown = "unknown",
        /// It was asked for its shares.
        Asked = "asked",
        /// It holds its granted shares.
        Live = "live",
        /// It has left.
        Left = "left",
    }
}

/// The record of a member that a coordinator keeps for its successor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Record {
    /// It was never granted anything, or has given everything back.
    #[default]
    Nothing,
    /// It may hold grants, and no other member uses any part of them.
    Granted,
    /// Its lease has ended, and others may use the part that it held beyond its safe share.
    Lapsed,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) phase: Phase,
    /// It may hold grants of a predecessor, which the table counts for all silent members together.
    pub(super) silent: bool,
    /// The record that is kept of it.
    pub(super) record: Record,
    /// Number of records that are to be kept, and are not kept yet.
    pub(super) unrecorded: u32,
    /// Its lease has ended, and its shares are counted until that is recorded.
    pub(super) falling: bool,
    pub(super) incarnation: u64,
    /// Number of the last report, when it arrived, and number of the last answered one.
    pub(super) number: u64,
    pub(super) received: Time,
    pub(super) answered: u64,
    /// When the first report arrived that is not answered.
    pub(super) waits_since: Time,
    /// Sequence number of the last message to it, and of the last grant that it has confirmed.
    pub(super) sequence: u64,
    pub(super) acked: u64,
    /// When the report arrived that the last grant answers.
    pub(super) granted_at: Time,
    /// When it last confirmed a grant, or stated its shares.
    pub(super) confirmed_at: Time,
    /// Until then it may hold its granted shares, and until then safe shares. [`Time::NEVER`]: it holds the minimum,
    /// which does not end.
    pub(super) level_until: Time,
    pub(super) tail_until: Time,
    /// Its next grant names every budget.
    pub(super) fresh: bool,
    /// It has news to hear at once.
    pub(super) urgent: bool,
    /// Budgets of which it has not confirmed the share that it is to have.
    pub(super) open: Vec<u32>,
    /// Use of its windows in the last report, by group.
    pub(super) uses: Vec<GroupUse>,
    /// Nodes that it has ejected, by its last report.
    pub(super) ejected: Vec<String>,
    /// Requests in flight of the others that it was told of.
    pub(super) told: Vec<u32>,
    /// Factors that it is to be told, or none.
    pub(super) factors: Vec<u32>,
    /// Sequence number of the last grant with factors, and of the one that its last report confirms.
    pub(super) moved_in: u64,
    pub(super) applied: u64,
}

impl Slot {
    pub(super) fn new(record: Record) -> Slot {
        Slot {
            phase: Phase::Unknown,
            silent: record != Record::Nothing,
            record,
            unrecorded: 0,
            falling: false,
            incarnation: 0,
            number: 0,
            received: Time::ZERO,
            answered: 0,
            waits_since: Time::ZERO,
            sequence: 0,
            acked: 0,
            granted_at: Time::ZERO,
            confirmed_at: Time::ZERO,
            level_until: Time::NEVER,
            tail_until: Time::NEVER,
            fresh: false,
            urgent: false,
            open: Vec::new(),
            uses: Vec::new(),
            ejected: Vec::new(),
            told: Vec::new(),
            factors: Vec::new(),
            moved_in: 0,
            applied: 0,
        }
    }

    /// A later process speaks for the member. What the earlier one holds is counted until the new one has stated what
    /// it holds, because messages of the earlier one may still be under way.
    pub(super) fn restart(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
        self.phase = Phase::Unknown;
        (self.number, self.answered) = (0, 0);
        (self.fresh, self.urgent) = (false, false);
        self.told.clear();
        self.applied = 0;
    }

    /// It holds the minimum.
    pub(super) fn reset_until(&mut self) {
        (self.level_until, self.tail_until) = (Time::NEVER, Time::NEVER);
    }

    /// Whether its windows are those of its last report.
    pub(super) fn is_settled(&self) -> bool {
        self.factors.is_empty() && self.applied >= self.moved_in
    }
}
