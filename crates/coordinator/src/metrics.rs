//! The page for Prometheus, as OpenMetrics text. All names begin with `weirgate_reserves_`, and all units are base
//! units (a share is 0 to 1).
//!
//! Labels are names from the policy, so their number is bounded: a policy with 1000 nodes and 100 classes, the maximum,
//! has 300,000 series.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use weirgate_http_server::families::{self, Families, Labels};
use weirgate_wire::reserves_admin::{ClassOnNode, Reserves};

/// Renders the page as text.
pub(crate) fn render(view: Reserves) -> String {
    families::render("weirgate_reserves", Scrape(view)).unwrap_or_else(|| String::from("# EOF\n"))
}

#[derive(Debug)]
struct Scrape(Reserves);

/// Reads one figure of a class on a node.
type Figure = fn(&ClassOnNode) -> Option<f64>;

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Families(encoder);
        let view = &self.0;
        let promises =
            view.classes.iter().map(|class| (vec![("class", class.name.as_str())], ratio(class.share_percent)));
        page.gauges("promise", "Promised share of the cluster", promises)?;
        let figures: [(&str, &str, Figure); 3] = [
            ("share", "Share of the node in force", |class| class.share_percent.map(ratio)),
            ("usage", "CPU time used, as a share of the node's, in the last window", |class| {
                class.usage_percent.map(ratio)
            }),
            ("allocation", "Share of the node that the last run gave", |class| class.allocation_percent.map(ratio)),
        ];
        for (name, help, figure) in figures {
            page.gauges(name, help, self.classes(figure))?;
        }
        let sinks = self.classes(|class| class.sink.map(|sink| if sink { 1.0 } else { 0.0 }));
        page.gauges("sink", "Whether the class used all of its share of the node", sinks)?;
        let up = view.nodes.iter().map(|node| (labels(&node.name), if node.state == "up" { 1.0 } else { 0.0 }));
        page.gauges("node_up", "Whether the node is connected and reports", up)?;
        let live = view.nodes.iter().filter(|node| node.state == "up").count() as f64;
        page.gauges("nodes_live", "Nodes that are connected and report", one(live))?;
        page.gauges("nodes", "Nodes of the policy", one(view.nodes.len() as f64))?;
        if let Some(last) = view.last_runs.first() {
            let (deviation, moved) = (ratio(last.deviation_percent), ratio(last.moved_percent));
            let help = "Part of the promised shares that no class could use in the last run, in nodes";
            page.gauges("deviation", help, one(deviation))?;
            page.gauges("moved", "Shares that the last run moved, in nodes", one(moved))?;
            page.gauges("run", "Number of the last run", one(last.number as f64))?;
            page.gauges("last_solve_seconds", "Time that the last run took", one(last.solve_seconds))?;
        }
        let runs = view.runs.done.iter().map(|(cause, &count)| (vec![("trigger", cause.as_str())], count));
        page.counters("runs", "Runs that found shares, by trigger", runs)?;
        page.counters("run_failures", "Runs that failed", one(view.runs.failed))?;
        page.counters("asked", "Times that nodes asked for new shares", one(view.runs.asked))?;
        page.counters("refused", "Connections that were not from an agent", one(view.refused))?;
        let help = "Time that finding shares took";
        page.counters("solve_seconds", help, one(view.runs.solve_seconds))
    }
}

impl Scrape {
    /// Returns a figure of every class on every node that has it.
    fn classes(&self, figure: Figure) -> impl Iterator<Item = (Labels<'_>, f64)> {
        self.0.nodes.iter().flat_map(move |node| {
            node.classes.iter().filter_map(move |class| {
                let labels = vec![("node", node.name.as_str()), ("class", class.name.as_str())];
                Some((labels, figure(class)?))
            })
        })
    }
}

/// Converts a percentage to a fraction.
fn ratio(percent: f64) -> f64 {
    percent / 100.0
}

fn labels(node: &str) -> Labels<'_> {
    vec![("node", node)]
}

/// Returns one value without labels.
fn one<T>(value: T) -> impl Iterator<Item = (Labels<'static>, T)> {
    std::iter::once((Vec::new(), value))
}
