//! The page table as it is in force, and what was learned of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::resources::by_name;
use crate::RESOURCE_NAMES;

/// What requests take of the nodes' resources. Shares are of what a node of weight 1 has of a resource in a second:
/// 0.09 is 9 % of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageTable {
    /// It is refined from what the nodes use.
    pub learned: bool,
    /// Part of the arrivals whose route it does not know.
    pub unknown_share: f64,
    /// What a node uses without requests, as learned; absent if nothing is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub background: BTreeMap<String, f64>,
    /// Per resource how many windows between two reports of an agent were `learned` since learning began, and how many
    /// said nothing of the resource, by reason; absent if nothing is learned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub windows: BTreeMap<String, BTreeMap<String, u64>>,
    /// Its routes: those that are learned apart first, then by requests. At most 256 are shown.
    pub routes: Vec<Route>,
    /// How many there are.
    pub routes_total: usize,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Path and parameters.
    pub pattern: String,
    /// The resource that it takes most of.
    pub tendency: String,
    /// What a request takes: what counts for requests that arrive now.
    pub cost: BTreeMap<String, f64>,
    /// What the policy or its file says; absent of routes that were found in the traffic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub table: BTreeMap<String, f64>,
    /// The standard error of `cost`; absent where nothing was learned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub error: BTreeMap<String, f64>,
    /// That of the tendency, as a part of the cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_error: Option<f64>,
    /// It is learned apart, not with all others that are.
    pub apart: bool,
    /// Requests behind that.
    pub requests: f64,
    /// Windows of nodes in which there were such.
    pub windows: u64,
}

impl Route {
    /// A route that takes `cost`; all else is unknown.
    #[must_use]
    pub fn new(pattern: &str, cost: [f64; 3]) -> Route {
        let most = (1..3).fold(0, |most, next| if cost[next] > cost[most] { next } else { most });
        Route {
            pattern: pattern.to_owned(),
            tendency: RESOURCE_NAMES[most].to_owned(),
            cost: by_name(&cost),
            table: BTreeMap::new(),
            error: BTreeMap::new(),
            relative_error: None,
            apart: false,
            requests: 0.0,
            windows: 0,
        }
    }

    /// The same with what the table says.
    #[must_use]
    pub fn with_table(mut self, table: Option<[f64; 3]>) -> Route {
        self.table = table.map(|table| by_name(&table)).unwrap_or_default();
        self
    }

    /// The same with standard errors.
    #[must_use]
    pub fn with_error(mut self, error: [Option<f64>; 3]) -> Route {
        let known = RESOURCE_NAMES.iter().zip(error);
        self.error = known.filter_map(|(name, error)| Some(((*name).to_owned(), error?))).collect();
        let cost = self.cost.get(&self.tendency).copied().filter(|cost| *cost > 0.0);
        self.relative_error = self.error.get(&self.tendency).zip(cost).map(|(error, cost)| error / cost);
        self
    }
}

impl PageTable {
    /// The same with what nodes use without requests.
    #[must_use]
    pub fn with_background(mut self, background: [f64; 3]) -> PageTable {
        self.background = by_name(&background);
        self
    }

    /// The same with what became of windows, per resource.
    #[must_use]
    pub fn with_windows<O>(mut self, of: impl Fn(usize) -> O) -> PageTable
    where
        O: Iterator<Item = (&'static str, u64)>,
    {
        let named = |outcomes: O| outcomes.map(|(word, count)| (word.to_owned(), count)).collect();
        let resources = RESOURCE_NAMES.iter().enumerate();
        self.windows = resources.map(|(resource, name)| ((*name).to_owned(), named(of(resource)))).collect();
        self
    }
}
