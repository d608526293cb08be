//! The grid of an experiment: rows of cells, each of which plays it with some figures changed.

use weirgate_spanned_yaml::overrides::Override;

/// A row of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridRow {
    /// The figure that it changes.
    pub name: String,
    /// Its cells, at least one.
    pub cells: Vec<GridCell>,
}

/// A cell of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridCell {
    /// Its name, unique in its row.
    pub name: String,
    /// Changes of the experiment.
    pub set: Vec<Override>,
}
