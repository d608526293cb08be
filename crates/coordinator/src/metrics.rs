//! The page for Prometheus: OpenMetrics text, with every name `weirgate_reserves_*` and base units (a share
//! is 0 to 1).
//!
//! Labels are only names from the policy. So a policy with 1000 nodes and 100 classes has 300,000 series, and
//! no policy has more.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use weirgate_wire::reserves_admin::{ClassOnNode, Reserves};

/// Renders the page as text.
pub(crate) fn render(view: Reserves) -> String {
    let mut registry = Registry::with_prefix("weirgate_reserves");
    registry.register_collector(Box::new(Scrape(view)));
    let mut page = String::new();
    // Writing to a string cannot fail. A truncated page would be worse than an empty one.
    match prometheus_client::encoding::text::encode(&mut page, &registry) {
        Ok(()) => page,
        Err(fmt::Error) => String::from("# EOF\n"),
    }
}

#[derive(Debug)]
struct Scrape(Reserves);

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Reads one figure of a class on a node.
type Figure = fn(&ClassOnNode) -> Option<f64>;

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut encoder;
        let view = &self.0;
        let promises =
            view.classes.iter().map(|class| (vec![("class", class.name.as_str())], ratio(class.share_percent)));
        gauges(page, "promise", "Promised share of the cluster", None, promises)?;
        let figures: [(&str, &str, Figure); 3] = [
            ("share", "Share of the node in force", |class| class.share_percent.map(ratio)),
            ("usage", "CPU time used, as a share of the node's, in the last window", |class| {
                class.usage_percent.map(ratio)
            }),
            ("allocation", "Share of the node that the last run gave", |class| class.allocation_percent.map(ratio)),
        ];
        for (name, help, figure) in figures {
            gauges(page, name, help, None, self.classes(figure))?;
        }
        let sinks = self.classes(|class| class.sink.map(|sink| if sink { 1.0 } else { 0.0 }));
        gauges(page, "sink", "Whether the class used all of its share of the node", None, sinks)?;
        let up = view.nodes.iter().map(|node| (labels(&node.name), if node.state == "up" { 1.0 } else { 0.0 }));
        gauges(page, "node_up", "Whether the node is connected and reports", None, up)?;
        let live = view.nodes.iter().filter(|node| node.state == "up").count() as f64;
        gauges(page, "nodes_live", "Nodes that are connected and report", None, one(live))?;
        gauges(page, "nodes", "Nodes of the policy", None, one(view.nodes.len() as f64))?;
        if let Some(last) = view.last_runs.first() {
            let (deviation, moved) = (ratio(last.deviation_percent), ratio(last.moved_percent));
            let help = "Part of the promised shares that no class could use in the last run, in nodes";
            gauges(page, "deviation", help, None, one(deviation))?;
            gauges(page, "moved", "Shares that the last run moved, in nodes", None, one(moved))?;
            gauges(page, "run", "Number of the last run", None, one(last.number as f64))?;
            gauges(page, "last_solve", "Time that the last run took", Some(Unit::Seconds), one(last.solve_seconds))?;
        }
        let runs = view.runs.done.iter().map(|(cause, &count)| (vec![("trigger", cause.as_str())], count));
        counters(page, "runs", "Runs that found shares, by trigger", None, runs)?;
        counters(page, "run_failures", "Runs that failed", None, one(view.runs.failed))?;
        counters(page, "asked", "Times that nodes asked for new shares", None, one(view.runs.asked))?;
        counters(page, "refused", "Connections that were not from an agent", None, one(view.refused))?;
        let help = "Time that finding shares took";
        counters(page, "solve", help, Some(Unit::Seconds), one(view.runs.solve_seconds))
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

fn gauges<'l, T: EncodeGaugeValue>(
    page: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    series: impl Iterator<Item = (Labels<'l>, T)>,
) -> fmt::Result {
    let mut encoder = page.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
    for (labels, value) in series {
        match labels.is_empty() {
            true => encoder.encode_gauge(&value)?,
            false => encoder.encode_family(&labels)?.encode_gauge(&value)?,
        }
    }
    Ok(())
}

fn counters<'l, T: EncodeCounterValue>(
    page: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    series: impl Iterator<Item = (Labels<'l>, T)>,
) -> fmt::Result {
    let mut encoder = page.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
    for (labels, value) in series {
        match labels.is_empty() {
            true => encoder.encode_counter::<NoLabelSet, T, f64>(&value, None)?,
            false => encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, T, f64>(&value, None)?,
        }
    }
    Ok(())
}
