//! The web switch (Andreolini et al.): refusal by load, and nodes divided over sets of services.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::discipline::{defaults, one_of};
use crate::decode::{Context, Decode, Defaulted, Optional, record, unknown_word, words};
use crate::tree::{Node, Value};
use crate::unit::{Amount, Share, Span};

record! {
    /// Refusal by load: while the nodes' load per CPU exceeds a threshold, classes without a guarantee are refused.
    pub(crate) struct ServerLoad {
        /// Load per CPU beyond which they are refused, in static requests inside. By default that at which a top class
        /// of average demand reaches its limit: the least limit over the service time of static requests, and over
        /// 3 for a 95th percentile.
        threshold: Optional<Amount>,
        /// Static requests that a dynamic one counts as. By default the ratio of the classes' mean service times, or
        /// 10 if either is not agreed.
        omega: Optional<Amount>,
        /// Where the load comes from. `live` by default: what is ten seconds old is mostly wrong.
        load: Defaulted<LoadWord> = "live",
        /// With `load: reports`, how often collectors are asked; 1 s to 1 h. 10 s by default, as published.
        every: Defaulted<Span> = "10s",
    }
}

words! {
    /// Where the load of a node comes from.
    pub(crate) enum LoadWord {
        /// What the gateway sent there and has no answer to.
        Live = "live",
        /// What the node's collector counts: other clients too, but as it was at the last report.
        Reports = "reports",
    }
}

record! {
    /// Refusal by load, and nodes divided anew as the demand moves.
    pub(crate) struct DynamicPart {
        /// Load per CPU beyond which classes without a guarantee are refused, in static requests inside. By default
        /// that at which a top class of average demand reaches its limit.
        threshold: Optional<Amount>,
        /// Static requests that a dynamic one counts as. By default the ratio of the classes' mean service times, or
        /// 10 if either is not agreed.
        omega: Optional<Amount>,
        /// Where the load comes from.
        load: Defaulted<LoadWord> = "live",
        /// How often the division is looked at and, with `load: reports`, collectors are asked; 1 s to 1 h. 10 s by
        /// default, as published.
        every: Defaulted<Span> = "10s",
        /// Largest share of its CPUs that a set of top classes may keep busy. At 80 % requests take five times as long
        /// as on an idle node, and beyond it times grow fast.
        busy: Defaulted<Share> = "80%",
    }
}

/// How requests are spread over the nodes of an upstream.
#[derive(Clone, Debug)]
pub(crate) enum Dispatch {
    /// To the node with the fewest requests inside, relative to its weight.
    LeastOutstanding,
    /// In turns, in proportion to the weights.
    Wrr,
    /// Two nodes are drawn by weight; the less loaded one gets the request.
    PowerOfTwo,
    /// The nodes are divided over the sets of services, once.
    PartitionStatic(Box<SetSizes>),
    /// They are divided anew as the demand moves.
    PartitionDynamic(Box<PartitionDynamic>),
}

record! {
    /// A way to divide the nodes over the sets of services, with its figures: exactly one of the fields.
    pub(crate) struct DispatchForm {
        /// Divided once, in these relative sizes.
        partition_static: Optional<SetSizes>,
        /// Divided anew as the demand moves.
        partition_dynamic: Optional<PartitionDynamic>,
    }
}

record! {
    /// Relative sizes of the sets, one for each that the upstream's classes make up: classes with a guarantee are top
    /// ones, others normal; `content` says the rest. Without any the guarantees decide: throughput × service time for
    /// top sets, what is left for normal ones.
    pub(crate) struct SetSizes {
        /// Static content of classes with a guarantee.
        top_static: Optional<Amount>,
        /// Dynamic content of classes with a guarantee.
        top_dynamic: Optional<Amount>,
        /// Static content of classes without.
        normal_static: Optional<Amount>,
        /// Dynamic content of classes without.
        normal_dynamic: Optional<Amount>,
    }
}

record! {
    /// Figures of a division that moves.
    pub(crate) struct PartitionDynamic {
        /// How large the sets are at first.
        sizes: Defaulted<SetSizes> = {},
        /// How often the division is looked at; 1 s to 1 h. 10 s by default, as published.
        every: Defaulted<Span> = "10s",
        /// Largest share of its CPUs that a set of top classes may keep busy.
        busy: Defaulted<Share> = "80%",
    }
}

/// Words that name a way to spread, and what they mean.
const WORDS: [(&str, &str); 5] = [
    ("least_outstanding", "To the node with the fewest requests inside, relative to its weight."),
    ("wrr", "In turns, in proportion to the weights."),
    ("power_of_two", "Two nodes are drawn by weight; the less loaded one gets the request."),
    ("partition_static", "The nodes are divided over the sets of services, once."),
    ("partition_dynamic", "They are divided anew as the demand moves."),
];

impl Decode for Dispatch {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        match &node.value {
            Value::Text(text) => match &**text {
                "least_outstanding" => Some(Dispatch::LeastOutstanding),
                "wrr" => Some(Dispatch::Wrr),
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
                let bad = form.partition_static.bad || form.partition_dynamic.bad;
                let fields = vec![
                    ("partition_static", form.partition_static.value.map(|s| Dispatch::PartitionStatic(Box::new(s)))),
                    (
                        "partition_dynamic",
                        form.partition_dynamic.value.map(|d| Dispatch::PartitionDynamic(Box::new(d))),
                    ),
                ];
                one_of(fields, bad, cx)
            }
            _ => {
                cx.mismatch("`least_outstanding`, `wrr`, `power_of_two`, a partition or a map", node);
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
