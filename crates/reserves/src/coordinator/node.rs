//! State of a node in the coordinator, and the node's row of the problem.

use std::time::Duration;

use weirgate_wire::{Measured, Trigger};

/// How long a repeated question of a node about a class is ignored: eight windows. Shares that chase one
/// another do so from window to window. For a class with work that comes and goes this fast, a mean share
/// works better.
pub const MEMORY: Duration = Duration::from_secs(2);

/// Maximum number of questions remembered per node. An agent asks at most once a window, which is eight times
/// within [`MEMORY`].
const MAX_HEARD: usize = 32;

/// Uses of a class count as equal if they differ by less than this: as a part of the larger one (Sec. 5.4's
/// measure of a significant fall), and in percent of the node (half the minimum share).
const DIFFERS: (f64, f64) = (0.2, 0.5);

/// State of a node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub(super) connected: bool,
    /// Counts connects and disconnects, which tells one connection from the next.
    pub(super) connection: u64,
    /// The latest report on this connection and its time.
    pub(super) last: Option<(Duration, Measured)>,
    /// The run of the latest shares handed to this connection, and the time.
    pub(super) handed: Option<(u64, Duration)>,
    /// The latest shares given to the node.
    pub(super) given: Option<Vec<f64>>,
    /// Whether the node was in the last run, on this connection.
    pub(super) member: bool,
    /// Questions accepted within [`MEMORY`]: the time, the class, and its use.
    pub(super) heard: Vec<(Duration, usize, f64)>,
}

impl Node {
    /// Returns whether the node has not asked the same within [`MEMORY`]. A new question is remembered.
    pub(super) fn is_news(&mut self, now: Duration, measured: &Measured, trigger: Trigger) -> bool {
        let class = trigger.class();
        let Some(&used) = measured.usage.get(class) else { return false };
        let (part, points) = DIFFERS;
        let same = |before: f64| (used - before).abs() <= points.max(part * used.max(before));
        self.heard.retain(|&(at, _, _)| now < at + MEMORY);
        let news = !self.heard.iter().any(|&(_, other, before)| other == class && same(before));
        if news && self.heard.len() < MAX_HEARD {
            self.heard.push((now, class, used));
        }
        news
    }

    /// Returns whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Returns the latest report on this connection and its time.
    pub fn last(&self) -> Option<&(Duration, Measured)> {
        self.last.as_ref()
    }

    /// Returns the latest shares given on this connection, in percent of the node.
    pub fn given(&self) -> Option<&[f64]> {
        self.given.as_deref()
    }
}

/// Returns a node's row of the problem. A class that is not on the node uses nothing, and the sum is at most
/// the node.
pub(super) fn row(measured: &Measured, placed: &[bool]) -> (Vec<f64>, Vec<bool>) {
    let mut usage = percentages(&measured.usage, placed.len());
    for (used, _) in usage.iter_mut().zip(placed).filter(|(_, there)| !**there) {
        *used = 0.0;
    }
    // Counters are read one after the other, which can make a full node look slightly more than full.
    let sum: f64 = usage.iter().sum();
    if sum > 100.0 {
        usage.iter_mut().for_each(|used| *used *= 100.0 / sum);
    }
    let sink = |class: usize| placed[class] && measured.sink.get(class).copied().unwrap_or(false);
    let sink = (0..placed.len()).map(sink).collect();
    (usage, sink)
}

/// Returns exactly `classes` percentages, whatever the node sent.
pub(super) fn percentages(figures: &[f64], classes: usize) -> Vec<f64> {
    let sound = |figure: &f64| if figure.is_nan() { 0.0 } else { figure.clamp(0.0, 100.0) };
    (0..classes).map(|class| figures.get(class).map_or(0.0, sound)).collect()
}

/// Returns a node's shares after those of absent classes have gone to the other classes in proportion.
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
