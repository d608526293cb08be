//! Priorities (`priorities`): the table, and the initial priority of each class's requests.

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{At, Context, Defaulted, Mark, Optional};
use weirgate_spanned_yaml::errors::unknown;
use weirgate_spanned_yaml::unit::{Amount, Count, Name, number_text};

use crate::file::discipline::{Admit, Discipline, Precedence, PrecedenceWord};
use crate::file::{Class, PriorityForm};

/// Returns the priorities of a discipline, if its methods use them.
pub(super) fn priorities(file: &Discipline, cx: &mut Context) -> Vec<engine::PriorityLevel> {
    match file {
        Discipline::Seda(figures) => table(&figures.priorities, cx),
        Discipline::Custom(custom) => {
            let orders =
                |word: &PrecedenceWord| matches!(word.0, engine::Precedence::Reenqueue | engine::Precedence::Priority);
            let used = matches!(custom.admit.get(), Some(Admit::Thresholds(_)))
                || matches!(custom.precedence.get(), Some(Precedence::Text(word)) if orders(word));
            if used || custom.priorities.given { table(&custom.priorities, cx) } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// Slots per CPU: the requests in flight at a node per CPU.
pub(super) fn slots(field: &Defaulted<Amount>, cx: &mut Context) -> engine::LoadControl {
    /// A larger number would not limit anything.
    const MAX: f64 = 10_000.0;
    let Amount(per_cpu) = *field.get();
    if !(per_cpu > 0.0 && per_cpu <= MAX) {
        let what = format!("{} requests a CPU cannot be", number_text(per_cpu));
        cx.fail(field.mark, what, "write more than 0 and at most 10000; 1 is usual");
        return engine::Discipline::seda().load_control;
    }
    engine::LoadControl::Slots { per_cpu }
}

/// Returns the table of priorities, or the paper's if there is none.
fn table(field: &Optional<Vec<At<PriorityForm>>>, cx: &mut Context) -> Vec<engine::PriorityLevel> {
    let Some(list) = field.get() else { return engine::PriorityLevel::seda() };
    if list.is_empty() && !field.bad {
        cx.fail(field.mark, "this table is empty", "give it a priority, or remove it for the paper's three");
    }
    let names: Vec<&str> = list.iter().map(|item| item.value.name.get().map_or("", |name| name.0.as_str())).collect();
    let mut priorities: Vec<engine::PriorityLevel> = Vec::new();
    for (code, item) in list.iter().enumerate() {
        let file = &item.value;
        if !names[code].is_empty() && names[..code].contains(&names[code]) {
            let what = format!("the name `{}` is taken by an earlier priority", names[code]);
            cx.fail(file.name.mark, what, "give each priority its own name");
        }
        let Amount(threshold) = *file.threshold.get();
        if threshold <= 0.0 {
            let hint = "write more than 0: 1.5 is one and a half times `threshold`";
            cx.fail(file.threshold.mark, "this priority is never admitted to a queue", hint);
        }
        let reenqueued = match file.reenqueued.get() {
            None => code,
            Some(name) => named(name, &names, file.reenqueued.mark, cx).unwrap_or(code),
        };
        priorities.push(engine::PriorityLevel {
            name: names[code].to_owned(),
            rank: u32::try_from(code).unwrap_or(u32::MAX),
            threshold,
            quota: file.quota.get().map(|Count(max)| *max),
            beyond: file.beyond.get().0,
            handle: file.handle.get().0,
            reenqueued: u32::try_from(reenqueued).unwrap_or(0),
        });
    }
    for (code, item) in list.iter().enumerate() {
        if !item.bad && !engine::PriorityLevel::is_handled(&priorities, code) {
            let what = format!("requests of the priority `{}` are put back for ever", names[code]);
            cx.fail(item.mark, what, "name a priority in `reenqueued` that is handled in the end");
        }
    }
    if priorities.is_empty() { engine::PriorityLevel::seda() } else { priorities }
}

/// Returns the initial priority of a class's requests: the one it names, or else the highest (the table's
/// last) for a class with a guarantee and the lowest for best effort.
pub(super) fn priority(class: &Class, priorities: &[engine::PriorityLevel], cx: &mut Context) -> u32 {
    let last = priorities.len().saturating_sub(1);
    let code = match class.priority.get() {
        Some(name) if !priorities.is_empty() => {
            let names: Vec<&str> = priorities.iter().map(|priority| priority.name.as_str()).collect();
            named(name, &names, class.priority.mark, cx).unwrap_or(0)
        }
        // Another discipline is tried on a policy that names priorities, which then have no meaning.
        Some(_) => 0,
        None if class.guarantee.given => last,
        None => 0,
    };
    u32::try_from(code).unwrap_or(0)
}

/// Returns the index of a priority.
fn named(Name(name): &Name, names: &[&str], mark: Mark, cx: &mut Context) -> Option<usize> {
    let found = names.iter().position(|known| known == name);
    if found.is_none() {
        cx.report(mark, unknown("priority", name, names.iter().copied()));
    }
    found
}
