//! Disciplines: named choices of methods.

use weirgate_engine as engine;

use crate::decode::{Context, Defaulted, Mark};
use crate::errors::Complaint;
use crate::file::{Admit, Discipline, FixedWindow, GrowWhen, LinearWindow, LoadControl, Precedence, StaleEstimate};
use crate::unit::Count;

pub(super) fn discipline(file: &Discipline, mark: Mark, cx: &mut Context) -> engine::Discipline {
    match file {
        Discipline::None => engine::Discipline::none(),
        Discipline::Quorum(figures) => {
            let window = (&figures.delta, &figures.first_window, &figures.least_window, &figures.most_window);
            engine::Discipline {
                admit: engine::Admit::Deadline { stale: stale(*figures.stale_estimate.get()) },
                load_control: linear(window, *figures.grow.get(), mark, cx),
                ..engine::Discipline::quorum()
            }
        }
        Discipline::Custom(custom) => {
            let published = engine::Discipline::quorum();
            let admit = match custom.admit.get() {
                Some(Admit::None) | None => engine::Admit::None,
                Some(Admit::Deadline(estimate)) => engine::Admit::Deadline { stale: stale(*estimate) },
            };
            let load_control = match custom.load_control.get() {
                Some(LoadControl::Fixed(FixedWindow(window))) => engine::LoadControl::Fixed { window: *window },
                Some(LoadControl::Linear(l)) => {
                    let LinearWindow { delta, first_window, least_window, most_window, grow } = &**l;
                    let mark = custom.load_control.mark;
                    linear((delta, first_window, least_window, most_window), *grow.get(), mark, cx)
                }
                None => published.load_control,
            };
            let precedence = match custom.precedence.get() {
                Some(Precedence::Fifo) => engine::Precedence::Fifo,
                Some(Precedence::WeightedFair) | None => engine::Precedence::WeightedFair,
            };
            engine::Discipline { name: "custom".into(), admit, load_control, precedence }
        }
    }
}

fn stale(estimate: StaleEstimate) -> engine::StaleEstimate {
    match estimate {
        StaleEstimate::Decay => engine::StaleEstimate::Decay,
        StaleEstimate::Hold => engine::StaleEstimate::Hold,
    }
}

type Figure<'a> = &'a Defaulted<Count>;

/// A linear window: delta, first, least, most.
fn linear(
    (delta, first, least, most): (Figure<'_>, Figure<'_>, Figure<'_>, Figure<'_>),
    grow: GrowWhen,
    mark: Mark,
    cx: &mut Context,
) -> engine::LoadControl {
    let [delta, first, least, most] = [delta, first, least, most].map(|f| f.get().0);
    if least > first || first > most {
        let what = format!("the windows are not in order: least {least}, first {first}, most {most}");
        cx.fail(mark, Complaint::new(what, "make `least_window` ≤ `first_window` ≤ `most_window`"));
    }
    let grow = match grow {
        GrowWhen::Always => engine::Grow::Always,
        GrowWhen::WhileFull => engine::Grow::WhileFull,
    };
    engine::LoadControl::WindowLinear { delta, first, least, most, grow }
}
