//! The page table: combines the routes of the file and of the policy.

use std::collections::BTreeMap;

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{Context, Mark, Named, Optional};
use weirgate_spanned_yaml::unit::Text;
use weirgate_wire::RESOURCE_NAMES;

use crate::file::{CapacityForm, Class, Cost, PageTable as Form, PageTableFile, PolicyFile, RouteForm, RouteText};
use crate::site::{PageTable, Route};

/// Maximum number of routes. A site with its pages folded into patterns has fewer, and this few can be searched.
const MAX_ROUTES: usize = 4096;

/// A hundredth of every resource, which admits about a hundred requests of unknown cost at a node.
const UNKNOWN: engine::Demand = engine::Demand([10_000_000, 10_000_000, 10_000_000, 0]);

/// The version of the page table format that is read here.
const VERSION: u32 = 1;

/// Returns the cost of the class's requests that have no route in a table.
pub(super) fn unknown(class: &Class) -> engine::Demand {
    class.cost.get().map_or(UNKNOWN, |cost| demand([*cost.cpu.get(), *cost.disk.get(), *cost.bandwidth.get()]))
}

fn demand(costs: [Cost; 3]) -> engine::Demand {
    engine::Demand::of_shares(&costs.map(|cost| cost.0))
}

/// Returns the names of the resources, if there is a table.
pub(super) fn resources(table: Option<&PageTable>) -> Vec<String> {
    table.map_or_else(Vec::new, |_| RESOURCE_NAMES.map(str::to_owned).to_vec())
}

/// Complains about a dispatch method if the discipline chooses the node itself.
pub(super) fn check_dispatch(file: &PolicyFile, discipline: &engine::Discipline, cx: &mut Context) {
    if !matches!(discipline.load_control, engine::LoadControl::ResourceAvailability(_)) {
        return;
    }
    for upstream in file.upstreams.get().map_or(&[][..], |all| &all.items).iter().filter_map(|item| item.value.get()) {
        if upstream.dispatch.given {
            let what =
                format!("`{}` itself chooses the node with the most free capacity for a request", discipline.name);
            cx.fail(upstream.dispatch.mark, what, "remove `dispatch:`");
        }
    }
}

/// Returns the table, if there is one, and complains if a discipline needs one that is missing.
pub(super) fn page_table(file: &PolicyFile, discipline: &engine::Discipline, cx: &mut Context) -> Option<PageTable> {
    let Some(form) = file.page_table.get() else {
        if matches!(discipline.load_control, engine::LoadControl::ResourceAvailability(_)) && !file.page_table.bad {
            let what = format!("`{}` needs the costs of requests", discipline.name);
            let hint = "add `page_table:` with a file of `weirgate probe`, `routes:`, or `learned`";
            cx.fail(file.discipline.mark, what, hint);
        }
        return None;
    };
    let Form::Table(form) = form else {
        return Some(PageTable { learned: true, ..PageTable::default() });
    };
    let included = form.file.get().map(|included| &included.0);
    let mut table = included.map(|file| file_of(file, cx)).unwrap_or_default();
    let mut routes: BTreeMap<String, Route> =
        table.routes.into_iter().map(|route| (route.pattern.to_string(), route)).collect();
    if let Some(named) = form.routes.get() {
        add(named, &mut routes, cx);
    }
    table.learned = form.learned.get().0;
    if routes.is_empty() && !table.learned && !form.file.given && !form.routes.given {
        let hint = "give it `file:` or `routes:`, or write `page_table: learned`";
        cx.fail(file.page_table.mark, "this page table is empty", hint);
    }
    let own = capacity(&form.capacity);
    table.capacity = [0, 1, 2].map(|resource: usize| own[resource].or(table.capacity[resource]));
    table.routes = bounded(routes, file.page_table.mark, cx);
    Some(table)
}

/// Returns the table that a file contains.
fn file_of(file: &PageTableFile, cx: &mut Context) -> PageTable {
    if let Some(version) = file.version.get().filter(|version| version.0 != VERSION) {
        let what = format!("this page table has version {}", version.0);
        cx.fail(file.version.mark, what, format!("version {VERSION} is read here: probe the site again"));
    }
    let mut routes = BTreeMap::new();
    if let Some(named) = file.routes.get() {
        add(named, &mut routes, cx);
    }
    let routes = bounded(routes, file.routes.mark, cx);
    let text = |field: &Optional<Text>| field.get().map(|text| text.0.clone());
    let (probed, server) = (text(&file.probed), text(&file.server));
    PageTable { learned: false, capacity: capacity(&file.capacity), routes, probed, server }
}

/// Checks the number of routes.
fn bounded(routes: BTreeMap<String, Route>, mark: Mark, cx: &mut Context) -> Vec<Route> {
    if routes.len() > MAX_ROUTES {
        let what = format!("there are {} routes", routes.len());
        let hint = format!("fold them into at most {MAX_ROUTES} patterns such as `/album/*`");
        cx.fail(mark, what, hint);
    }
    routes.into_values().collect()
}

/// Adds routes. Later ones replace earlier ones.
fn add(named: &Named<RouteText, RouteForm>, routes: &mut BTreeMap<String, Route>, cx: &mut Context) {
    for item in &named.items {
        let Some(form) = item.value.get() else { continue };
        let costs = [*form.cpu.get(), *form.disk.get(), *form.bandwidth.get()];
        if costs.iter().all(|cost| cost.0 <= 0.0) && !item.value.bad {
            let hint = "give it `cpu:`, `disk:` or `bandwidth:`, or leave the route out";
            cx.fail(item.value.mark, "a request for this route takes nothing", hint);
        }
        let route = Route {
            pattern: item.name.0.clone(),
            demand: demand(costs),
            confidence: form.confidence.get().map(|share| share.0),
            samples: form.samples.get().map(|count| count.0),
            probed: form.probed.get().map(|text| text.0.clone()),
        };
        routes.insert(route.pattern.to_string(), route);
    }
}

fn capacity(form: &Optional<CapacityForm>) -> [Option<f64>; 3] {
    let Some(form) = form.get() else { return [None; 3] };
    [&form.cpu, &form.disk, &form.bandwidth].map(|field| field.get().map(|quantity| quantity.0))
}
