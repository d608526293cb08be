//! Messages between agents and the coordinator of Cluster Reserves, as JSON over HTTP.
//!
//! Source: Aron, Druschel and Zwaenepoel, "Cluster Reserves", Sec. 4: a tracker on each node reports the use
//! of each class to the coordinator, and the coordinator returns the shares to set. Departures: the paper does not
//! print its format. Ours includes the share in force with the use measured under it, so that a coordinator that
//! has just started can continue. It also includes figures of the node as a whole for the operator, and an
//! agent may ask for new shares at once.
//!
//! ```text
//! POST /reserves/sessions                      Hello       → 201 Session
//! PUT  /reserves/sessions/ID/reports/NUMBER    NodeReport  → 204
//! GET  /reserves/sessions/ID/shares?after=RUN              → 200 Shares, or 204 after a while without new ones
//! ```
//!
//! TLS keeps others from reading, changing and repeating a connection's bytes. A session does the rest: it belongs to
//! one node and to one coordinator, the newest of a node counts, and its reports are numbered. So a report that comes
//! late, for example over a connection that hung, changes nothing (409), and one that is sent again counts once.
//!
//! Unknown fields are skipped, so that one side may be newer than the other. A report comes from another machine:
//! [`NodeReport::check`] checks every number.

use serde::{Deserialize, Serialize};

/// The version of the protocol. It increases when a field changes its meaning, not when one is added.
pub const WIRE_VERSION: u32 = 2;

/// Path of the sessions.
pub const SESSIONS_PATH: &str = "/reserves/sessions";

/// Longest window that a report may claim, in seconds: a day. Agents report every quarter of a second, but
/// the window is long after a node was suspended.
const MAX_WINDOW_S: f64 = 86_400.0;

/// Largest percentage of a node that a report may claim. Two clocks that are read one after the other can
/// make a full node look slightly more than full, but not ten times.
const MAX_PERCENT: f64 = 1_000.0;

/// Opens a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`WIRE_VERSION`] of the agent.
    pub version: u32,
    /// The node's name in the policy.
    pub node: String,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its identifier, which no other session of any coordinator has.
    pub session: String,
}

/// Shares to set at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeShares {
    /// The run of the optimiser that computed them.
    pub run: u64,
    /// For each class of the policy, its share in percent of the node. They sum to 100 at most.
    pub shares: Vec<f64>,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The reason, for the agent's log.
    pub error: String,
}

/// Report of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Measurements of the classes.
    #[serde(flatten)]
    pub measured: Measured,
    /// Figures of the node as a whole.
    #[serde(default)]
    pub node: NodeFigures,
}

/// Measurements of a node since its shares changed, but at most for one window. Lists have one entry per
/// class of the policy, in its order. A class that is not on this node has 0 and `false`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The last run that computed the shares in force here, or 0 if there was none yet.
    pub run: u64,
    /// Length of the window in seconds. All of it is after the shares of `run` were set.
    pub seconds: f64,
    /// The shares in force, in percent of the node.
    pub allocation: Vec<f64>,
    /// CPU time used in the window, in percent of the node's time for its classes.
    pub usage: Vec<f64>,
    /// Whether the class used its whole share, so that it may be able to use more.
    pub sink: Vec<bool>,
    /// The reason for which the node asks for new shares, if it does: that of the first class with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wants: Option<Trigger>,
}

/// Reason for which a node asks for new shares (Sec. 5.4). Classes are indices in the policy's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The class became a sink.
    SinkBegan {
        /// Index of the class.
        class: usize,
    },
    /// The class is no longer a sink.
    SinkEnded {
        /// Index of the class.
        class: usize,
    },
    /// The class uses less than before by more than a fifth.
    Fell {
        /// Index of the class.
        class: usize,
    },
}

/// Figures of the node as a whole, for the operator. No decision depends on them. A figure that an agent
/// cannot measure is 0 or absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct NodeFigures {
    /// CPU time used by all processes, in percent of the node.
    pub cpu: f64,
    /// Number of tasks that run or could run.
    pub run_queue: f64,
    /// Memory in use, in bytes.
    pub memory_used: u64,
    /// Memory of the node, in bytes.
    pub memory_total: u64,
    /// Bytes per second read from disks.
    pub disk_read: f64,
    /// Bytes per second written to disks.
    pub disk_write: f64,
    /// Bytes per second received.
    pub net_in: f64,
    /// Bytes per second sent.
    pub net_out: f64,
    /// Static requests that the node's server is working on, if it reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_static: Option<u64>,
    /// Dynamic requests that the node's server is working on, if it reports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_dynamic: Option<u64>,
}

impl Trigger {
    /// Returns the class concerned.
    pub fn class(self) -> usize {
        match self {
            Trigger::SinkBegan { class } | Trigger::SinkEnded { class } | Trigger::Fell { class } => class,
        }
    }

    /// Returns the word used in metrics and pages.
    pub fn word(self) -> &'static str {
        match self {
            Trigger::SinkBegan { .. } => "sink_began",
            Trigger::SinkEnded { .. } => "sink_ended",
            Trigger::Fell { .. } => "fell",
        }
    }
}

impl NodeReport {
    /// Checks every number of a report about `classes` classes.
    ///
    /// # Errors
    /// Returns the error in the report, with the field's name.
    pub fn check(&self, classes: usize) -> Result<(), String> {
        let Measured { seconds, allocation, usage, sink, wants, .. } = &self.measured;
        let lengths = [("allocation", allocation.len()), ("usage", usage.len()), ("sink", sink.len())];
        for (name, found) in lengths {
            if found != classes {
                return Err(format!(
                    "`{name}` has {found} figures, and the policy has {classes} classes: give both sides the same policy"
                ));
            }
        }
        if !(*seconds > 0.0 && *seconds <= MAX_WINDOW_S) {
            return Err(format!("`seconds` is {seconds}, not a time of at most a day"));
        }
        for (name, figures) in [("allocation", allocation), ("usage", usage)] {
            for (class, &figure) in figures.iter().enumerate() {
                if !(0.0..=MAX_PERCENT).contains(&figure) {
                    return Err(format!("`{name}[{class}]` is {figure}, not a percentage of a node"));
                }
            }
        }
        if let Some(class) = wants.map(Trigger::class).filter(|&class| class >= classes) {
            return Err(format!("`wants` is about class {class}, and there are {classes}"));
        }
        let NodeFigures { cpu, run_queue, disk_read, disk_write, net_in, net_out, .. } = self.node;
        let figures = [
            ("cpu", cpu),
            ("run_queue", run_queue),
            ("disk_read", disk_read),
            ("disk_write", disk_write),
            ("net_in", net_in),
            ("net_out", net_out),
        ];
        for (name, figure) in figures {
            if !(figure >= 0.0 && figure.is_finite()) {
                return Err(format!("`node.{name}` is {figure}, not a number of zero or more"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> NodeReport {
        let measured = Measured {
            run: 7,
            seconds: 0.25,
            allocation: vec![60.0, 40.0],
            usage: vec![59.9, 12.5],
            sink: vec![true, false],
            wants: Some(Trigger::SinkBegan { class: 0 }),
        };
        NodeReport { measured, node: NodeFigures { cpu: 72.4, run_queue: 3.0, ..NodeFigures::default() } }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = serde_json::to_string(&report()).unwrap();
        assert_eq!(serde_json::from_str::<NodeReport>(&text).unwrap(), report(), "{text}");
        let shares = NodeShares { run: 8, shares: vec![55.5, 44.5] };
        let text = serde_json::to_string(&shares).unwrap();
        assert_eq!(text, r#"{"run":8,"shares":[55.5,44.5]}"#);
        assert_eq!(serde_json::from_str::<NodeShares>(&text).unwrap(), shares);
    }

    #[test]
    fn a_newer_side_may_say_more_and_figures_of_the_node_may_be_missing() {
        let text = r#"{"run":0,"seconds":0.25,"allocation":[50],"usage":[1],"sink":[false],"gpu":[3],
            "node":{"cpu":1.5,"fans":2}}"#;
        let report: NodeReport = serde_json::from_str(text).unwrap();
        assert_eq!((report.node.cpu, report.measured.wants), (1.5, None));
        assert_eq!(report.check(1), Ok(()));
    }

    #[test]
    fn every_figure_is_checked() {
        assert_eq!(report().check(2), Ok(()));
        let wrong = |change: fn(&mut NodeReport)| {
            let mut report = report();
            change(&mut report);
            report.check(2).unwrap_err()
        };
        assert!(report().check(3).unwrap_err().contains("`allocation` has 2 figures, and the policy has 3 classes"));
        assert!(wrong(|r| r.measured.sink.truncate(1)).contains("`sink` has 1 figures"));
        assert!(wrong(|r| r.measured.seconds = 0.0).contains("`seconds` is 0"));
        assert!(wrong(|r| r.measured.seconds = f64::NAN).contains("`seconds` is NaN"));
        assert!(wrong(|r| r.measured.usage[1] = -1.0).contains("`usage[1]` is -1"));
        assert!(wrong(|r| r.measured.allocation[0] = f64::INFINITY).contains("`allocation[0]` is inf"));
        assert!(wrong(|r| r.measured.wants = Some(Trigger::Fell { class: 2 })).contains("class 2"));
        assert!(wrong(|r| r.node.net_out = f64::NAN).contains("`node.net_out` is NaN"));
    }
}
