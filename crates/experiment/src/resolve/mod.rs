//! From the typed experiment file to the [`Experiment`] that the simulator and the lab run.
//!
//! As for the policy, names are bound, steps are put in order, and everything is checked that needs more than
//! one field. A part that the decoder found invalid is skipped.

mod documents;
mod faults;
mod grid;
mod machines;
mod names;
mod pages;
mod phases;
mod reload;
mod reserves;
mod trace;
mod traffic;

use std::path::Path;

use names::Names;
use weirgate_config::embed::Resolved;
use weirgate_spanned_yaml::decode::{Context, Mark};
use weirgate_spanned_yaml::errors::quoted;

use crate::experiment::{Experiment, TrafficClass};
use crate::file::ExperimentFile;

/// Binds and checks everything. `policy` is the resolved policy, if it is valid. `stem` is the file's name
/// without folder and extension, and `folder` is the folder that traces are read from. Returns `None` if
/// anything is invalid, here or in an earlier step.
pub(crate) fn resolve_experiment(
    file: &ExperimentFile,
    policy: Option<Resolved>,
    stem: &str,
    folder: &Path,
    cx: &mut Context,
) -> Option<Experiment> {
    let others = reload::others(file, cx);
    // A variant that no run uses is checked too.
    for variant in file.disciplines.get().map_or(&[][..], |named| &named.items) {
        if let Some(figures) = variant.value.get() {
            figures.check(variant.value.mark, cx);
        }
    }
    let names = Names::of(file, policy.as_ref().map(|resolved| &resolved.site));
    let phases = phases::phases(file, cx);
    let end = phases.last().map(|phase| phase.until).filter(|_| !file.phases.bad);
    let machines = machines::machines(file, &names, end, cx);
    let traffic = traffic::traffic(file, &names, end, folder, cx);
    let faults = faults::faults(file, &names, &machines, end, cx);
    let grid = grid::grid(file, cx);
    let published = phases::published(file, &phases, &names, cx);
    let reserves = reserves::reserves(file, &names, &machines, cx);
    let first = policy.as_ref().map(|resolved| &resolved.site);
    let reloads = reload::reloads(others, first, (&phases, !file.phases.bad), cx);
    if cx.problems.reports() > 0 {
        return None;
    }
    let Resolved { site, class_marks } = policy?;
    warn_of_silence(&class_marks, &traffic, &names, cx);
    let machine_of = site.policy.nodes.iter().map(|node| names.machine(&node.machine)).collect::<Option<_>>()?;
    let name = file.name.get().map_or_else(|| stem.to_owned(), |name| name.0.clone());
    Some(Experiment {
        title: file.title.get().map_or_else(|| name.clone(), |title| title.0.clone()),
        name,
        site,
        machines,
        machine_of,
        network_delay: file.network_delay.get().0,
        traffic,
        phases,
        axis: file.axis.get().map(|axis| axis.0.clone()),
        settle: file.settle.get().0,
        faults,
        reloads,
        grid,
        published,
        reserves,
    })
}

/// Warns about classes without traffic.
fn warn_of_silence(
    class_marks: &[Option<Mark>],
    traffic: &[crate::experiment::Traffic],
    names: &Names,
    cx: &mut Context,
) {
    for (class, mark) in class_marks.iter().enumerate() {
        let (Some(mark), Some(name)) = (mark, names.classes.get(class)) else { continue };
        if traffic.iter().all(|t| t.class != TrafficClass::Class(class)) {
            let what = format!("nothing in `traffic` is of class {}", quoted(name));
            cx.warn(*mark, what, "give it traffic, or leave the class out");
        }
    }
}
