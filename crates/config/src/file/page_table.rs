//! The page table: costs of requests per route, as shares of the nodes' resources.
//!
//! Routes are written in the policy or in a file of their own, which `weirgate probe` writes.

use schemars::json_schema;
use serde_json::json;
use weirgate_pages::Pattern;
use weirgate_spanned_yaml::decode::{Context, Decode, Defaulted, FromText, Named, Optional, Required};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Answer, Bytes, Count, Share, Text, number_and_unit};
use weirgate_spanned_yaml::{any_of, inline_schema, record, text_schema};

/// Source of the costs of requests.
#[derive(Clone, Debug)]
pub(crate) enum PageTable {
    /// Learned only from the use that the nodes report.
    Learned,
    /// A table, written as a map. The path of a file has been replaced by a map when this is decoded.
    Table(Box<PageTableForm>),
}

record! {
    /// Costs of requests, as shares of the nodes' resources.
    pub(crate) struct PageTableForm {
        /// A page table that `weirgate probe` wrote. A relative path starts at the policy's folder.
        file: Optional<Included>,
        /// Whether costs are refined from the measured use of the nodes: `true` or `false`. Needs agents on the
        /// nodes that report it. See `collector`.
        learned: Defaulted<Answer> = false,
        /// The quantities that equal 100 % of each resource. By default those of the file, or else those that
        /// the agents report.
        capacity: Optional<CapacityForm>,
        /// Routes, instead of or in addition to those of the file.
        routes: Optional<Named<RouteText, RouteForm>>,
    }
}

record! {
    /// A page table as a file of its own.
    pub(crate) struct PageTableFile {
        /// The version of this format: 1.
        version: Required<Count>,
        /// When the table was measured. For readers only.
        probed: Optional<Text>,
        /// Where the table was measured. For readers only.
        server: Optional<Text>,
        /// The quantities that equalled 100 % of each resource.
        capacity: Optional<CapacityForm>,
        /// Routes: a path in which `*` stands for a segment, optionally followed by `?name=value&other=*`.
        routes: Required<Named<RouteText, RouteForm>>,
    }
}

record! {
    /// Capacity of a node per resource and second, in the units in which its agent counts.
    pub(crate) struct CapacityForm {
        /// CPU-seconds per second, which is the number of CPUs.
        cpu: Optional<Quantity>,
        /// Bytes read and written per second.
        disk: Optional<Quantity>,
        /// Bytes sent per second.
        bandwidth: Optional<Quantity>,
    }
}

record! {
    /// Cost of a request: for each resource, a share of the node's capacity per second.
    pub(crate) struct CostForm {
        /// Share of the CPUs.
        cpu: Defaulted<Cost> = "0%",
        /// Share of the disks.
        disk: Defaulted<Cost> = "0%",
        /// Share of the network.
        bandwidth: Defaulted<Cost> = "0%",
    }
}

record! {
    /// A route and the cost of a request for it: for each resource, a share of the node's capacity per second.
    pub(crate) struct RouteForm {
        /// Share of the CPUs.
        cpu: Defaulted<Cost> = "0%",
        /// Share of the disks.
        disk: Defaulted<Cost> = "0%",
        /// Share of the network.
        bandwidth: Defaulted<Cost> = "0%",
        /// Confidence of the measurement. For readers only.
        confidence: Optional<Share>,
        /// Number of requests measured. For readers only.
        samples: Optional<Count>,
        /// When the route was measured. For readers only.
        probed: Optional<Text>,
    }
}

/// A page table that replaced the path of its file when that file was read.
#[derive(Clone, Debug)]
pub(crate) struct Included(pub(crate) PageTableFile);

impl Decode for Included {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        PageTableFile::decode(node, cx).map(Included)
    }
}

inline_schema! {
    Included: |_| json_schema!({ "type": "string" })
}

/// A route pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteText(pub(crate) Pattern);

/// A share of a node-second, up to 4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost(pub(crate) f64);

/// A quantity more than zero: a number or a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantity(pub(crate) f64);

/// The largest cost that the engine distinguishes from others.
const MAX: f64 = 4.0;

impl FromText for RouteText {
    const EXPECTED: &'static str = "a route such as `/album/*` or `/item.php?id=*`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        Pattern::parse(text).map(RouteText).map_err(|error| {
            let (what, hint) = error.rsplit_once(": ").unwrap_or((&error, "write a path from the root"));
            Complaint::new(what, hint)
        })
    }
}

impl FromText for Cost {
    const EXPECTED: &'static str = "a share of a node's second such as `9%` or `0.09`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let share = match number_and_unit(text)? {
            (number, "") => number,
            (number, "%") => number / 100.0,
            _ => return Err(Complaint::about(text, "is no share", "write `9%` or `0.09`")),
        };
        if share > MAX {
            return Err(Complaint::about(text, "is more than four seconds of a whole node", "write at most `400%`"));
        }
        Ok(Cost(share))
    }
}

impl FromText for Quantity {
    const EXPECTED: &'static str = "a number, or a size such as `150MiB`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let number = match number_and_unit(text)? {
            (number, "") => number,
            (number, unit) => number * Bytes::factor(unit)?,
        };
        if number <= 0.0 {
            return Err(Complaint::new("this is nothing", "write more than 0"));
        }
        Ok(Quantity(number))
    }
}

text_schema! {
    RouteText: { "type": "string", "pattern": "^/", "examples": ["/math.php", "/album/*", "/item.php?id=*"] };
    Cost: { "anyOf": [
        { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *%$", "examples": ["9%", "0.25%"] },
        { "type": "number", "minimum": 0, "maximum": 4 },
    ] };
    Quantity: { "anyOf": [
        { "type": "number", "exclusiveMinimum": 0 },
        { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *(B|KiB|MiB|GiB)$", "examples": ["150MiB"] },
    ] };
}

impl Decode for PageTable {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) if **text == *"learned" => Some(PageTable::Learned),
            _ => PageTableForm::decode(node, cx).map(|form| PageTable::Table(Box::new(form))),
        }
    }
}

any_of! {
    PageTable: "Source of the costs of requests." =
        [{ "const": "learned" }, { "type": "string", "description": "A file." }, PageTableForm];
}

/// The JSON Schema of a page table's file.
pub fn page_table_schema() -> serde_json::Value {
    let mut schema = schemars::SchemaGenerator::default().into_root_schema_for::<PageTableFile>();
    schema.insert("title".into(), json!("Weirgate page table"));
    schema.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_and_capacities() {
        assert_eq!(Cost::from_text("9%").map_err(|c| c.what), Ok(Cost(0.09)));
        assert_eq!(Cost::from_text("1.5").map_err(|c| c.what), Ok(Cost(1.5)));
        assert!(Cost::from_text("500%").unwrap_err().hint.contains("400%"));
        assert!(Cost::from_text("9ms").is_err() && RouteText::from_text("album").is_err());
        assert_eq!(Quantity::from_text("1.5").map_err(|c| c.what), Ok(Quantity(1.5)));
        assert_eq!(Quantity::from_text("11.9MiB").map_err(|c| c.what), Ok(Quantity(11.9 * 1_048_576.0)));
        // Numbers as YAML and JSON write them.
        assert_eq!(Cost::from_text("1e-4").map_err(|c| c.what), Ok(Cost(0.0001)));
        assert_eq!(Quantity::from_text("1.25E+9").map_err(|c| c.what), Ok(Quantity(1.25e9)));
        assert!(Cost::from_text("1e").is_err() && Quantity::from_text("1e99").is_err());
        assert!(page_table_schema().to_string().contains("exclusiveMinimum"), "nothing is no capacity");
        assert!(Quantity::from_text("0").is_err() && Quantity::from_text("3MB").is_err());
    }
}
