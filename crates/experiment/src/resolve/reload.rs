//! Reloads of another policy, and the changes that it may make in the middle of a run.
//!
//! A run has one set of streams, machines and records, so the other policy must have the classes of the
//! first, by name and in the same order, and the same upstreams and nodes. Its discipline is ignored in
//! favour of the run's, because a comparison of disciplines must use the same guarantees. It may change the
//! settings that operators change: guarantees, service times, weights, limits of queues.

use weirgate_config::embed::warn_if_infeasible;
use weirgate_config::{ClassSite, Site};
use weirgate_spanned_yaml::decode::{Context, Mark};
use weirgate_spanned_yaml::errors::listed;
use weirgate_spanned_yaml::unit::Moment;
use weirgate_spanned_yaml::unit::span_text;

use crate::experiment::{Phase, Reload};
use crate::file::{DEFAULTS, ExperimentFile, FaultForm, FaultWord};

/// Another policy, if it is valid, and the fault that loads it.
pub(super) struct Other<'a> {
    form: &'a FaultForm,
    site: Option<Site>,
}

/// Resolves each policy that a fault loads. Call it before any complaint about the experiment, because a
/// policy resolved after a complaint counts as invalid.
pub(super) fn others<'a>(file: &'a ExperimentFile, cx: &mut Context) -> Vec<Other<'a>> {
    let faults = file.faults.get().map_or(&[][..], Vec::as_slice);
    let given = faults.iter().map(|fault| &fault.value).filter(|form| form.policy.given);
    let mut other = |form: &'a FaultForm| {
        let resolved = form.policy.get().and_then(|policy| policy.0.resolve(&DEFAULTS, cx));
        if let Some(resolved) = &resolved {
            warn_if_infeasible(resolved, cx);
        }
        Other { form, site: resolved.map(|resolved| resolved.site) }
    };
    given.map(&mut other).collect()
}

/// Returns the reloads in order of time, after comparing each with `first`, the policy at the top of the
/// file, if that is valid.
pub(super) fn reloads(
    others: Vec<Other<'_>>,
    first: Option<&Site>,
    (phases, complete): (&[Phase], bool),
    cx: &mut Context,
) -> Vec<Reload> {
    let mut reloads: Vec<Reload> = Vec::new();
    for Other { form, site } in others {
        if form.fault.get().is_some_and(|word| *word != FaultWord::Reload) {
            cx.fail(form.policy.mark, "only `fault: reload` loads a policy", "remove it");
        }
        let at = form.at.get().map(|&Moment(at)| at);
        if let Some(at) = at.filter(|at| complete && !at.is_zero() && phases.iter().all(|phase| phase.until != *at)) {
            let what = format!("no phase begins at {}, when other guarantees hold", span_text(at));
            let hint = "let one end and the next begin there, so that each is judged by its own";
            cx.fail(form.at.mark, what, hint);
        }
        let (Some(at), Some(other), Some(first)) = (at, site, first) else { continue };
        same(first, &other, form.policy.mark, cx);
        let mut policy = other.policy;
        policy.discipline = first.policy.discipline.clone();
        reloads.push(Reload { at, policy, position: cx.position(form.at.mark) });
    }
    reloads.sort_by_key(|reload| reload.at);
    reloads
}

/// Complains about every difference between the policies that a reload does not allow.
fn same(first: &Site, other: &Site, mark: Mark, cx: &mut Context) {
    let names = |site: &Site| -> Vec<String> { site.policy.all_classes().map(|class| class.name.clone()).collect() };
    if names(first) != names(other) {
        let list = |names: &[String]| listed(names.iter().map(String::as_str));
        let (ours, theirs) = (names(first), names(other));
        let what = format!("its classes are {}", list(&theirs));
        let hint = format!("give it those of the policy under test in their order, {}", list(&ours));
        return cx.fail(mark, what, hint);
    }
    let mut differs = Vec::new();
    if first.policy.nodes != other.policy.nodes
        || first.policy.pools != other.policy.pools
        || first.nodes != other.nodes
    {
        differs.push("its upstreams and nodes");
    }
    let pools =
        |site: &Site| site.pools.iter().map(|pool| (pool.health.clone(), pool.collector.clone())).collect::<Vec<_>>();
    if pools(first) != pools(other) {
        differs.push("the checks of its nodes");
    }
    let timeouts = |classes: &[ClassSite]| classes.iter().map(|class| class.timeouts).collect::<Vec<_>>();
    if timeouts(&first.classes) != timeouts(&other.classes) || timeouts(&first.templates) != timeouts(&other.templates)
    {
        differs.push("time limits of its classes");
    }
    let serves =
        |site: &Site| -> Vec<_> { site.policy.all_classes().map(|class| (class.pool, class.content)).collect() };
    if serves(first) != serves(other) {
        differs.push("where its classes are served");
    }
    if first.policy.resources != other.policy.resources || first.page_table != other.page_table {
        differs.push("its page table");
    }
    for what in differs {
        let what = format!("{what} are not those of the policy under test");
        cx.fail(mark, what, "a reload in an experiment changes guarantees and other figures of classes");
    }
}
