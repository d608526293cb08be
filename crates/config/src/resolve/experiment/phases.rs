//! Phases, and the published figures that belong to them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::names::{Names, index_of};
use crate::decode::{At, Context, Mark};
use crate::errors::Complaint;
use crate::experiment::{Phase, Published};
use crate::file::ExperimentFile;
use crate::resolve::span_text;
use crate::unit::{Frequency, Span};

/// Longest run. A day of virtual time is minutes of ours; more is a wrong unit.
const MAX_RUN: Duration = Duration::from_secs(86_400);

/// The phases in order.
pub(super) fn phases(file: &ExperimentFile, cx: &mut Context) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    let mut names: BTreeMap<&str, Mark> = BTreeMap::new();
    let settle = file.settle.get().0;
    let mut from = Duration::ZERO;
    for At { value: form, mark, .. } in file.phases.get().map_or(&[][..], Vec::as_slice) {
        let (Some(name), Some(&Span(until))) = (form.name.get(), form.until.get()) else { continue };
        let judged = form.judged.get().0;
        if let Some(first) = names.insert(&name.0, form.name.mark) {
            let what = format!("the name `{}` is taken by the phase in line {}", name.0, cx.place(first).line);
            cx.fail(form.name.mark, Complaint::new(what, "give each phase its own name"));
        }
        if until <= from {
            let what = format!("this phase ends at {}, before it begins at {}", span_text(until), span_text(from));
            cx.fail(
                form.until.mark,
                Complaint::new(what, "put the phases in order of time; `until` counts from the start of the run"),
            );
        } else if judged && until - from <= settle && !file.settle.bad {
            let (long, settle) = (span_text(until - from), span_text(settle));
            let what = format!("the phase takes {long}, and its first {settle} are judged apart: nothing is left");
            cx.warn(*mark, Complaint::new(what, "make it longer, shorten `settle:`, or write `judged: no`"));
        }
        if until > MAX_RUN {
            let what = format!("the run would take {} h", until.as_secs() / 3_600);
            cx.fail(form.until.mark, Complaint::new(what, "write at most 24h"));
        }
        from = until.max(from);
        phases.push(Phase { name: name.0.clone(), until, judged });
    }
    if phases.iter().all(|phase| !phase.judged) && !file.phases.bad && !phases.is_empty() {
        cx.warn(file.phases.mark, Complaint::new("no phase is judged", "leave out `judged: no` somewhere"));
    }
    phases
}

/// The published figures.
pub(super) fn published(file: &ExperimentFile, phases: &[Phase], names: &Names, cx: &mut Context) -> Vec<Published> {
    let known: Vec<String> = phases.iter().map(|phase| phase.name.clone()).collect();
    let mut published = Vec::new();
    for At { value: form, mark, bad, .. } in file.published.get().map_or(&[][..], Vec::as_slice) {
        let served_per_s = form.served.get().map(|&Frequency(rate)| rate);
        let response_time_ms = form.response_time.get().map(|span| span.0.as_secs_f64() * 1e3);
        if served_per_s.is_none() && response_time_ms.is_none() && !bad {
            let mend = "give it `served:` or `response_time:`";
            cx.fail(*mark, Complaint::new("nothing is published here", mend));
        }
        let phase =
            form.phase.get().and_then(|name| index_of("phase", &name.0, &known, !file.phases.bad, form.phase.mark, cx));
        let class = form
            .class
            .get()
            .and_then(|name| index_of("class", &name.0, &names.classes, names.all_classes, form.class.mark, cx));
        let (Some(phase), Some(class)) = (phase, class) else { continue };
        let discipline = form.discipline.get().0.clone();
        published.push(Published { discipline, phase, class, served_per_s, response_time_ms });
    }
    published
}
