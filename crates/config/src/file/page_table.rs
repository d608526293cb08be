//! The page table: what requests take of the nodes' resources, by route.
//!
//! The same routes stand in the policy or in a file of their own, which `weirgate probe` writes.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;
use weirgate_pages::Pattern;
use weirgate_spanned_yaml::decode::{Context, Decode, Defaulted, FromText, Named, Optional, Required};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Answer, Bytes, Count, Share, Text, number_and_unit};
use weirgate_spanned_yaml::{record, text_schema};

/// How what requests take is known.
#[derive(Clone, Debug)]
pub(crate) enum PageTable {
    /// By watching the nodes alone.
    Learned,
    /// Its map. The path of a file alone has become one on the way.
    Table(Box<PageTableForm>),
}

record! {
    /// What requests take of the nodes' resources.
    pub(crate) struct PageTableForm {
        /// A page table that `weirgate probe` wrote; the path counts from the policy's folder.
        file: Optional<Included>,
        /// Are costs refined from what the nodes use: `yes` or `no`. Their agents must say that; see `collector`.
        learned: Defaulted<Answer> = "no",
        /// What 100 % of each resource is. By default what the file says, or else what the agents do.
        capacity: Optional<CapacityForm>,
        /// Routes, instead of those of the file or beside them.
        routes: Optional<Named<RouteText, RouteForm>>,
    }
}

record! {
    /// A page table as a file of its own.
    pub(crate) struct PageTableFile {
        /// The version of this format: 1.
        version: Required<Count>,
        /// When it was measured. For people.
        probed: Optional<Text>,
        /// Where it was measured. For people.
        server: Optional<Text>,
        /// What 100 % of each resource was.
        capacity: Optional<CapacityForm>,
        /// Routes: a path in which `*` stands for a segment, and if need be `?name=value&other=*`.
        routes: Required<Named<RouteText, RouteForm>>,
    }
}

record! {
    /// What a node has of each resource, per second, in the units in which its agent counts.
    pub(crate) struct CapacityForm {
        /// CPU-seconds: its CPUs.
        cpu: Optional<Quantity>,
        /// Bytes read and written.
        disk: Optional<Quantity>,
        /// Bytes sent.
        bandwidth: Optional<Quantity>,
    }
}

record! {
    /// What a request takes: per resource a share of what a node has of it in a second.
    pub(crate) struct CostForm {
        /// Of its processors.
        cpu: Defaulted<Cost> = "0%",
        /// Of its disks.
        disk: Defaulted<Cost> = "0%",
        /// Of its network.
        bandwidth: Defaulted<Cost> = "0%",
    }
}

record! {
    /// A route and what a request for it takes: per resource a share of what a node has of it in a second.
    pub(crate) struct RouteForm {
        /// Of its processors.
        cpu: Defaulted<Cost> = "0%",
        /// Of its disks.
        disk: Defaulted<Cost> = "0%",
        /// Of its network.
        bandwidth: Defaulted<Cost> = "0%",
        /// How sure that is, where it was measured. For people.
        confidence: Optional<Share>,
        /// From how many requests it was measured. For people.
        samples: Optional<Count>,
        /// When it was measured. For people.
        probed: Optional<Text>,
    }
}

/// What stands in place of the path of a file once that is read.
#[derive(Clone, Debug)]
pub(crate) struct Included(pub(crate) PageTableFile);

impl Decode for Included {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        PageTableFile::decode(node, cx).map(Included)
    }
}

impl JsonSchema for Included {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Included".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A route as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteText(pub(crate) Pattern);

/// A share of a node-second, up to four of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost(pub(crate) f64);

/// So much of anything: a number, or a size; more than zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantity(pub(crate) f64);

/// The largest cost that the engine tells apart from others.
const MOST: f64 = 4.0;

impl FromText for RouteText {
    const EXPECTED: &'static str = "a route such as `/album/*` or `/item.php?id=*`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        Pattern::parse(text).map(RouteText).map_err(|error| {
            let (what, mend) = error.rsplit_once(": ").unwrap_or((&error, "write a path from the root"));
            Complaint::new(what, mend)
        })
    }
}

impl FromText for Cost {
    const EXPECTED: &'static str = "a share of a node's second such as `9%` or `0.09`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        let share = match number_and_unit(text)? {
            (number, "") => number,
            (number, "%") => number / 100.0,
            _ => return Err(Complaint::new(format!("{} is no share", quoted(text)), "write `9%` or `0.09`")),
        };
        if share > MOST {
            let what = format!("{} is more than four seconds of a whole node", quoted(text));
            return Err(Complaint::new(what, "write at most `400%`"));
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

impl JsonSchema for PageTable {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PageTable".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let long = generator.subschema_for::<PageTableForm>();
        json_schema!({ "anyOf": [{ "const": "learned" }, { "type": "string", "description": "A file." }, long] })
    }
}

/// The JSON Schema of a page table's file.
#[must_use]
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
        assert!(Cost::from_text("500%").unwrap_err().mend.contains("400%"));
        assert!(Cost::from_text("9ms").is_err() && RouteText::from_text("album").is_err());
        assert_eq!(Quantity::from_text("1.5").map_err(|c| c.what), Ok(Quantity(1.5)));
        assert_eq!(Quantity::from_text("11.9MiB").map_err(|c| c.what), Ok(Quantity(11.9 * 1_048_576.0)));
        // Numbers as YAML and JSON have them.
        assert_eq!(Cost::from_text("1e-4").map_err(|c| c.what), Ok(Cost(0.0001)));
        assert_eq!(Quantity::from_text("1.25E+9").map_err(|c| c.what), Ok(Quantity(1.25e9)));
        assert!(Cost::from_text("1e").is_err() && Quantity::from_text("1e99").is_err());
        assert!(page_table_schema().to_string().contains("exclusiveMinimum"), "nothing is no capacity");
        assert!(Quantity::from_text("0").is_err() && Quantity::from_text("3MB").is_err());
    }
}
