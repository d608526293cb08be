//! The optimiser's input and output.
//!
//! Rows are nodes and columns are classes everywhere. The caller leaves out nodes that are down.

use std::fmt;

/// A cluster that needs new shares. It contains live nodes only.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Promise to each class, in percent of the cluster (D).
    pub desired: Vec<f64>,
    /// Use per node and class, in percent of the node (u).
    pub usage: Vec<Vec<f64>>,
    /// Per node and class, whether the class used its whole share and may be able to use more ([`is_sink`]).
    pub sink: Vec<Vec<bool>>,
}

/// The shares of all nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Distance between the promises and the nearest usable shares, summed over classes, in percent of a node
    /// (V of step 1).
    pub deviation: f64,
    /// Shares closest to the use with that deviation (step 2), per node and class, in percent of the node.
    pub closest: Vec<Vec<f64>>,
    /// Shares to set, per node and class, in percent of the node (R of step 3). They are `closest` plus the
    /// capacity that no class can use at present, which goes to the classes below their promise. The shares
    /// of a node sum to 100.
    pub allocation: Vec<Vec<f64>>,
}

/// The reason why a problem is invalid or was not solved.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// There is no class.
    NoClass,
    /// There is no node.
    NoNode,
    /// There are more than [`MAX_NODES`] nodes or [`MAX_CLASSES`] classes.
    TooLarge {
        /// Number of nodes.
        nodes: usize,
        /// Number of classes.
        classes: usize,
    },
    /// A matrix does not have one row per node.
    Rows {
        /// Name of the matrix: `usage u` or `sink`.
        matrix: &'static str,
        /// Number of rows.
        found: usize,
        /// Required number of rows.
        wanted: usize,
    },
    /// A row does not have one figure per class.
    Columns {
        /// Name of the matrix: `usage u` or `sink`.
        matrix: &'static str,
        /// Index of the row.
        node: usize,
        /// Number of figures.
        found: usize,
        /// Required number of figures.
        wanted: usize,
    },
    /// A figure is not a percentage: it is not a number, negative, or infinite.
    Figure {
        /// Name of the vector or matrix: `desired D` or `usage u`.
        what: &'static str,
        /// Index of the row, in a matrix.
        node: Option<usize>,
        /// Index of the class.
        class: usize,
        /// The figure.
        value: f64,
    },
    /// The promises exceed the cluster.
    Promised {
        /// Sum of the promises to all classes, in percent of the cluster.
        sum: f64,
    },
    /// The search in step 2 did not converge. No such problem is known.
    Unsolved {
        /// Error of a column's sum in the best shares found, in percent of a node.
        missed: f64,
    },
}

/// Maximum number of nodes. It is ten times the size that a coordinator is built for, and the sums of step 1 stay
/// exact.
pub const MAX_NODES: usize = 10_000;

/// Maximum number of classes. The minimum share of 1 % is impossible beyond a hundred, and no real policy has
/// ten times as many.
pub const MAX_CLASSES: usize = 1000;

/// Amount by which promises may exceed 100 % through rounding: a third of 100, three times, is valid.
const ROUNDING: f64 = 1e-6;

/// Returns whether a class may be able to use more than its share of a node, both in percent of the node.
///
/// The paper checks whether the class used all of its share (it is no sink if r > u strictly). In a
/// measurement over a quarter of a second no class uses exactly its share. A sink may therefore miss 5 % of
/// its share, or 0.25 points where 5 % is less than a window can resolve. (A scheduler's slice of 1 to 3 ms
/// is 0.4 to 1.2 % of 250 ms, and less over several CPUs.) A class that used nothing needs nothing, however
/// small its share was.
pub fn is_sink(allocation: f64, usage: f64) -> bool {
    usage > 0.0 && allocation - usage <= f64::max(0.25, 0.05 * allocation)
}

impl Problem {
    pub(crate) fn nodes(&self) -> usize {
        self.usage.len()
    }

    pub(crate) fn classes(&self) -> usize {
        self.desired.len()
    }

    /// Checks whether the problem can be solved.
    ///
    /// # Errors
    /// Every [`Error`] but [`Error::Unsolved`].
    pub fn check(&self) -> Result<(), Error> {
        let (nodes, classes) = (self.nodes(), self.classes());
        if classes == 0 {
            return Err(Error::NoClass);
        } else if nodes == 0 {
            return Err(Error::NoNode);
        } else if nodes > MAX_NODES || classes > MAX_CLASSES {
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
                write!(f, "{nodes} nodes and {classes} classes; at most {MAX_NODES} and {MAX_CLASSES} are possible")
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
