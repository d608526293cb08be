//! Faults: their kinds, machines and times.

use std::time::Duration;

use weirgate_spanned_yaml::decode::{At, Context, Mark};
use weirgate_spanned_yaml::errors::quoted;
use weirgate_spanned_yaml::unit::{Moment, Name, Share, span_text};

use super::names::{Names, index_of};
use crate::experiment::{Fault, FaultKind, Machine};
use crate::file::{ExperimentFile, FaultForm, FaultWord};

/// Returns the faults in order of time. `end` is the end of the run, if it is known.
pub(super) fn faults(
    file: &ExperimentFile,
    names: &Names,
    machines: &[Machine],
    end: Option<Duration>,
    cx: &mut Context,
) -> Vec<Fault> {
    let mut faults: Vec<(Fault, Mark)> = Vec::new();
    for At { value: form, mark, .. } in file.faults.get().map_or(&[][..], Vec::as_slice) {
        if let Some(fault) = fault(form, *mark, names, end, cx) {
            let shares = |machine: &&usize| machines.get(**machine).is_some_and(|machine| !machine.shared.is_empty());
            if let (FaultKind::Slow(_) | FaultKind::Stall, Some(machine)) =
                (fault.kind, fault.machines.iter().find(shares))
            {
                let what =
                    format!("other addresses may have the servers of machine {}", quoted(&machines[*machine].name));
                let hint = "write how their `speed:` changes: `[1, { at: 60s, speed: 0.2 }]`; an address can be `removed`, \
                            `crash` or `fail_fast`";
                cx.fail(form.fault.mark, what, hint);
            }
            for (other, first) in &faults {
                overlap(&fault, *mark, other, *first, names, cx);
            }
            faults.push((fault, *mark));
        }
    }
    let mut faults: Vec<Fault> = faults.into_iter().map(|(fault, _)| fault).collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn fault(form: &FaultForm, mark: Mark, names: &Names, end: Option<Duration>, cx: &mut Context) -> Option<Fault> {
    let word = form.fault.get().copied();
    let kind = word.and_then(|word| kind(form, word, mark, cx));
    let everywhere =
        matches!(word, Some(FaultWord::LostReports | FaultWord::Reload | FaultWord::Restart | FaultWord::Takeover));
    let machines = match form.machines.get() {
        Some(words) if everywhere => {
            let what = "this fault is the gateway's, not one machine's";
            cx.fail(form.machines.mark, what, "remove `machines:`");
            drop(names.machines(words, cx));
            Vec::new()
        }
        Some(words) => names.machines(words, cx),
        None => {
            if word.is_some() && !everywhere && !form.machines.given {
                cx.fail_in(mark, "machines", "this field is missing", "say which: a name, a list, or `all`");
            }
            Vec::new()
        }
    };
    let classes = classes(form, word, names, cx);
    let until = form.until.get().map(|&Moment(until)| until);
    if until.is_some() && word == Some(FaultWord::Reload) {
        cx.fail(form.until.mark, "a policy is loaded in no time", "remove `until:`");
    }
    if until.is_some() && matches!(word, Some(FaultWord::Restart | FaultWord::Takeover)) {
        cx.fail(form.until.mark, "another process takes over in no time", "remove `until:`");
    }
    let &Moment(at) = form.at.get()?;
    if until.is_some_and(|until| until <= at) {
        let what = format!("this ends before it begins at {}", span_text(at));
        cx.fail(form.until.mark, what, "`until` counts from the start of the run, as `at` does");
    }
    if let Some(end) = end {
        if at >= end {
            let what = format!("this begins at {}, and the run ends at {}", span_text(at), span_text(end));
            cx.fail(form.at.mark, what, "begin earlier, or make the last phase longer");
        } else if until.is_some_and(|until| until > end) {
            let what = format!("the run ends before this, at {}", span_text(end));
            cx.warn(form.until.mark, what, "leave `until:` out, or make the last phase longer");
        }
    }
    Some(Fault { at, until, kind: kind?, machines, classes })
}

/// Returns the indices of the classes with failing requests, where templates count after all classes.
fn classes(form: &FaultForm, word: Option<FaultWord>, names: &Names, cx: &mut Context) -> Vec<usize> {
    if form.class.given && word.is_some_and(|word| word != FaultWord::FailFast) {
        cx.fail(form.class.mark, "only `fault: fail_fast` is of classes", "remove it");
    }
    let known: Vec<String> = names.classes.iter().chain(&names.templates).cloned().collect();
    let named = form.class.get().map_or(&[][..], |named| &named.0);
    let of = |At { value, mark, .. }: &At<Name>| index_of("class", &value.0, &known, names.all_classes, *mark, cx);
    let mut classes: Vec<usize> = named.iter().filter_map(of).collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

/// Returns the kind of fault with its parameter.
fn kind(form: &FaultForm, word: FaultWord, mark: Mark, cx: &mut Context) -> Option<FaultKind> {
    if form.speed.given && word != FaultWord::Slow {
        cx.fail(form.speed.mark, "only `fault: slow` has a speed", "remove it");
    }
    if form.share.given && word != FaultWord::FailFast {
        cx.fail(form.share.mark, "only `fault: fail_fast` has a share", "remove it");
    }
    Some(match word {
        FaultWord::Removed => FaultKind::Removed,
        FaultWord::Crash => FaultKind::Crash,
        FaultWord::Stall => FaultKind::Stall,
        FaultWord::Slow => match form.speed.get() {
            Some(&Share(speed)) if speed > 0.0 => FaultKind::Slow(speed),
            Some(_) => {
                cx.fail(form.speed.mark, "a machine without speed is stalled", "write `fault: stall`");
                return None;
            }
            None => {
                if !form.speed.given {
                    let hint = "say what is left of it, such as `speed: 20%`";
                    cx.fail_in(mark, "speed", "this field is missing", hint);
                }
                return None;
            }
        },
        FaultWord::FailFast => FaultKind::FailFast(form.share.get().0),
        FaultWord::LostReports => FaultKind::LostReports,
        FaultWord::Reload => FaultKind::Reload,
        FaultWord::Restart => FaultKind::Restart { follows: false },
        FaultWord::Takeover => FaultKind::Restart { follows: true },
    })
}

/// Complains if two faults of the same kind overlap on a machine, because their common end would be ambiguous.
fn overlap(fault: &Fault, mark: Mark, other: &Fault, first: Mark, names: &Names, cx: &mut Context) {
    let same = std::mem::discriminant(&fault.kind) == std::mem::discriminant(&other.kind);
    let before = |a: &Fault, b: &Fault| a.until.is_some_and(|until| until <= b.at);
    if !same
        || matches!(fault.kind, FaultKind::Reload | FaultKind::Restart { .. })
        || before(fault, other)
        || before(other, fault)
    {
        return;
    }
    let line = cx.position(first).line;
    let apart =
        |a: &Fault, b: &Fault| !a.classes.is_empty() && !a.classes.iter().any(|class| b.classes.contains(class));
    // Shares of different classes, or of one class and of all, may fail at the same time.
    if apart(fault, other) || apart(other, fault) {
        return;
    }
    let shared = fault.machines.iter().find(|machine| other.machines.contains(machine));
    let what = match shared.and_then(|&machine| names.machines.get(machine)) {
        Some(machine) => {
            format!("the same is wrong with machine {} in line {line} at that time", quoted(&machine.name))
        }
        None if fault.kind == FaultKind::LostReports => format!("reports are lost in line {line} at that time already"),
        None => return,
    };
    cx.fail(mark, what, "make one end before the other begins");
}
