//! Available resources of the nodes, and the rounds in which classes share them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RESOURCE_NAMES;

/// A resource of the nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resource {
    /// `cpu`, `disk` or `bandwidth`.
    pub name: String,
    /// Available share of it, relative to the capacity of the usable nodes.
    pub available: f64,
}

/// The rounds in which a pool's resources are shared (`mdrr`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rounds {
    /// The pool.
    pub pool: String,
    /// Rounds begun after the first.
    pub begun: u64,
    /// For each resource, the class that has its turn.
    pub turns: BTreeMap<String, String>,
}

/// Returns numbers keyed by the names of the resources.
pub fn by_name(figures: &[f64]) -> BTreeMap<String, f64> {
    RESOURCE_NAMES.iter().zip(figures).map(|(name, figure)| ((*name).to_owned(), *figure)).collect()
}
