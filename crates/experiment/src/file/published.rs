//! Published figures: one value for a phase, or the points of a curve.

use schemars::{JsonSchema, json_schema};
use weirgate_spanned_yaml::decode::{At, Context, Decode, Defaulted, Optional, Required, StepName};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Frequency, Name, Share, Span};
use weirgate_spanned_yaml::{inline_schema, record};

record! {
    /// Published figures of one class: a value for one phase, or points `[x, value]` on the axis.
    pub(crate) struct PublishedForm {
        /// The discipline that the figures are from.
        discipline: Defaulted<Name> = "quorum",
        /// The phase. Leave it out for points, which are placed by their `x`.
        phase: Optional<Name>,
        /// The class.
        class: Required<Name>,
        /// Requests served per second.
        served: Optional<Curve<Frequency>>,
        /// The guaranteed statistic of the response time, or its mean if none is guaranteed.
        response_time: Optional<Curve<Span>>,
        /// Share of the requests that were turned away.
        shed: Optional<Curve<Share>>,
    }
}

/// A published value, or the points of a curve.
#[derive(Clone, Debug)]
pub(crate) enum Curve<T> {
    /// A value for the named phase.
    One(T),
    /// Points on the axis.
    Points(Vec<At<(f64, T)>>),
}

impl<T: Decode> Decode for Curve<T> {
    fn decode(node: &Node, cx: &mut Context) -> Option<Self> {
        let Value::List(nodes) = &node.value else { return T::decode(node, cx).map(Curve::One) };
        if nodes.is_empty() {
            cx.complain(Complaint::new("this list is empty", "give it at least one point `[x, figure]`"));
            return None;
        }
        let mut points = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let (value, mark) = cx.within(StepName::Index(index), node.position, |cx| point(node, cx));
            points.extend(value.map(|value| At { value, mark, bad: false, given: true }));
        }
        Some(Curve::Points(points))
    }
}

/// Decodes a point `[x, value]`.
fn point<T: Decode>(node: &Node, cx: &mut Context) -> Option<(f64, T)> {
    let Value::List(pair) = &node.value else {
        cx.mismatch("a point `[x, figure]`", node);
        return None;
    };
    let [x, figure] = pair.as_slice() else {
        let what = format!("a point has two parts, this one has {}", pair.len());
        cx.complain(Complaint::new(what, "write `[x, figure]`"));
        return None;
    };
    let (x, _) = cx.within(StepName::Index(0), x.position, |cx| Amount::decode(x, cx));
    let (figure, _) = cx.within(StepName::Index(1), figure.position, |cx| T::decode(figure, cx));
    x.zip(figure).map(|(Amount(x), figure)| (x, figure))
}

inline_schema! {
    <T: JsonSchema> Curve<T>: |generator| {
        let figure = generator.subschema_for::<T>();
        let part = json_schema!({ "anyOf": [generator.subschema_for::<Amount>(), figure] });
        let point = json_schema!({ "type": "array", "items": part, "minItems": 2, "maxItems": 2 });
        json_schema!({ "anyOf": [figure, { "type": "array", "items": point, "minItems": 1 }] })
    }
}
