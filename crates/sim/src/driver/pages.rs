//! What the policy's page table says of each stream's requests, as the gateway looks it up by their address.
//!
//! Departure: an experiment's requests have one route for each stream. Marks in its path are not filled in, so that a route
//! tells them apart only where it has a `*`.

use weirgate_config::{Experiment, Traffic};
use weirgate_engine::Demand;
use weirgate_pages::{Index, Pattern};

/// What a request for nothing in particular asks for, as the lab sends it.
const PATH: &str = "/";

/// Per stream what a request takes, if the table knows its route. Without a table nothing is known.
pub(super) fn demands(experiment: &Experiment) -> Vec<Option<Demand>> {
    let routes = experiment.site.page_table.as_ref().map_or(&[][..], |table| &table.routes);
    // What the loader lets through can be read.
    let known: Vec<(Pattern, Demand)> =
        routes.iter().filter_map(|route| Some((Pattern::parse(&route.pattern).ok()?, route.demand))).collect();
    let (patterns, demands): (Vec<Pattern>, Vec<Demand>) = known.into_iter().unzip();
    let index = Index::new(patterns);
    let demand = |traffic: &Traffic| {
        let address = traffic.request.path.as_deref().unwrap_or(PATH);
        let (path, query) = address.split_once('?').map_or((address, None), |(path, query)| (path, Some(query)));
        index.find(path, query).and_then(|route| demands.get(route).copied())
    };
    experiment.traffic.iter().map(demand).collect()
}
