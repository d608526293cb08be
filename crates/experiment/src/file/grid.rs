//! The grid of an experiment: rows of cells, each of which plays the experiment with some figures changed.

use weirgate_spanned_yaml::decode::{At, FromText, OneOrMany, Required};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::overrides::Override;
use weirgate_spanned_yaml::unit::Text;
use weirgate_spanned_yaml::{record, text_schema};

record! {
    /// A row of the grid: one figure of the experiment, from one end of its range to the other.
    pub(crate) struct GridRowForm {
        /// The figure that the row changes, in one line.
        row: Required<Text>,
        /// The cells, in order.
        cells: Required<Vec<At<GridCellForm>>>,
    }
}

record! {
    /// A cell of the grid.
    pub(crate) struct GridCellForm {
        /// Short name, unique in its row.
        name: Required<Text>,
        /// Changes of the experiment, each as for `--set`: `PATH=VALUE`.
        set: Required<OneOrMany<Change>>,
    }
}

/// A change of the experiment.
#[derive(Clone, Debug)]
pub(crate) struct Change(pub(crate) Override);

impl FromText for Change {
    const EXPECTED: &'static str = "a change such as `machines.cpus=2`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        text.parse().map(Change).map_err(Complaint::from)
    }
}

text_schema! {
    Change: { "type": "string", "examples": ["machines.cpus=2"] };
}
