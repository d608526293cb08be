//! The scenarios: busy classes per node, the coordinator, and the bands for the results.

use std::time::Duration;

use super::NODES;

/// One scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name in directories and on the command line.
    pub name: &'static str,
    /// Its subject.
    pub title: &'static str,
    /// Its figures in the paper: one for a node or class, and one for the cluster.
    pub figures: [&'static str; 2],
    /// Its duration.
    pub length: Duration,
    /// The coordinator. Without one, shares stay as they are.
    pub coordinator: Option<Coordinator>,
    /// Whether a class (from 0) is always busy on a node (from 0).
    pub busy: fn(usize, usize) -> bool,
    /// Duration of a request of the first class, which has one request at a time and sends each to another node.
    pub request: Option<Duration>,
    /// The class of which the first figure shows the use of each node. If `None`, it shows all classes on
    /// the first node.
    pub shown: Option<usize>,
    /// The bands in which the results must lie.
    pub bands: &'static [Band],
}

/// The times at which a coordinator decides.
#[derive(Clone, Copy, Debug)]
pub struct Coordinator {
    /// Delay of its start after everything else.
    pub from: Duration,
    /// Interval between its decisions.
    pub every: Option<Duration>,
    /// Whether it decides when a node asks.
    pub on_demand: bool,
}

/// A range for a result.
#[derive(Clone, Copy, Debug)]
pub struct Band {
    /// The judged result.
    pub judged: Judged,
    /// The paper's value.
    pub paper: &'static str,
    /// Minimum of our value.
    pub min: f64,
    /// Maximum of our value.
    pub max: f64,
}

/// A judged result, from an instant until the end.
#[derive(Clone, Copy, Debug)]
pub enum Judged {
    /// A class's part of all nodes, in percent.
    Class(usize, Duration),
    /// The same for each class but the first, as minimum and maximum over them.
    Others(Duration),
    /// The median time in seconds until a request has its share on its node.
    Relocation,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Time until newly written shares and newly started processes have settled.
const SETTLED: Duration = seconds(2);

/// The paper's coordinator starts after 8 s (Sec. 5.3).
const LATE: Duration = seconds(8);

/// Instant from which the shares of a late coordinator are stable. A run moves a class's shares by at most five
/// points and comes every five seconds, but the first run comes at once and moves them most of the way.
const LATE_SETTLED: Duration = seconds(14);

/// The paper's experiments.
pub const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "balanced",
        title: "All classes are busy on all nodes, shares are fixed",
        figures: ["Fig. 4", "Fig. 5"],
        length: seconds(20),
        coordinator: None,
        busy: |_, _| true,
        request: None,
        shown: None,
        bands: &[
            Band { judged: Judged::Class(0, SETTLED), paper: "20", min: 19.5, max: 20.5 },
            Band { judged: Judged::Others(SETTLED), paper: "20", min: 19.5, max: 20.5 },
        ],
    },
    Scenario {
        name: "geographic",
        title: "Class 1 is busy on nodes 1 and 2 only, shares are fixed",
        figures: ["Fig. 6", "Fig. 7"],
        length: seconds(20),
        coordinator: None,
        busy: |node, class| class > 0 || node < NODES / 2,
        request: None,
        shown: Some(1),
        bands: &[
            Band { judged: Judged::Class(0, SETTLED), paper: "10", min: 9.5, max: 10.5 },
            Band { judged: Judged::Others(SETTLED), paper: "nearly 23", min: 22.0, max: 23.0 },
        ],
    },
    Scenario {
        name: "geographic-managed",
        title: "The same, but a coordinator starts after 8 s and decides every 5 s",
        figures: ["Fig. 8", "Fig. 9"],
        length: seconds(44),
        coordinator: Some(Coordinator { from: LATE, every: Some(seconds(5)), on_demand: false }),
        busy: |node, class| class > 0 || node < NODES / 2,
        request: None,
        shown: Some(1),
        bands: &[
            Band { judged: Judged::Class(0, LATE_SETTLED), paper: "20", min: 18.5, max: 20.5 },
            Band { judged: Judged::Others(LATE_SETTLED), paper: "20", min: 19.5, max: 20.6 },
        ],
    },
    Scenario {
        name: "sparse",
        title: "Class 1 has one request of 10 s at a time, each on another node, shares are fixed",
        figures: ["Fig. 10", "Fig. 11"],
        length: seconds(50),
        coordinator: None,
        busy: |_, class| class > 0,
        request: Some(seconds(10)),
        shown: Some(0),
        bands: &[
            Band { judged: Judged::Class(0, Duration::ZERO), paper: "5", min: 4.7, max: 5.3 },
            Band { judged: Judged::Others(Duration::ZERO), paper: "nearly 24", min: 23.0, max: 24.0 },
        ],
    },
    Scenario {
        name: "sparse-managed",
        title: "The same, but a coordinator decides whenever a node asks",
        figures: ["Fig. 12", "Fig. 13"],
        length: seconds(210),
        coordinator: Some(Coordinator { from: Duration::ZERO, every: None, on_demand: true }),
        busy: |_, class| class > 0,
        request: Some(seconds(10)),
        shown: Some(0),
        bands: &[
            // The minimum share of 1 % of every class on every node makes 20 unreachable: 77 % of one node
            // is 19.25 % of four.
            Band { judged: Judged::Class(0, seconds(10)), paper: "20", min: 17.5, max: 20.0 },
            Band { judged: Judged::Others(seconds(10)), paper: "20", min: 19.5, max: 21.0 },
            Band { judged: Judged::Relocation, paper: "0.3 to 1", min: 0.0, max: 1.0 },
        ],
    },
];
