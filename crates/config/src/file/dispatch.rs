//! How requests are spread over the nodes of an upstream.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_spanned_yaml::decode::{Context, Decode, Defaulted, Optional, unknown_word};
use weirgate_spanned_yaml::record;
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Answer, Count};

use super::discipline::{defaults, one_of};
use super::web_switch::{PartitionDynamic, SetSizes};

/// How requests are spread over the nodes of an upstream.
#[derive(Clone, Debug)]
pub(crate) enum Dispatch {
    /// To the node with the fewest requests in flight, relative to its weight.
    LeastOutstanding,
    /// To the least loaded node. Equally loaded nodes take turns.
    Wrr(Box<Wrr>),
    /// Weighted round robin.
    Turns,
    /// Two nodes are drawn by weight, and the less loaded one gets the request.
    PowerOfTwo,
    /// To the node that has the requested document in memory, unless that node is too busy.
    Lard(Box<Lard>),
    /// The nodes are partitioned over the service sets once.
    PartitionStatic(Box<SetSizes>),
    /// The nodes are partitioned again as the demand changes.
    PartitionDynamic(Box<PartitionDynamic>),
}

record! {
    /// A dispatch method with parameters: exactly one of the fields.
    pub(crate) struct DispatchForm {
        /// To the least loaded node. Equally loaded nodes take turns.
        wrr: Optional<Wrr>,
        /// To the node that has the requested document in memory, unless that node is too busy.
        lard: Optional<Lard>,
        /// Nodes partitioned once, in these relative sizes.
        partition_static: Optional<SetSizes>,
        /// Nodes partitioned again as the demand changes.
        partition_dynamic: Optional<PartitionDynamic>,
    }
}

record! {
    /// Parameters of least-loaded dispatch.
    pub(crate) struct Wrr {
        /// Whether a request avoids the node that got the class's last request, if another node can take it:
        /// `yes` or `no`.
        never_twice: Defaulted<Answer> = "no",
    }
}

record! {
    /// Parameters of locality-aware request distribution. The first three defaults are those of the paper's
    /// prototype.
    pub(crate) struct Lard {
        /// Requests in flight below which a node of mean weight has spare capacity.
        idle: Defaulted<Amount> = 30,
        /// Requests in flight above which a node is too slow for any request.
        overload: Defaulted<Amount> = 130,
        /// Cost of reading a document that is not in memory, in requests in flight. At least 1, the cost of a hit.
        miss_cost: Defaulted<Amount> = 50,
        /// Maximum number of documents for which the node is remembered. The least recently requested one is
        /// forgotten first. 100000 are three times the documents of the paper's trace and take about 6 MB.
        targets: Defaulted<Count> = 100000,
        /// Whether the query identifies the document, in addition to host and path: `yes` or `no`. `no` by
        /// default, because most queries select a computation on the same data.
        query: Defaulted<Answer> = "no",
    }
}

/// Words that name a dispatch method, and their meanings.
const WORDS: [(&str, &str); 7] = [
    ("least_outstanding", "To the node with the fewest requests inside, relative to its weight."),
    ("wrr", "To the least loaded node; equals take turns."),
    ("turns", "In turns, in proportion to the weights, whatever is inside."),
    ("power_of_two", "Two nodes are drawn by weight; the less loaded one gets the request."),
    ("lard", "To the node that has the target in memory, unless it is too busy."),
    ("partition_static", "The nodes are divided over the sets of services, once."),
    ("partition_dynamic", "They are divided anew as the demand moves."),
];

impl Decode for Dispatch {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) => match &**text {
                "least_outstanding" => Some(Dispatch::LeastOutstanding),
                "wrr" => defaults(node, cx).map(Dispatch::Wrr),
                "turns" => Some(Dispatch::Turns),
                "lard" => defaults(node, cx).map(Dispatch::Lard),
                "power_of_two" => Some(Dispatch::PowerOfTwo),
                "partition_static" => defaults(node, cx).map(Dispatch::PartitionStatic),
                "partition_dynamic" => defaults(node, cx).map(Dispatch::PartitionDynamic),
                word => {
                    cx.complain(unknown_word(word, &WORDS.map(|(word, _)| word)));
                    None
                }
            },
            Value::Map(_) => {
                let form = DispatchForm::decode(node, cx)?;
                let divided = form.partition_static.bad || form.partition_dynamic.bad;
                let bad = divided || form.wrr.bad || form.lard.bad;
                let fields = vec![
                    ("wrr", form.wrr.value.map(|w| Dispatch::Wrr(Box::new(w)))),
                    ("lard", form.lard.value.map(|l| Dispatch::Lard(Box::new(l)))),
                    ("partition_static", form.partition_static.value.map(|s| Dispatch::PartitionStatic(Box::new(s)))),
                    (
                        "partition_dynamic",
                        form.partition_dynamic.value.map(|d| Dispatch::PartitionDynamic(Box::new(d))),
                    ),
                ];
                one_of(fields, bad, cx)
            }
            _ => {
                cx.mismatch("`least_outstanding`, `wrr`, `turns`, `power_of_two`, `lard`, a partition or a map", node);
                None
            }
        }
    }
}

impl JsonSchema for Dispatch {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Dispatch".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let short = WORDS.map(|(word, about)| json_schema!({ "const": word, "description": about }));
        let long = generator.subschema_for::<DispatchForm>();
        let forms: Vec<Schema> = short.into_iter().chain([long]).collect();
        json_schema!({ "description": "How requests are spread over the nodes of an upstream.", "anyOf": forms })
    }
}
