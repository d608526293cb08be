//! CPU use per node and class over time.

use serde::{Deserialize, Serialize};

use super::{CLASSES, NODES};

/// The recording of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The scenario's name.
    pub scenario: String,
    /// Number of CPUs of a node.
    pub node_cpus: f64,
    /// Samples in order of time.
    pub samples: Vec<Sample>,
    /// Requests of the first class.
    pub relocations: Vec<Relocation>,
    /// Log of coordinator and agents.
    pub log: Vec<String>,
}

/// The counters at one instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds from the start.
    pub at: f64,
    /// CPU time of each class and, last, of the filler, per node, in nanoseconds.
    pub used: Vec<Vec<u64>>,
}

/// A request that moved to another node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relocation {
    /// Seconds from the start.
    pub at: f64,
    /// Its new node.
    pub node: usize,
    /// Seconds until its class had its share there, or `None` if it never did.
    pub took: Option<f64>,
}

impl Recording {
    /// Returns a class's part of a node between two samples, in percent of the CPU time that the node had.
    /// CPU time of the machine's other guests is not included.
    fn part(before: &Sample, after: &Sample, node: usize, class: usize) -> f64 {
        let used = |class: usize| after.used[node][class].saturating_sub(before.used[node][class]) as f64;
        let all: f64 = (0..=CLASSES).map(used).sum();
        if all > 0.0 { used(class) / all * 100.0 } else { 0.0 }
    }

    /// Returns a class's part of all nodes from `from` seconds on, in percent.
    pub fn of_cluster(&self, class: usize, from: f64) -> f64 {
        let (Some(first), Some(last)) = (self.samples.iter().find(|s| s.at >= from), self.samples.last()) else {
            return 0.0;
        };
        (0..NODES).map(|node| Recording::part(first, last, node, class)).sum::<f64>() / NODES as f64
    }

    /// Returns its part of one node, or of all, over time, in windows of `window` seconds, each at its middle.
    pub fn over_time(&self, class: usize, node: Option<usize>, window: f64) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        let mut samples = self.samples.iter();
        let Some(mut before) = samples.next() else { return points };
        for after in samples {
            // The last sample of a window may be slightly early.
            if after.at - before.at < window * 0.99 {
                continue;
            }
            let nodes = node.map_or(0..NODES, |node| node..node + 1);
            let count = nodes.len() as f64;
            let part = nodes.map(|node| Recording::part(before, after, node, class)).sum::<f64>() / count;
            points.push((f64::midpoint(before.at, after.at), part));
            before = after;
        }
        points
    }

    /// Returns the relocation times in seconds, sorted, with infinity for those that never ended. The first
    /// request is left out, because it comes from no other node and meets a coordinator that has just started.
    pub fn relocation_times(&self) -> Vec<f64> {
        let moved = self.relocations.iter().skip(1);
        let mut times: Vec<f64> = moved.map(|r| r.took.unwrap_or(f64::INFINITY)).collect();
        times.sort_by(f64::total_cmp);
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a recording of two samples per second. Class 1 uses a quarter of node 1 and nothing
    /// elsewhere, and the filler uses the rest.
    fn recording() -> Recording {
        let sample = |half: u64| {
            let mut used = vec![vec![0; CLASSES + 1]; NODES];
            for node in &mut used {
                node[CLASSES] = half * 100;
            }
            used[0][0] = half * 25;
            used[0][CLASSES] = half * 75;
            Sample { at: half as f64 / 2.0, used }
        };
        Recording { samples: (0..=8).map(sample).collect(), ..Recording::default() }
    }

    #[test]
    fn parts_are_of_the_time_that_nodes_had() {
        let recording = recording();
        assert_eq!((recording.of_cluster(0, 1.0), recording.of_cluster(1, 0.0)), (6.25, 0.0));
        assert_eq!(recording.over_time(0, Some(0), 1.0), [(0.5, 25.0), (1.5, 25.0), (2.5, 25.0), (3.5, 25.0)]);
        assert_eq!(recording.over_time(0, None, 2.0), [(1.0, 6.25), (3.0, 6.25)]);
    }

    #[test]
    fn what_never_came_took_longest() {
        let mut recording = recording();
        recording.relocations =
            [Some(9.0), Some(0.5), None, Some(0.3)].map(|took| Relocation { at: 0.0, node: 0, took }).to_vec();
        assert_eq!(recording.relocation_times(), [0.3, 0.5, f64::INFINITY]);
    }
}
