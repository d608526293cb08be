//! Values that change over time: one value, or a list of values, each with the instant from which it holds.

use schemars::{JsonSchema, json_schema};
use weirgate_spanned_yaml::decode::{At, Context, Decode, Defaulted, Required, StepName};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Frequency, Moment, Speed};
use weirgate_spanned_yaml::{inline_schema, record};

use super::demand::Demand;

/// A value over time as steps in the order of the file. There is at least one step.
#[derive(Clone, Debug)]
pub(crate) struct Changing<T>(pub(crate) Vec<At<Step<T>>>);

/// One step: from `at` the value changes in a straight line for `over`, and then it is `figure`.
#[derive(Clone, Debug)]
pub(crate) struct Step<T> {
    pub(crate) at: Moment,
    pub(crate) over: Moment,
    pub(crate) figure: T,
}

/// A value that may change over time.
pub(crate) trait Figure: Decode + JsonSchema {
    /// The map that gives the value and its start time.
    type Map: Decode + JsonSchema;
    /// Name of the value's field in that map.
    const FIELD: &'static str;

    /// Returns the step that the map describes, or `None` if the map lacks the value, which was reported.
    fn step(map: Self::Map) -> Option<Step<Self>>;
}

/// Declares the map of a value that may change.
macro_rules! figure {
    ($(#[doc = $about:literal])+ $Map:ident { $(#[doc = $doc:literal])+ $field:ident: $Figure:ident }) => {
        record! {
            $(#[doc = $about])+
            pub(crate) struct $Map {
                /// Start time, from the start of the run.
                at: Defaulted<Moment> = "0s",
                /// Duration of the change, in a straight line. An immediate step by default.
                over: Defaulted<Moment> = "0s",
                $(#[doc = $doc])+
                $field: Required<$Figure>,
            }
        }

        impl Figure for $Figure {
            type Map = $Map;
            const FIELD: &'static str = stringify!($field);

            fn step(map: $Map) -> Option<Step<$Figure>> {
                Some(Step { at: *map.at.get(), over: *map.over.get(), figure: map.$field.value.0? })
            }
        }
    };
}

figure! {
    /// A rate from an instant on.
    RateFrom {
        /// Mean requests per second.
        rate: Frequency
    }
}

figure! {
    /// A number of users from an instant on.
    UsersFrom {
        /// Number of users.
        users: Amount
    }
}

figure! {
    /// A demand from an instant on.
    DemandFrom {
        /// Cost of a request.
        demand: Demand
    }
}

figure! {
    /// A speed from an instant on.
    SpeedFrom {
        /// Speed as a multiple of a nominal CPU.
        speed: Speed
    }
}

impl<T: Figure> Step<T> {
    /// Decodes either form: the value alone, which holds from the start, or its map.
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let own = |key: &str| key == "at" || key == "over" || key == T::FIELD;
        match &node.value {
            Value::Map(entries) if entries.iter().any(|entry| own(&entry.key)) => {
                T::Map::decode(node, cx).and_then(T::step)
            }
            _ => T::decode(node, cx).map(|figure| Step { at: START, over: START, figure }),
        }
    }
}

const START: Moment = Moment(std::time::Duration::ZERO);

impl<T: Figure> Decode for Changing<T> {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let one = |node: &Node, cx: &mut Context| {
            let before = cx.problems.reports();
            let value = Step::decode(node, cx)?;
            Some(At { value, mark: cx.here(), bad: cx.problems.reports() > before, given: true })
        };
        let Value::List(nodes) = &node.value else { return one(node, cx).map(|step| Changing(vec![step])) };
        if nodes.is_empty() {
            cx.complain(Complaint::new("this list is empty", "give it at least one item"));
            return None;
        }
        let mut steps = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            steps.extend(cx.within(StepName::Index(index), node.position, |cx| one(node, cx)).0);
        }
        Some(Changing(steps))
    }
}

inline_schema! {
    <T: Figure> Changing<T>: |generator| {
        let one = json_schema!({ "anyOf": [generator.subschema_for::<T>(), generator.subschema_for::<T::Map>()] });
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}
