//! The page table in force, and the costs learned for it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::resources::by_name;
use crate::RESOURCE_NAMES;

/// Costs of requests as shares of the nodes' resources. A share refers to the capacity per second of a node
/// of weight 1: 0.09 is 9 % of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageTable {
    /// Whether costs are refined from the measured use of the nodes.
    pub learned: bool,
    /// Share of the arrivals with a route that is not in the table.
    pub unknown_share: f64,
    /// Learned use of a node without requests. Absent if nothing is learned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub background: BTreeMap<String, f64>,
    /// For each resource, the number of windows between two reports of an agent that were `learned` since
    /// learning began, and the number of windows without information on the resource, by reason. Absent if
    /// nothing is learned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub windows: BTreeMap<String, BTreeMap<String, u64>>,
    /// Its routes: first those that are learned separately, then the others by number of requests. At most
    /// 256 are shown.
    pub routes: Vec<Route>,
    /// Number of routes in the table.
    pub routes_total: usize,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Path and parameters.
    pub pattern: String,
    /// The resource that its requests use most.
    pub tendency: String,
    /// Cost that is used for arriving requests.
    pub cost: BTreeMap<String, f64>,
    /// Cost in the policy or its file. Absent for routes that were found in the traffic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub table: BTreeMap<String, f64>,
    /// Standard error of `cost`. Absent where nothing was learned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub error: BTreeMap<String, f64>,
    /// Standard error for the resource in `tendency`, as a fraction of its cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_error: Option<f64>,
    /// Whether the route is learned separately, not together with all other learned routes.
    pub apart: bool,
    /// Number of requests behind the estimate.
    pub requests: f64,
    /// Number of nodes' windows with such requests.
    pub windows: u64,
}

impl Route {
    /// Returns a route of this cost, with all else unknown.
    pub fn new(pattern: &str, cost: [f64; 3]) -> Route {
        let max = (1..3).fold(0, |max, next| if cost[next] > cost[max] { next } else { max });
        Route {
            pattern: pattern.to_owned(),
            tendency: RESOURCE_NAMES[max].to_owned(),
            cost: by_name(&cost),
            table: BTreeMap::new(),
            error: BTreeMap::new(),
            relative_error: None,
            apart: false,
            requests: 0.0,
            windows: 0,
        }
    }

    /// Adds the cost given by the table.
    #[must_use]
    pub fn with_table(mut self, table: Option<[f64; 3]>) -> Route {
        self.table = table.map(|table| by_name(&table)).unwrap_or_default();
        self
    }

    /// Adds standard errors.
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
    /// Adds the use of nodes without requests.
    #[must_use]
    pub fn with_background(mut self, background: [f64; 3]) -> PageTable {
        self.background = by_name(&background);
        self
    }

    /// Adds the outcomes of windows per resource.
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
