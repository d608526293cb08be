//! Who is busy where, who manages, and what must come of it.

use std::time::Duration;

use super::NODES;

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// In directories and on the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Its figures in the paper: one node or class, and the cluster.
    pub figures: [&'static str; 2],
    /// How long it is.
    pub length: Duration,
    /// Without one, shares stay as they are.
    pub manager: Option<Manager>,
    /// Whether a class (from 0) is always busy on a node (from 0).
    pub busy: fn(usize, usize) -> bool,
    /// The first class has one request at a time, which takes so long, and goes to another node each time.
    pub request: Option<Duration>,
    /// The class whose use of each node the first figure shows; without, it shows all classes on the first node.
    pub shown: Option<usize>,
    /// What must come of it.
    pub bands: &'static [Band],
}

/// When a manager decides.
#[derive(Clone, Copy, Debug)]
pub struct Manager {
    /// It starts so long after everything else.
    pub from: Duration,
    /// How often it decides.
    pub every: Option<Duration>,
    /// Whether it decides when a node asks.
    pub on_demand: bool,
}

/// A figure that must lie between two.
#[derive(Clone, Copy, Debug)]
pub struct Band {
    /// Which.
    pub judged: Judged,
    /// The paper's.
    pub paper: &'static str,
    /// Ours must not be below,
    pub least: f64,
    /// nor above.
    pub most: f64,
}

/// What is judged, from an instant on until the end.
#[derive(Clone, Copy, Debug)]
pub enum Judged {
    /// A class's part of all nodes, in percent.
    Class(usize, Duration),
    /// The same of each class but the first: the least and the largest of them.
    Others(Duration),
    /// The median time until a request has its share where it is, in seconds.
    Relocation,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Shares that were just written need a moment, and so do processes that were just started.
const SETTLED: Duration = seconds(2);

/// The paper's manager starts after 8 s (Sec. 5.3).
const LATE: Duration = seconds(8);

/// From here on its shares stand: the shares of a class move by at most five points a run, one run every five seconds,
/// but the first is made at once and most of the way.
const LATE_SETTLED: Duration = seconds(14);

/// The paper's experiments.
pub const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "balanced",
        title: "All classes are busy on all nodes, shares stand still",
        figures: ["Fig. 4", "Fig. 5"],
        length: seconds(20),
        manager: None,
        busy: |_, _| true,
        request: None,
        shown: None,
        bands: &[
            Band { judged: Judged::Class(0, SETTLED), paper: "20", least: 19.5, most: 20.5 },
            Band { judged: Judged::Others(SETTLED), paper: "20", least: 19.5, most: 20.5 },
        ],
    },
    Scenario {
        name: "geographic",
        title: "Class 1 is busy on nodes 1 and 2 only, shares stand still",
        figures: ["Fig. 6", "Fig. 7"],
        length: seconds(20),
        manager: None,
        busy: |node, class| class > 0 || node < NODES / 2,
        request: None,
        shown: Some(1),
        bands: &[
            Band { judged: Judged::Class(0, SETTLED), paper: "10", least: 9.5, most: 10.5 },
            Band { judged: Judged::Others(SETTLED), paper: "nearly 23", least: 22.0, most: 23.0 },
        ],
    },
    Scenario {
        name: "geographic-managed",
        title: "The same; a manager starts after 8 s and decides every 5 s",
        figures: ["Fig. 8", "Fig. 9"],
        length: seconds(44),
        manager: Some(Manager { from: LATE, every: Some(seconds(5)), on_demand: false }),
        busy: |node, class| class > 0 || node < NODES / 2,
        request: None,
        shown: Some(1),
        bands: &[
            Band { judged: Judged::Class(0, LATE_SETTLED), paper: "20", least: 18.5, most: 20.5 },
            Band { judged: Judged::Others(LATE_SETTLED), paper: "20", least: 19.5, most: 20.6 },
        ],
    },
    Scenario {
        name: "sparse",
        title: "Class 1 has one request of 10 s at a time, each on another node, shares stand still",
        figures: ["Fig. 10", "Fig. 11"],
        length: seconds(50),
        manager: None,
        busy: |_, class| class > 0,
        request: Some(seconds(10)),
        shown: Some(0),
        bands: &[
            Band { judged: Judged::Class(0, Duration::ZERO), paper: "5", least: 4.7, most: 5.3 },
            Band { judged: Judged::Others(Duration::ZERO), paper: "nearly 24", least: 23.0, most: 24.0 },
        ],
    },
    Scenario {
        name: "sparse-managed",
        title: "The same; a manager decides whenever a node asks",
        figures: ["Fig. 12", "Fig. 13"],
        length: seconds(210),
        manager: Some(Manager { from: Duration::ZERO, every: None, on_demand: true }),
        busy: |_, class| class > 0,
        request: Some(seconds(10)),
        shown: Some(0),
        bands: &[
            // The 1 % that every class keeps everywhere puts 20 out of reach: 77 of one node is 19.25 of four.
            Band { judged: Judged::Class(0, seconds(10)), paper: "20", least: 17.5, most: 20.0 },
            Band { judged: Judged::Others(seconds(10)), paper: "20", least: 19.5, most: 21.0 },
            Band { judged: Judged::Relocation, paper: "0.3 to 1", least: 0.0, most: 1.0 },
        ],
    },
];
