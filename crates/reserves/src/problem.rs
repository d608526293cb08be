//! What is asked and what is answered.
//!
//! Rows are nodes, columns are classes, everywhere. Nodes that are down are left out by whoever asks.

use std::fmt;

/// A cluster whose shares are to be found anew: its live nodes alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Per class what it is promised, in percent of the cluster (D).
    pub desired: Vec<f64>,
    /// Per node and class what it used, in percent of the node (u).
    pub usage: Vec<Vec<f64>>,
    /// Per node and class: it used all that it was given, so that it may be able to use more ([`is_sink`]).
    pub sink: Vec<Vec<bool>>,
}

/// The shares of all nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// By how much the promises cannot be met by what the classes can use, summed over classes, in percent of a node
    /// (V of step 1).
    pub deviation: f64,
    /// Per node and class the shares closest to the use with that deviation (step 2), in percent of the node.
    pub closest: Vec<Vec<f64>>,
    /// Per node and class the shares to set: the same, with what nobody can use at present given to those who are
    /// owed it, so that the shares of a node sum to 100 (R of step 3). In percent of the node.
    pub allocation: Vec<Vec<f64>>,
}

/// A problem that makes no sense, and where.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// There is no class.
    NoClass,
    /// There is no node.
    NoNode,
    /// More nodes or classes than anybody has: [`MOST_NODES`], [`MOST_CLASSES`].
    TooLarge {
        /// Nodes that it has.
        nodes: usize,
        /// Classes that it has.
        classes: usize,
    },
    /// A matrix has not one row per node.
    Rows {
        /// Which: `usage u` or `sink`.
        matrix: &'static str,
        /// Rows that it has.
        found: usize,
        /// Rows that it should have.
        wanted: usize,
    },
    /// A row has not one figure per class.
    Columns {
        /// Which: `usage u` or `sink`.
        matrix: &'static str,
        /// Index of the row.
        node: usize,
        /// Figures that it has.
        found: usize,
        /// Figures that it should have.
        wanted: usize,
    },
    /// A figure is no percentage: not a number, negative, or infinite.
    Figure {
        /// Which: `desired D` or `usage u`.
        what: &'static str,
        /// Index of the row, in a matrix.
        node: Option<usize>,
        /// Index of the class.
        class: usize,
        /// The figure.
        value: f64,
    },
    /// More is promised than there is.
    Promised {
        /// What all classes together are promised, in percent of the cluster.
        sum: f64,
    },
    /// The search for step 2 came to no end. No such problem is known.
    Unsolved {
        /// By how much a column of the best shares found misses its sum, in percent of a node.
        missed: f64,
    },
}

/// More nodes than this are refused: ten times what a manager is built for, and the exact sums of step 1 fit.
pub const MOST_NODES: usize = 10_000;

/// More classes than this are refused: beyond a hundred the least share of 1 % is out of reach, and ten times that is
/// no policy that anybody wrote.
pub const MOST_CLASSES: usize = 1000;

/// By how much promises may exceed 100 % by rounding: a third of 100, three times, is not a mistake.
const ROUNDING: f64 = 1e-6;

/// Whether a class may be able to use more than its share of a node, both in percent of the node.
///
/// The paper asks whether it used all of it (r > u strictly means no). Measured over a quarter of a second no class
/// uses exactly what it was given, so one is allowed to miss 5 % of its share, and 0.25 points where that is less than
/// a window can resolve (a scheduler's slice of 1 to 3 ms is 0.4 to 1.2 % of 250 ms; over several CPUs less). Who used
/// nothing wants nothing, however little it was given.
#[must_use]
pub fn is_sink(allocation: f64, usage: f64) -> bool {
    usage > 0.0 && allocation - usage <= f64::max(0.25, 0.05 * allocation)
}

impl Problem {
    /// Nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.usage.len()
    }

    /// Classes.
    pub(crate) fn classes(&self) -> usize {
        self.desired.len()
    }

    /// Whether it can be solved.
    ///
    /// # Errors
    /// Every [`Error`] but [`Error::Unsolved`].
    pub fn check(&self) -> Result<(), Error> {
        let (nodes, classes) = (self.nodes(), self.classes());
        if classes == 0 {
            return Err(Error::NoClass);
        } else if nodes == 0 {
            return Err(Error::NoNode);
        } else if nodes > MOST_NODES || classes > MOST_CLASSES {
            return Err(Error::TooLarge { nodes, classes });
        } else if self.sink.len() != nodes {
            return Err(Error::Rows { matrix: "sink", found: self.sink.len(), wanted: nodes });
        }
        let usage = self.usage.iter().map(|row| ("usage u", row.len()));
        let sink = self.sink.iter().map(|row| ("sink", row.len()));
        for (node, (matrix, found)) in usage.enumerate().chain(sink.enumerate()) {
            if found != classes {
                return Err(Error::Columns { matrix, node, found, wanted: classes });
            }
        }
        let is_figure = |value: &f64| value.is_finite() && *value >= 0.0;
        if let Some((class, &value)) = self.desired.iter().enumerate().find(|(_, value)| !is_figure(value)) {
            return Err(Error::Figure { what: "desired D", node: None, class, value });
        }
        for (node, row) in self.usage.iter().enumerate() {
            if let Some((class, &value)) = row.iter().enumerate().find(|(_, value)| !is_figure(value)) {
                return Err(Error::Figure { what: "usage u", node: Some(node), class, value });
            }
        }
        let sum: f64 = self.desired.iter().sum();
        if sum > 100.0 + ROUNDING { Err(Error::Promised { sum }) } else { Ok(()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoClass => write!(f, "there is no class; give each a share of the cluster"),
            Error::NoNode => write!(f, "no node is up"),
            Error::TooLarge { nodes, classes } => {
                write!(f, "{nodes} nodes and {classes} classes; at most {MOST_NODES} and {MOST_CLASSES} are possible")
            }
            Error::Rows { matrix, found, wanted } => {
                write!(f, "{matrix} has {found} rows; give it one for each of the {wanted} nodes")
            }
            Error::Columns { matrix, node, found, wanted } => {
                write!(f, "{matrix}[{node}] has {found} figures; give it one for each of the {wanted} classes")
            }
            Error::Figure { what, node, class, value } => {
                let node = node.map_or_else(String::new, |node| format!("[{node}]"));
                write!(f, "{what}{node}[{class}] is {value}; write a percentage from 0 on")
            }
            Error::Promised { sum } => {
                write!(f, "the classes are promised {sum} % of the cluster; promise at most 100 % in all")
            }
            Error::Unsolved { missed } => {
                write!(
                    f,
                    "no shares were found that meet all sums, the best miss one by {missed} %; keep the last ones"
                )
            }
        }
    }
}

impl std::error::Error for Error {}
