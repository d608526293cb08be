//! A node as the coordinator knows it, and its row of the problem.

use std::time::Duration;

use crate::tracker::{Measured, Trigger};

/// How long a node that has asked about a class is not heard about the same again: eight windows. Shares that chase one
/// another do so from window to window; a class whose work comes and goes that fast is better served by a mean.
pub const MEMORY: Duration = Duration::from_secs(2);

/// Most questions of a node that are remembered: an agent has one a window, which are eight in that time.
const MOST_HEARD: usize = 32;

/// Uses of a class that differ by less are the same: as a part of the larger one (Sec. 5.4's measure of a significant
/// fall), and in percent of the node (half the least share).
const DIFFERS: (f64, f64) = (0.2, 0.5);

/// What is known of a node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Whether there is a connection.
    pub(super) connected: bool,
    /// Counts comings and goings, so that one connection is not taken for the next.
    pub(super) connection: u64,
    /// When it reported last on this connection, and what.
    pub(super) last: Option<(Duration, Measured)>,
    /// The run whose shares were handed to this connection last, and when.
    pub(super) handed: Option<(u64, Duration)>,
    /// The shares that it was given last.
    pub(super) given: Option<Vec<f64>>,
    /// It was in the last run, on this connection.
    pub(super) member: bool,
    /// What the node was heard about within [`MEMORY`]: when, the class, and what it used.
    pub(super) heard: Vec<(Duration, usize, f64)>,
}

impl Node {
    /// Whether the node has not asked the same lately. If so, it is heard, and remembered.
    pub(super) fn is_news(&mut self, now: Duration, measured: &Measured, trigger: Trigger) -> bool {
        let (Trigger::SinkBegan { class } | Trigger::SinkEnded { class } | Trigger::Fell { class }) = trigger;
        let Some(&used) = measured.usage.get(class) else { return false };
        let (part, points) = DIFFERS;
        let same = |before: f64| (used - before).abs() <= points.max(part * used.max(before));
        self.heard.retain(|&(at, _, _)| now < at + MEMORY);
        let news = !self.heard.iter().any(|&(_, other, before)| other == class && same(before));
        if news && self.heard.len() < MOST_HEARD {
            self.heard.push((now, class, used));
        }
        news
    }

    /// Whether there is a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// When it reported last on this connection, and what.
    #[must_use]
    pub fn last(&self) -> Option<&(Duration, Measured)> {
        self.last.as_ref()
    }

    /// The shares that it was given last on this connection, in percent of the node.
    #[must_use]
    pub fn given(&self) -> Option<&[f64]> {
        self.given.as_deref()
    }
}

/// A node's row of the problem: what is not there uses nothing, and all together use the node at most.
pub(super) fn row(measured: &Measured, placed: &[bool]) -> (Vec<f64>, Vec<bool>) {
    let mut usage = percentages(&measured.usage, placed.len());
    for (used, _) in usage.iter_mut().zip(placed).filter(|(_, there)| !**there) {
        *used = 0.0;
    }
    // Counters that are read one after the other can make a full node look a little more than full.
    let sum: f64 = usage.iter().sum();
    if sum > 100.0 {
        usage.iter_mut().for_each(|used| *used *= 100.0 / sum);
    }
    let sink = |class: usize| placed[class] && measured.sink.get(class).copied().unwrap_or(false);
    let sink = (0..placed.len()).map(sink).collect();
    (usage, sink)
}

/// `classes` percentages, whatever was sent.
pub(super) fn percentages(figures: &[f64], classes: usize) -> Vec<f64> {
    let sound = |figure: &f64| if figure.is_nan() { 0.0 } else { figure.clamp(0.0, 100.0) };
    (0..classes).map(|class| figures.get(class).map_or(0.0, sound)).collect()
}

/// A node's shares: those of classes that it does not have go to the others in proportion.
pub(super) fn on_node(mut shares: Vec<f64>, placed: &[bool]) -> Vec<f64> {
    let sum: f64 = shares.iter().sum();
    for (share, _) in shares.iter_mut().zip(placed).filter(|(_, there)| !**there) {
        *share = 0.0;
    }
    let left: f64 = shares.iter().sum();
    if left > 0.0 && left < sum {
        shares.iter_mut().for_each(|share| *share *= sum / left);
    }
    shares
}
