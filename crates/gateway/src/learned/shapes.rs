//! The engine's learned state as JSON, and back. A record that cannot be is left out.

use std::time::Duration;

use weirgate_engine as engine;
use weirgate_wire::{
    LEARNED_VERSION, LearnedClass, LearnedNode, LearnedSize, LearnedState, LearnedTimes, LearnedWindow,
    MAX_LEARNED_KEY, key_digits, key_of_digits,
};

/// Longest span that a record may have: a century. A longer one is a mistake.
const MAX_SECONDS: f64 = 100.0 * 365.25 * 86_400.0;

/// Returns whether a class can be written.
pub(super) fn has_short_key(class: &engine::LearnedClass) -> bool {
    class.key.as_ref().is_none_or(|key| key.len() <= MAX_LEARNED_KEY)
}

/// Returns the JSON of what an engine has learned under the policy with this checksum.
pub(super) fn state(learned: &engine::Learned, checksum: String, unix_seconds: f64) -> LearnedState {
    LearnedState {
        version: LEARNED_VERSION,
        written_seconds: unix_seconds,
        checksum,
        classes: learned.classes.iter().map(class).collect(),
        windows: learned.windows.iter().map(window).collect(),
        nodes: learned.nodes.iter().map(node).collect(),
        routes: Vec::new(),
    }
}

fn class(known: &engine::LearnedClass) -> LearnedClass {
    LearnedClass {
        class: known.name.clone(),
        key: known.key.as_deref().map(key_digits),
        upstream: known.pool.clone(),
        age_seconds: known.age.as_secs_f64(),
        service_time_seconds: known.service_time.map(|span| span.as_secs_f64()),
        expected_seconds: known.expected.map(|(mean, _)| mean.as_secs_f64()),
        expected_percentile_seconds: known.expected.and_then(|(_, value)| Some(value?.as_secs_f64())),
        cost_seconds: known.cost,
        rate_full_in_seconds: known.rate_full_in.as_secs_f64(),
        times: known.times.map(|times| LearnedTimes {
            arrivals_per_second: times.arrivals_per_s,
            mean_seconds: times.mean,
            mean_square: times.square,
            completions: times.completions,
        }),
    }
}

fn window(known: &engine::LearnedWindow) -> LearnedWindow {
    LearnedWindow {
        upstreams: known.pools.clone(),
        resource: known.resource.clone(),
        age_seconds: known.age.as_secs_f64(),
        size: match known.size {
            engine::LearnedSize::Linear { size } => LearnedSize::Linear { size },
            engine::LearnedSize::Aimd { limit } => LearnedSize::Aimd { limit },
            engine::LearnedSize::Gradient { limit, long } => LearnedSize::Gradient { limit, long_seconds: long },
            engine::LearnedSize::Knee(engine::LearnedKnee { base, weight, slowdown, contended, reach }) => {
                LearnedSize::Adaptive { base, weight, slowdown, contended, reach }
            }
        },
    }
}

fn node(known: &engine::LearnedNode) -> LearnedNode {
    LearnedNode {
        upstream: known.pool.clone(),
        node: known.name.clone(),
        slowness: known.slowness,
        errors: known.errors,
        ejected_for_seconds: known.ejected_for.map(|span| span.as_secs_f64()),
        ejections: known.ejections,
    }
}

/// Returns a span. `None` if it is none.
fn span(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= MAX_SECONDS)
}

/// Returns what an engine can learn from JSON.
pub(super) fn learned(state: &LearnedState) -> engine::Learned {
    engine::Learned {
        classes: state.classes.iter().filter_map(class_of).collect(),
        windows: state.windows.iter().filter_map(window_of).collect(),
        nodes: state.nodes.iter().filter_map(node_of).collect(),
    }
}

fn class_of(known: &LearnedClass) -> Option<engine::LearnedClass> {
    let optional = |seconds: Option<f64>| seconds.map_or(Some(None), |seconds| span(seconds).map(Some));
    let (mean, percentile) = (optional(known.expected_seconds)?, optional(known.expected_percentile_seconds)?);
    let key = match &known.key {
        Some(digits) => Some(key_of_digits(digits)?),
        None => None,
    };
    Some(engine::LearnedClass {
        name: known.class.clone(),
        key,
        pool: known.upstream.clone(),
        age: span(known.age_seconds)?,
        service_time: optional(known.service_time_seconds)?,
        expected: mean.map(|mean| (mean, percentile)),
        cost: known.cost_seconds,
        rate_full_in: span(known.rate_full_in_seconds)?,
        times: known.times.map(|times| engine::LearnedTimes {
            arrivals_per_s: times.arrivals_per_second,
            mean: times.mean_seconds,
            square: times.mean_square,
            completions: times.completions,
        }),
    })
}

fn window_of(known: &LearnedWindow) -> Option<engine::LearnedWindow> {
    let size = match known.size {
        LearnedSize::Linear { size } => engine::LearnedSize::Linear { size },
        LearnedSize::Aimd { limit } => engine::LearnedSize::Aimd { limit },
        LearnedSize::Gradient { limit, long_seconds } => engine::LearnedSize::Gradient { limit, long: long_seconds },
        LearnedSize::Adaptive { base, weight, slowdown, contended, reach } => {
            engine::LearnedSize::Knee(engine::LearnedKnee { base, weight, slowdown, contended, reach })
        }
    };
    let (pools, resource) = (known.upstreams.clone(), known.resource.clone());
    Some(engine::LearnedWindow { pools, resource, age: span(known.age_seconds)?, size })
}

fn node_of(known: &LearnedNode) -> Option<engine::LearnedNode> {
    Some(engine::LearnedNode {
        pool: known.upstream.clone(),
        name: known.node.clone(),
        slowness: known.slowness,
        errors: known.errors,
        ejected_for: match known.ejected_for_seconds {
            Some(seconds) => Some(span(seconds)?),
            None => None,
        },
        ejections: known.ejections,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_survives_the_passage() {
        let times = engine::LearnedTimes { arrivals_per_s: 7.5, mean: 0.25, square: 0.125, completions: 64.0 };
        let second = Duration::from_secs(1);
        let class = engine::LearnedClass {
            name: "gold".into(),
            key: Some(vec![0, 255, b'a']),
            pool: "web".into(),
            age: second,
            service_time: Some(second / 4),
            expected: Some((second / 2, Some(second))),
            cost: Some(0.5),
            rate_full_in: second / 8,
            times: Some(times),
        };
        let plain = engine::LearnedClass { name: "rest".into(), ..engine::LearnedClass::default() };
        let sizes = [
            engine::LearnedSize::Linear { size: 7 },
            engine::LearnedSize::Aimd { limit: 7.5 },
            engine::LearnedSize::Gradient { limit: 7.5, long: 0.5 },
            engine::LearnedSize::Knee(engine::LearnedKnee {
                base: 7.5,
                weight: 2.0,
                slowdown: 1.5,
                contended: true,
                reach: 0.0,
            }),
        ];
        let window =
            |size| engine::LearnedWindow { pools: vec!["web".into()], resource: Some("cpu".into()), age: second, size };
        let node = engine::LearnedNode {
            pool: "web".into(),
            name: "n".into(),
            slowness: 1.5,
            errors: 0.25,
            ejected_for: Some(second),
            ejections: 2,
        };
        let learned = engine::Learned {
            classes: vec![class, plain],
            windows: sizes.map(window).to_vec(),
            nodes: vec![node, engine::LearnedNode::default()],
        };
        let text = state(&learned, "abc".into(), 1.5).to_json();
        let read = LearnedState::parse(text.as_bytes()).expect("its own text");
        assert_eq!(super::learned(&read), learned);
    }

    #[test]
    fn a_record_that_cannot_be_is_left_out() {
        let good = LearnedClass { class: "a".into(), ..LearnedClass::default() };
        let classes = vec![
            LearnedClass { age_seconds: -1.0, ..good.clone() },
            LearnedClass { age_seconds: 1e300, ..good.clone() },
            LearnedClass { expected_seconds: Some(-1.0), ..good.clone() },
            LearnedClass { key: Some("xy".into()), ..good.clone() },
            good,
        ];
        let nodes = vec![LearnedNode { ejected_for_seconds: Some(-1.0), ..LearnedNode::default() }];
        let learned = learned(&LearnedState { classes, nodes, ..LearnedState::default() });
        assert_eq!((learned.classes.len(), learned.nodes.len()), (1, 0));
    }
}
