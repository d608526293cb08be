//! Messages for people about changes: of the elected gateway, of stages, and of other processes that answer or do not.
//!
//! Senders of reports cause some of them, so each has a limit.

use std::time::Duration;

use weirgate_engine::Time;
use weirgate_http_server::{Lines, Rate};
use weirgate_log::{Level, Message};
use weirgate_site::Stage;
use weirgate_spanned_yaml::unit::span_text;
use weirgate_wire::admin::EventKind;

use crate::state::{Shared, State};

/// Number of failures after which people are told. One or two can be a pause or a restart.
const MISSED: u32 = 3;

/// Answers of another process.
#[derive(Debug, Default)]
pub(crate) struct Health {
    pub(crate) heard: Option<Time>,
    pub(crate) error: Option<String>,
    missed: u32,
}

impl Health {
    /// Counts an answer. Returns whether people know of failures.
    pub(crate) fn hears(&mut self, now: Time) -> bool {
        self.heard = Some(now);
        self.error = None;
        std::mem::take(&mut self.missed) >= MISSED
    }

    /// Counts a failure. Returns whether people are to be told.
    pub(crate) fn misses(&mut self, why: String) -> bool {
        self.error = Some(why);
        self.missed = self.missed.saturating_add(1);
        self.missed == MISSED
    }

    /// Whether so many failures came one after the other that it is time to connect anew.
    pub(crate) fn is_lost(&self) -> bool {
        self.missed > 0 && self.missed.is_multiple_of(MISSED)
    }
}

/// Has a message written. Not on this thread: a slow reader of standard error would delay reports.
pub(crate) fn say(level: Level, text: String) {
    weirgate_log::pass(Message::new(level, text));
}

/// Limits of one sender: a gateway by its name, or all strangers.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) reports: Rate,
    /// Questions for what was learned.
    pub(crate) questions: Rate,
    lines: Lines,
}

impl Sender {
    /// Reports of an honest gateway are at least a `pace` apart. Twice as many may arrive, because the network can hold
    /// some back. It asks for what was learned once a second at most. All gateways of a machine without certificates
    /// are one sender.
    pub(crate) fn new(pace: Duration) -> Sender {
        let rate = |per_second| Rate::new(per_second, Duration::ZERO);
        Sender { reports: rate(2.0 / pace.as_secs_f64()), questions: rate(2.0), lines: Lines::new(Duration::ZERO) }
    }

    /// Writes a warning about it, unless there were too many.
    pub(crate) fn warn(&mut self, now: Time, text: String) {
        if let Some(line) = self.lines.limit(text, now.since(Time::ZERO)) {
            say(Level::Warning, line);
        }
    }
}

/// Tells of a change of the stage.
pub(crate) fn stage(shared: &Shared, state: &mut State, now: Time) {
    let stage = state.member.stage(now);
    let before = state.told.replace(stage);
    if before == Some(stage) {
        return;
    }
    let settings = shared.settings.agreed.settings();
    let (kind, text) = match stage {
        Stage::Granted => {
            let by = state.elected.as_ref().map_or("an elected gateway", |elected| &elected.name);
            (EventKind::SharesGranted, format!("site: {by} grants this gateway its shares of the guarantees"))
        }
        Stage::Safe => (
            EventKind::SharesSafe,
            format!(
                "site: no shares were granted for {}. Until {} this gateway keeps {} % of the last ones",
                span_text(settings.lease),
                span_text(settings.safe_for),
                f64::from(settings.safe) / 1e4
            ),
        ),
        // A gateway that starts has nothing to say yet, and one that leaves no longer.
        Stage::Minimum if before.is_none() || state.ending.is_some() => return,
        Stage::Minimum => (
            EventKind::SharesMinimum,
            "site: this gateway keeps the minimum of each guarantee until it is granted more".into(),
        ),
    };
    shared.floors.tell(kind, text);
}
