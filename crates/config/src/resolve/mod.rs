//! From the typed file to the [`Site`] that the gateway runs.
//!
//! Here names are bound, patterns are compiled, and everything is checked that needs more than one field. A
//! part that the decoder found invalid is skipped, because its error is already reported. Errors found here
//! are reported at the field that you have to change. The result is used only if nothing was reported at all.

mod acme;
mod class;
mod discipline;
mod discover;
mod dispatch;
mod gateway;
mod headers;
mod learned_state;
mod listener;
mod lists;
mod mode;
mod page_table;
mod priorities;
mod reach;
mod reserves;
mod rule;
mod sharing;
mod trust;
mod upstream;
mod visitors;
mod web_switch;

use std::path::Path;

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{Context, Mark};
use weirgate_spanned_yaml::errors::Complaint;

use crate::embed::Defaults;
use crate::file::{Discipline, PolicyFile};
use crate::headers::HeaderRules;
use crate::site::Site;

/// The site, and the places of its classes and templates in the file.
#[derive(Debug)]
pub struct Resolved {
    /// The policy as the gateway runs it.
    pub site: Site,
    /// Place of each class of the policy. `None` for the default class, which the file does not contain.
    pub class_marks: Vec<Option<Mark>>,
}

/// Reports the faults of a discipline that stands outside a policy.
pub(crate) fn check_discipline(file: &Discipline, mark: Mark, cx: &mut Context) {
    let priorities = priorities::priorities(file, cx);
    discipline::discipline(file, mark, priorities, &class::Classes::default(), cx);
}

/// Binds and checks everything. Paths count from `folder`. `defaults` are for a policy that is part of another file,
/// which always has a gateway. Returns `None` if anything is invalid, here or in an earlier step.
pub(crate) fn resolve(
    file: &PolicyFile,
    folder: &Path,
    defaults: Option<&Defaults>,
    cx: &mut Context,
) -> Option<Resolved> {
    let has_gateway = defaults.is_some() || file.has_gateway();
    if has_gateway {
        gateway::needed(file, defaults, cx);
    }
    let all_listeners = listener::listeners(file, folder, defaults, cx);
    let listeners = &all_listeners.listeners;
    // A policy in another file describes a gateway elsewhere, as do the paths in it.
    let own_folder = defaults.is_none().then_some(folder);
    let trusted = defaults.is_some() || file.trust.given;
    let trusted_proxies = gateway::trusted_proxies(file, cx);
    let admin = if has_gateway { gateway::admin(file, listeners, trusted, cx) } else { None };
    let reserves = reserves::reserves(file, listeners, admin.as_ref(), trusted, cx);
    let limits = gateway::limits(file, cx);
    let timeouts = gateway::timeouts(file, cx);
    let forward = gateway::forward(file.forward.get());
    let headers = headers::rules(&file.request_headers, &file.response_headers, &HeaderRules::default(), cx);
    let learned_state = learned_state::learned_state(file, folder, admin.as_ref(), trusted, cx);
    let access_log = gateway::access_log(file, cx);
    let telemetry = gateway::telemetry(file, folder, own_folder.is_some(), cx);
    let threads = gateway::threads(file, cx);
    let pools = upstream::pools(file, own_folder, cx);
    let trust = trust::trust(file, own_folder, cx);
    if defaults.is_none() {
        trust::check_collectors(file, &pools, cx);
    }
    let visitors = visitors::visitors(file, own_folder, cx);
    let priorities = priorities::priorities(file.discipline.get(), cx);
    let mut classes = match has_gateway {
        true => class::classes(file, listeners, &pools, &priorities, &headers, (own_folder, defaults), cx),
        false => class::Classes::default(),
    };
    let sharing = sharing::sharing(file, own_folder, (listeners, admin.as_ref()), &classes, cx);
    sharing::divide_templates(&mut classes.templates, sharing.as_ref());
    let discipline = discipline::discipline(file.discipline.get(), file.discipline.mark, priorities, &classes, cx);
    web_switch::check(file, &pools, &classes, &discipline, cx);
    page_table::check_dispatch(file, &discipline, cx);
    let page_table = page_table::page_table(file, &discipline, cx);
    class::warn(file, &classes, &discipline, cx);
    all_listeners.warn_of_names(file, &classes.rules, cx);

    if cx.problems.reports() > 0 {
        return None;
    }
    let policy = engine::Policy {
        discipline,
        pools: pools.pools,
        nodes: pools.nodes,
        classes: classes.classes,
        templates: classes.templates,
        max_waiting: file.max_waiting.get().0,
        resources: page_table::resources(page_table.as_ref()),
        estimated: page_table.as_ref().is_some_and(|table| table.learned),
    };
    if has_gateway && let Err(error) = policy.validate() {
        // The checks above find the same errors with a place. This is the engine's own final check.
        cx.complain(Complaint::new(error.to_string(), "change the policy accordingly"));
        return None;
    }
    let site = Site {
        listeners: all_listeners.listeners,
        acme: all_listeners.acme,
        trusted_proxies,
        visitors,
        policy,
        rules: classes.rules,
        classes: classes.class_sites,
        templates: classes.template_sites,
        pools: pools.pool_sites,
        nodes: pools.node_sites,
        discover: pools.discover,
        limits,
        timeouts,
        forward,
        headers,
        admin,
        trust,
        learned_state,
        sharing,
        access_log,
        log: gateway::log(file),
        telemetry,
        drain_deadline: file.drain_deadline.get().0,
        threads,
        reserves,
        page_table,
    };
    Some(Resolved { site, class_marks: classes.class_marks })
}
