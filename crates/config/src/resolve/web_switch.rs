//! The web switch: defaults derived from the classes, and whether the nodes can be partitioned.

use std::time::Duration;

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{Context, Defaulted, Mark, Optional};
use weirgate_spanned_yaml::errors::listed;
use weirgate_spanned_yaml::unit::{Amount, Share, Span, number_text};

use super::class::Classes;
use super::upstream::Pools;
use crate::file::{Dispatch, DynamicPart, LoadWord, PolicyFile, ServerLoad, SetSizes};

/// Shortest and longest period. The arrivals of less than a second say nothing about the demand, and a period
/// of more than an hour is of no use.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

pub(super) fn check_busy(busy: &Defaulted<Share>, cx: &mut Context) {
    let Share(share) = *busy.get();
    if share < 0.1 {
        let what = format!("nodes that are at most {} % busy are idle", number_text(share * 100.0));
        cx.fail(busy.mark, what, "write a share from 10% to 100%; 80% is usual");
    }
}

pub(super) fn check_period(every: &Defaulted<Span>, cx: &mut Context) {
    let Span(span) = *every.get();
    if !(EVERY.0..=EVERY.1).contains(&span) {
        cx.fail(every.mark, "this period is too short or too long", "write one from 1s to 1h");
    }
}

/// Returns the fields of the sets, in the order of [`engine::ServiceSet::ALL`].
fn fields(form: &SetSizes) -> [&Optional<Amount>; 4] {
    [&form.top_static, &form.top_dynamic, &form.normal_static, &form.normal_dynamic]
}

/// Returns the relative sizes, if any is given. [`check`] reports a set that lacks one and has a class; another set may
/// have any size.
pub(super) fn sizes(form: &SetSizes, cx: &mut Context) -> engine::Sizes {
    let sizes = fields(form).map(|field| {
        let Some(&Amount(size)) = field.get() else { return 1.0 };
        if size > 0.0 && size <= 1e6 {
            return size;
        }
        let what = "this size is out of range";
        cx.fail(field.mark, what, "write more than 0 and at most 1000000: its nodes, say");
        1.0
    });
    fields(form).iter().any(|field| field.given).then_some(sizes)
}

/// Parameters of refusal by load.
pub(super) struct Figures<'a> {
    threshold: &'a Optional<Amount>,
    omega: &'a Optional<Amount>,
    load: LoadWord,
    every: &'a Defaulted<Span>,
}

impl<'a> From<&'a ServerLoad> for Figures<'a> {
    fn from(form: &'a ServerLoad) -> Figures<'a> {
        let ServerLoad { threshold, omega, load, every } = form;
        Figures { threshold, omega, load: *load.get(), every }
    }
}

impl<'a> From<&'a DynamicPart> for Figures<'a> {
    fn from(form: &'a DynamicPart) -> Figures<'a> {
        let DynamicPart { threshold, omega, load, every, .. } = form;
        Figures { threshold, omega, load: *load.get(), every }
    }
}

/// Refusal by load, with missing parameters derived from the classes.
pub(super) fn server_load(form: Figures<'_>, classes: &Classes, mark: Mark, cx: &mut Context) -> engine::ServerLoad {
    let services: Vec<&engine::Class> =
        classes.classes.iter().chain(classes.templates.iter().map(|template| &template.class)).collect();
    let mut positive = |field: &Optional<Amount>| {
        let &Amount(figure) = field.get()?;
        if !(1e-3..=1e6).contains(&figure) {
            let what = format!("{} is out of range", number_text(figure));
            cx.fail(field.mark, what, "write a number from 0.001 to 1000000");
        }
        Some(figure)
    };
    let derived = engine::ServerLoad::derived(&services);
    let threshold = positive(form.threshold);
    let omega = positive(form.omega).unwrap_or(derived.omega);
    check_period(form.every, cx);
    if threshold.is_none() && !services.is_empty() {
        let lacks = match () {
            () if services.iter().all(|class| class.service_time.is_none()) => Some("no class has a `service_time`"),
            () if services.iter().all(|class| class.guarantee.response_time.is_none()) => {
                Some("no class has a `response_time`")
            }
            () => None,
        };
        if let Some(lacks) = lacks {
            let text = number_text(derived.threshold);
            let what = format!("{lacks}: a threshold of {text} static requests per CPU is a guess");
            cx.warn(mark, what, "give it, or write the `threshold` of your choice");
        }
    }
    let source = match form.load {
        LoadWord::Live => engine::LoadSource::Live,
        LoadWord::Reports => engine::LoadSource::Reports { every: form.every.get().0 },
    };
    engine::ServerLoad { threshold: threshold.unwrap_or(derived.threshold), omega, source }
}

/// Checks that every upstream can be partitioned as configured.
pub(super) fn check(
    file: &PolicyFile,
    pools: &Pools,
    classes: &Classes,
    discipline: &engine::Discipline,
    cx: &mut Context,
) {
    let upstreams = file.upstreams.get().map_or(&[][..], |u| &u.items);
    for (pool, upstream) in upstreams.iter().filter_map(|item| item.value.get()).enumerate() {
        use engine::Dispatch::{PartitionDynamic, PartitionStatic};
        if !matches!(pools.pools[pool].dispatch, PartitionStatic { .. } | PartitionDynamic { .. }) {
            continue;
        }
        let mark = upstream.dispatch.mark;
        if matches!(discipline.load_control, engine::LoadControl::WindowAdaptive(_)) {
            let what = "nodes that change their set have no window of their own to learn";
            let hint = "use `discipline: dynamic_part`, `static_part` or a load control with one window";
            cx.fail(mark, what, hint);
        }
        let services = classes.classes.iter().chain(classes.templates.iter().map(|template| &template.class));
        let has = |set: &engine::ServiceSet| {
            services.clone().any(|class| class.pool == pool && engine::ServiceSet::of(class) == *set)
        };
        let sets: Vec<engine::ServiceSet> = engine::ServiceSet::ALL.into_iter().filter(has).collect();
        let nodes = pools.nodes.iter().filter(|node| node.pool == pool).count();
        if nodes < sets.len() && !upstream.nodes.bad && !upstream.discover.given {
            let names = listed(sets.iter().map(|set| set.as_str()));
            let what = format!("{nodes} nodes cannot be divided over {} sets: {names}", sets.len());
            cx.fail(mark, what, "add nodes, or use `weighted_round_robin`, which divides nothing");
        }
        let form = match upstream.dispatch.get() {
            Dispatch::PartitionStatic(form) => form,
            Dispatch::PartitionDynamic(form) => form.sizes.get(),
            _ => continue,
        };
        let given = fields(form).map(|field| field.given);
        let lacking = |set: &&engine::ServiceSet| given.contains(&true) && !given[set.index()];
        for set in sets.iter().filter(lacking).filter(|_| !upstream.dispatch.bad) {
            let what = format!("the size of `{set}` is missing, and a class of this upstream belongs there");
            cx.fail(mark, what, format!("add `{set}:`, or leave all sizes out"));
        }
    }
}
