//! What agents and the manager of Cluster Reserves say to each other: lines of JSON.
//!
//! Source: Aron, Druschel and Zwaenepoel, "Cluster Reserves", Sec. 4: per node a tracker tells the manager what each
//! class used, and the manager tells it the shares to set. Departures: the paper does not print its format. Ours
//! carries the share in force with the use that was measured under it, so that a manager that has just started can
//! carry on; figures of the node as a whole travel along for people to look at; and an agent may ask for new shares at
//! once.
//!
//! Fields that are unknown here are skipped, so that one side may be newer than the other. How the two prove who they
//! are and how lines are sealed is in `link`. A report comes from another machine: [`NodeReport::check`] goes over
//! every figure.

use serde::{Deserialize, Serialize};

/// The version that is spoken. It grows when a field changes its meaning, not when one is added.
pub const WIRE_VERSION: u32 = 1;

/// Longest line, in bytes with its end. A report of 100 classes takes 6 KiB; the rest is room for what later versions
/// add.
pub const MAX_LINE: usize = 256 * 1024;

/// Longest window that a report may claim, in seconds: a day. Agents report every quarter of a second, and a node that
/// was suspended may wake up with a long one.
const MAX_WINDOW_S: f64 = 86_400.0;

/// Largest percentage of a node that a report may claim. Two clocks that are read one after the other make a full node
/// look a little more than full; ten times is no such error.
const MAX_PERCENT: f64 = 1_000.0;

/// What an agent says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    /// Who it is; the first line of a connection, plain.
    Hello {
        /// [`WIRE_VERSION`] of the agent.
        version: u32,
        /// The node's name in the policy.
        node: String,
        /// 16 random bytes in hex.
        nonce: String,
    },
    /// That it has the node's token; the second line, plain. The MAC is empty without a token.
    Proof {
        /// In hex.
        mac: String,
    },
    /// What was measured; every further line, sealed.
    Report(NodeReport),
}

/// What the manager says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromManager {
    /// The answer to [`FromAgent::Hello`], plain: that the manager has the node's token. The MAC is empty without one.
    Challenge {
        /// 16 random bytes in hex.
        nonce: String,
        /// In hex.
        mac: String,
    },
    /// The connection ends here: plain in place of a challenge, sealed later.
    Refused {
        /// Why, for the agent's log.
        why: String,
    },
    /// Shares to set at once; sealed.
    Shares {
        /// The run of the optimiser that they come from.
        run: u64,
        /// Per class of the policy, in percent of the node. They sum to 100 at most.
        shares: Vec<f64>,
    },
}

/// What an agent measured since its shares changed, at most a window ago. Lists have one figure per class of the
/// policy, in its order; a class that is not on this node has 0 and `false`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The last run whose shares are in force here; 0 if there was none yet.
    pub run: u64,
    /// Length of the window, in seconds. It lies wholly after the shares of `run` were set.
    pub seconds: f64,
    /// The shares in force, in percent of the node.
    pub allocation: Vec<f64>,
    /// CPU time used in the window, in percent of the node.
    pub usage: Vec<f64>,
    /// It used all that it was given, so that it may be able to use more.
    pub sink: Vec<bool>,
    /// The agent asks for new shares, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wants: Option<Trigger>,
    /// The node as a whole.
    #[serde(default)]
    pub node: NodeFigures,
}

/// Why an agent asks for new shares (Sec. 5.4). Classes are indices in the policy's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The class became a sink.
    SinkBegan {
        /// Which.
        class: usize,
    },
    /// The class is no sink any more.
    SinkEnded {
        /// Which.
        class: usize,
    },
    /// What the class uses fell by more than a fifth.
    Fell {
        /// Which.
        class: usize,
    },
}

/// The node as a whole, for people to look at: no decision depends on it. What an agent cannot measure is 0 or absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct NodeFigures {
    /// CPU time used by everything, in percent of the node.
    pub cpu: f64,
    /// Tasks that run or could run.
    pub run_queue: f64,
    /// Memory in use, in bytes.
    pub memory_used: u64,
    /// Memory of the node, in bytes.
    pub memory_total: u64,
    /// Read from disks, in bytes per second.
    pub disk_read: f64,
    /// Written to disks, in bytes per second.
    pub disk_write: f64,
    /// Received, in bytes per second.
    pub net_in: f64,
    /// Sent, in bytes per second.
    pub net_out: f64,
    /// Static requests that the node's server works on, where it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_static: Option<u64>,
    /// Dynamic requests that it works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_dynamic: Option<u64>,
}

impl Trigger {
    /// The class that it is about.
    #[must_use]
    pub fn class(self) -> usize {
        match self {
            Trigger::SinkBegan { class } | Trigger::SinkEnded { class } | Trigger::Fell { class } => class,
        }
    }

    /// In a word, as metrics and pages have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Trigger::SinkBegan { .. } => "sink_began",
            Trigger::SinkEnded { .. } => "sink_ended",
            Trigger::Fell { .. } => "fell",
        }
    }
}

impl NodeReport {
    /// Goes over every figure of a report about `classes` classes.
    ///
    /// # Errors
    /// What is wrong with it, with the field's name.
    pub fn check(&self, classes: usize) -> Result<(), String> {
        let lengths = [("allocation", self.allocation.len()), ("usage", self.usage.len()), ("sink", self.sink.len())];
        for (name, found) in lengths {
            if found != classes {
                return Err(format!(
                    "`{name}` has {found} figures, and the policy has {classes} classes: give both sides the same policy"
                ));
            }
        }
        if !(self.seconds > 0.0 && self.seconds <= MAX_WINDOW_S) {
            return Err(format!("`seconds` is {}, not a length of time of at most a day", self.seconds));
        }
        for (name, figures) in [("allocation", &self.allocation), ("usage", &self.usage)] {
            for (class, &figure) in figures.iter().enumerate() {
                if !(0.0..=MAX_PERCENT).contains(&figure) {
                    return Err(format!("`{name}[{class}]` is {figure}, not a percentage of a node"));
                }
            }
        }
        if let Some(class) = self.wants.map(Trigger::class).filter(|&class| class >= classes) {
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
        NodeReport {
            run: 7,
            seconds: 0.25,
            allocation: vec![60.0, 40.0],
            usage: vec![59.9, 12.5],
            sink: vec![true, false],
            wants: Some(Trigger::SinkBegan { class: 0 }),
            node: NodeFigures { cpu: 72.4, run_queue: 3.0, ..NodeFigures::default() },
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let all = [
            FromAgent::Hello { version: 1, node: "n1".into(), nonce: "00".into() },
            FromAgent::Proof { mac: String::new() },
            FromAgent::Report(report()),
        ];
        for message in all {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<FromAgent>(&text).unwrap(), message, "{text}");
        }
        let shares = FromManager::Shares { run: 8, shares: vec![55.5, 44.5] };
        let text = serde_json::to_string(&shares).unwrap();
        assert_eq!(text, r#"{"shares":{"run":8,"shares":[55.5,44.5]}}"#);
        assert_eq!(serde_json::from_str::<FromManager>(&text).unwrap(), shares);
    }

    #[test]
    fn a_newer_side_may_say_more_and_figures_of_the_node_may_be_missing() {
        let text = r#"{"report":{"run":0,"seconds":0.25,"allocation":[50],"usage":[1],"sink":[false],"gpu":[3],
            "node":{"cpu":1.5,"fans":2}}}"#;
        let FromAgent::Report(report) = serde_json::from_str(text).unwrap() else { panic!("no report") };
        assert_eq!((report.node.cpu, report.wants), (1.5, None));
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
        assert!(wrong(|r| r.sink.truncate(1)).contains("`sink` has 1 figures"));
        assert!(wrong(|r| r.seconds = 0.0).contains("`seconds` is 0"));
        assert!(wrong(|r| r.seconds = f64::NAN).contains("`seconds` is NaN"));
        assert!(wrong(|r| r.usage[1] = -1.0).contains("`usage[1]` is -1"));
        assert!(wrong(|r| r.allocation[0] = f64::INFINITY).contains("`allocation[0]` is inf"));
        assert!(wrong(|r| r.wants = Some(Trigger::Fell { class: 2 })).contains("class 2"));
        assert!(wrong(|r| r.node.net_out = f64::NAN).contains("`node.net_out` is NaN"));
    }
}
