//! Phases, and their published figures.

use std::collections::BTreeMap;
use std::time::Duration;

use weirgate_spanned_yaml::decode::{At, Context, Mark};
use weirgate_spanned_yaml::errors::listed;
use weirgate_spanned_yaml::unit::{Amount, Frequency, Share, Span, span_text};

use super::names::{Names, index_of};
use crate::experiment::{Phase, Published};
use crate::file::{Curve, ExperimentFile};

/// Longest run. A day of virtual time takes minutes to simulate, and a longer run is a wrong unit.
const MAX_RUN: Duration = Duration::from_secs(86_400);

/// Returns the phases in order.
pub(super) fn phases(file: &ExperimentFile, cx: &mut Context) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    let mut names: BTreeMap<&str, Mark> = BTreeMap::new();
    let settle = file.settle.get().0;
    let mut from = Duration::ZERO;
    for At { value: form, mark, .. } in file.phases.get().map_or(&[][..], Vec::as_slice) {
        let (Some(name), Some(&Span(until))) = (form.name.get(), form.until.get()) else { continue };
        let judged = form.judged.get().0;
        if let Some(first) = names.insert(&name.0, form.name.mark) {
            let what = format!("the name `{}` is taken by the phase in line {}", name.0, cx.position(first).line);
            cx.fail(form.name.mark, what, "give each phase its own name");
        }
        if until <= from {
            let what = format!("this phase ends at {}, before it begins at {}", span_text(until), span_text(from));
            cx.fail(form.until.mark, what, "put the phases in order of time; `until` counts from the start of the run");
        } else if judged && until - from <= settle && !file.settle.bad {
            let (long, settle) = (span_text(until - from), span_text(settle));
            let what = format!("the phase takes {long}, and its first {settle} are judged apart: nothing is left");
            cx.warn(*mark, what, "make it longer, shorten `settle:`, or write `judged: false`");
        }
        if until > MAX_RUN {
            let what = format!("the run would take {} h", until.as_secs() / 3_600);
            cx.fail(form.until.mark, what, "write at most 24h");
        }
        from = until.max(from);
        let x = form.x.get().map(|&Amount(x)| x);
        phases.push(Phase { name: name.0.clone(), until, judged, x });
    }
    axis(file, cx);
    if phases.iter().all(|phase| !phase.judged) && !file.phases.bad && !phases.is_empty() {
        cx.warn(file.phases.mark, "no phase is judged", "leave out `judged: false` somewhere");
    }
    phases
}

/// Checks the axis and the coordinates of the phases on it.
fn axis(file: &ExperimentFile, cx: &mut Context) {
    let forms = file.phases.get().map_or(&[][..], Vec::as_slice);
    let mut taken: Vec<(f64, Mark)> = Vec::new();
    for At { value: form, .. } in forms {
        let Some(&Amount(x)) = form.x.get() else { continue };
        if let Some((_, first)) = taken.iter().find(|(other, _)| *other == x) {
            let what = format!("`x: {x}` is taken by the phase in line {}", cx.position(*first).line);
            cx.fail(form.x.mark, what, "give each phase its own place on the axis");
        }
        taken.push((x, form.x.mark));
    }
    let points = forms.iter().any(|At { value: form, .. }| form.judged.get().0 && (form.x.given || form.x.bad));
    match (file.axis.get(), taken.first()) {
        (Some(axis), _) if axis.0.trim().is_empty() => {
            cx.fail(file.axis.mark, "the axis has no name", "say what `x` counts, as in `axis: clients`");
        }
        (Some(_), _) if !points && !file.phases.bad => {
            let hint = "give the phases their `x:`, or leave out `axis:`";
            cx.fail(file.axis.mark, "no judged phase has a place on this axis", hint);
        }
        (None, Some((_, mark))) if !file.axis.given => {
            let hint = "say at the top what `x` counts, as in `axis: clients`, or leave it out";
            cx.fail(*mark, "there is no axis for this `x`", hint);
        }
        _ => {}
    }
}

/// Returns the published figures. Those of one entry and one phase are combined.
pub(super) fn published(file: &ExperimentFile, phases: &[Phase], names: &Names, cx: &mut Context) -> Vec<Published> {
    let known: Vec<String> = phases.iter().map(|phase| phase.name.clone()).collect();
    let complete = !file.phases.bad;
    let mut published = Vec::new();
    for At { value: form, mark, bad, .. } in file.published.get().map_or(&[][..], Vec::as_slice) {
        if !(form.served.given || form.response_time.given || form.shed.given || *bad) {
            let hint = "give it `served:`, `response_time:` or `shed:`";
            cx.fail(*mark, "nothing is published here", hint);
        }
        let phase = form.phase.get().and_then(|name| index_of("phase", &name.0, &known, complete, form.phase.mark, cx));
        let class = form
            .class
            .get()
            .and_then(|name| index_of("class", &name.0, &names.classes, names.all_classes, form.class.mark, cx));
        let alone = is_one(form.served.get()) || is_one(form.response_time.get()) || is_one(form.shed.get());
        match (form.phase.given, alone) {
            (false, true) => {
                let hint = "add `phase:`, or write points: `[[x, figure], …]`";
                cx.fail_in(*mark, "phase", "this field is missing", hint);
            }
            (true, false) if !bad => {
                let what = "there is no figure for this phase: points say with their `x` where they belong";
                cx.fail(form.phase.mark, what, "leave out `phase:`");
            }
            _ => {}
        }
        let served = figures(form.served.get(), phase, phases, complete, cx);
        let response = figures(form.response_time.get(), phase, phases, complete, cx);
        let shed = figures(form.shed.get(), phase, phases, complete, cx);
        let Some(class) = class else { continue };
        let mut own: Vec<Published> = Vec::new();
        let mut of = |phase: usize| {
            let known = own.iter().position(|figure| figure.phase == phase).unwrap_or(own.len());
            if known == own.len() {
                let discipline = form.discipline.get().0.clone();
                let [served_per_s, response_time_ms, shed] = [None; 3];
                own.push(Published { discipline, phase, class, served_per_s, response_time_ms, shed });
            }
            known
        };
        let served: Vec<(usize, f64)> = served.into_iter().map(|(at, Frequency(rate))| (of(at), rate)).collect();
        let response: Vec<(usize, f64)> =
            response.into_iter().map(|(at, Span(time))| (of(at), time.as_secs_f64() * 1e3)).collect();
        let shed: Vec<(usize, f64)> = shed.into_iter().map(|(at, Share(share))| (of(at), share)).collect();
        served.into_iter().for_each(|(at, rate)| own[at].served_per_s = Some(rate));
        response.into_iter().for_each(|(at, time)| own[at].response_time_ms = Some(time));
        shed.into_iter().for_each(|(at, share)| own[at].shed = Some(share));
        own.sort_by_key(|figure| figure.phase);
        published.extend(own);
    }
    published
}

fn is_one<T>(curve: Option<&Curve<T>>) -> bool {
    matches!(curve, Some(Curve::One(_)))
}

/// Returns published values, each with its phase. A point belongs to the phase with the same `x`.
fn figures<T: Copy>(
    curve: Option<&Curve<T>>,
    phase: Option<usize>,
    phases: &[Phase],
    complete: bool,
    cx: &mut Context,
) -> Vec<(usize, T)> {
    let points = match curve {
        None => return Vec::new(),
        Some(Curve::One(figure)) => return phase.map(|phase| (phase, *figure)).into_iter().collect(),
        Some(Curve::Points(points)) => points,
    };
    let mut figures: Vec<(usize, T)> = Vec::with_capacity(points.len());
    for At { value: (x, figure), mark, .. } in points {
        match phases.iter().position(|phase| phase.x == Some(*x)) {
            Some(phase) if figures.iter().any(|(other, _)| *other == phase) => {
                let what = format!("there are two points with the x {x}");
                cx.fail(*mark, what, "write one figure for each x");
            }
            Some(phase) => figures.push((phase, *figure)),
            None if complete => {
                let known: Vec<String> = phases.iter().filter_map(|p| p.x.map(|x| x.to_string())).collect();
                let hint = match known.as_slice() {
                    [] => "give the phases their `x:`".to_owned(),
                    some => format!("known here: {}", listed(some.iter().map(String::as_str))),
                };
                cx.fail(*mark, format!("no phase has `x: {x}`"), hint);
            }
            None => {}
        }
    }
    figures
}
