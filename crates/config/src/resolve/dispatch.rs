//! How requests are spread over the nodes of an upstream.

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{Context, Defaulted};
use weirgate_spanned_yaml::unit::{Amount, Count, Share, Span, number_text};

use super::web_switch;
use crate::file::{Discipline, Dispatch, Lard, Upstream};
use crate::site::LocalityKeyOf;

/// More requests in flight than any single node serves.
const MAX_IN_FLIGHT: f64 = 1e6;

/// Returns the dispatch method of an upstream: its own, or else the discipline's.
pub(super) fn dispatch(upstream: &Upstream, discipline: &Discipline, cx: &mut Context) -> engine::Dispatch {
    let own = &upstream.dispatch;
    match (own.get(), discipline) {
        (_, Discipline::SwitchAdm(_)) if !own.given => engine::Dispatch::WeightedRoundRobin,
        (_, Discipline::StaticPart(_)) if !own.given => engine::Dispatch::PartitionStatic { sizes: None },
        (_, Discipline::DynamicPart(figures)) if !own.given => {
            engine::Dispatch::PartitionDynamic { sizes: None, resize: resize(&figures.every, &figures.busy) }
        }
        (Dispatch::LeastOutstanding, _) => engine::Dispatch::LeastOutstanding,
        (Dispatch::LeastLoaded(form), _) => engine::Dispatch::LeastLoaded { avoid_last: form.avoid_last.get().0 },
        (Dispatch::WeightedRoundRobin, _) => engine::Dispatch::WeightedRoundRobin,
        (Dispatch::Lard(form), _) => engine::Dispatch::Lard(lard(form, cx)),
        (Dispatch::PowerOfTwo, _) => engine::Dispatch::PowerOfTwo,
        (Dispatch::PartitionStatic(form), _) => {
            engine::Dispatch::PartitionStatic { sizes: web_switch::sizes(form, cx) }
        }
        (Dispatch::PartitionDynamic(form), _) => {
            web_switch::check_period(&form.every, cx);
            web_switch::check_busy(&form.busy, cx);
            let resize = resize(&form.every, &form.busy);
            engine::Dispatch::PartitionDynamic { sizes: web_switch::sizes(form.sizes.get(), cx), resize }
        }
    }
}

fn resize(every: &Defaulted<Span>, busy: &Defaulted<Share>) -> engine::Resize {
    engine::Resize { every: every.get().0, busy: busy.get().0 }
}

fn lard(form: &Lard, cx: &mut Context) -> engine::Lard {
    let mut figure = |field: &Defaulted<Amount>, min: f64| {
        let Amount(figure) = *field.get();
        if !(min..=MAX_IN_FLIGHT).contains(&figure) {
            let what = format!("{} requests in flight at a node is out of range", number_text(figure));
            cx.fail(field.mark, what, format!("write a number from {min} to 1000000"));
        }
        figure
    };
    let (idle, overload) = (figure(&form.idle, 0.0), figure(&form.overload, 0.0));
    let miss_cost = figure(&form.miss_cost, 1.0);
    if overload < idle {
        let what = format!("a node is overloaded at {} and idle up to {}", number_text(overload), number_text(idle));
        cx.fail(form.overload.mark, what, "write an `overload` that is not below `idle`");
    }
    let Count(max_keys) = *form.max_keys.get();
    if max_keys > engine::Lard::MAX_KEYS {
        let what = format!("a map of {max_keys} documents takes more than a gigabyte");
        cx.fail(form.max_keys.mark, what, format!("write at most {}", engine::Lard::MAX_KEYS));
    }
    engine::Lard { idle, overload, miss_cost, max_keys }
}

/// Returns the parts of a request that identify its document for the upstream's dispatch.
pub(super) fn locality_key(upstream: &Upstream) -> Option<LocalityKeyOf> {
    match upstream.dispatch.get() {
        Dispatch::Lard(form) if form.query.get().0 => Some(LocalityKeyOf::Query),
        Dispatch::Lard(_) => Some(LocalityKeyOf::Path),
        _ => None,
    }
}
