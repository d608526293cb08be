//! Where a gateway keeps its learned state, and from where it takes some.

use std::path::PathBuf;

/// Ways by which the learned state outlives the process, besides a hand-over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedStateSettings {
    /// File that keeps it over a restart.
    pub file: Option<PathBuf>,
    /// Admin APIs of the gateways that are followed: `HOST:PORT` or `unix:/path`.
    pub follow: Vec<String>,
}
