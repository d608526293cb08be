//! Disciplines: named choices of methods.

use std::time::Duration;

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{Context, Defaulted, Mark, Required};
use weirgate_spanned_yaml::unit::{Amount, Count, Span, number_text};

use super::class::Classes;
use super::priorities::slots;
use super::web_switch::{check_busy, server_load};
use crate::file::ResourceWord;
use crate::file::discipline::{
    AdaptiveWindow, Admit, Aimd, Codel, Discipline, Gradient, GrowWhen, Infeasible, LoadControl, Precedence,
    PrecedenceWord, Predict, TokenBuckets,
};

/// Returns the discipline with its `priorities`. Figures that the file leaves open may depend on `classes`.
pub(super) fn discipline(
    file: &Discipline,
    mark: Mark,
    priorities: Vec<engine::PriorityLevel>,
    classes: &Classes,
    cx: &mut Context,
) -> engine::Discipline {
    match file {
        Discipline::None => engine::Discipline::none(),
        Discipline::Weirgate(figures) => {
            let tokens = tokens(figures.tokens.get(), *figures.infeasible.get(), cx);
            engine::Discipline {
                admit: engine::Admit::Predict(predict(figures.predict.get(), cx)),
                load_control: adaptive(figures.window.get(), cx),
                precedence: engine::Precedence::Tokens(tokens),
                ..engine::Discipline::weirgate()
            }
        }
        Discipline::Quorum(figures) => {
            let window = (&figures.delta, &figures.first_window, &figures.min_window, &figures.max_window);
            engine::Discipline {
                admit: engine::Admit::Deadline { stale: figures.stale_estimate.get().0 },
                load_control: linear(window, *figures.grow.get(), mark, cx),
                ..engine::Discipline::quorum()
            }
        }
        Discipline::Seda(figures) => engine::Discipline {
            priorities,
            admit: engine::Admit::Thresholds { queue: figures.threshold.get().0 },
            load_control: slots(&figures.threads, cx),
            precedence: figures.scheduling.get().0,
            ..engine::Discipline::seda()
        },
        Discipline::SwitchAdm(figures) => {
            engine::Discipline::web_switch("switch_adm", server_load((&**figures).into(), classes, mark, cx))
        }
        Discipline::StaticPart(figures) => {
            engine::Discipline::web_switch("static_part", server_load((&**figures).into(), classes, mark, cx))
        }
        Discipline::DynamicPart(figures) => {
            check_busy(&figures.busy, cx);
            engine::Discipline::web_switch("dynamic_part", server_load((&**figures).into(), classes, mark, cx))
        }
        Discipline::Mqos(figures) => engine::Discipline {
            load_control: availability(&figures.horizon, None, cx),
            precedence: figures.precedence.get().0,
            ..engine::Discipline::mqos()
        },
        Discipline::Sqos(figures) => engine::Discipline {
            load_control: availability(&figures.horizon, Some(*figures.resource.get()), cx),
            ..engine::Discipline::sqos(0)
        },
        Discipline::Custom(custom) => engine::Discipline {
            name: "custom".into(),
            priorities,
            admit: admit(&custom.admit, classes, cx),
            load_control: load_control(&custom.load_control, cx),
            precedence: precedence(&custom.precedence, cx),
        },
    }
}

/// Returns the method of the admit stage. One that is missing, which was reported, is replaced.
fn admit(field: &Required<Admit>, classes: &Classes, cx: &mut Context) -> engine::Admit {
    match field.get() {
        Some(Admit::None) | None => engine::Admit::None,
        Some(Admit::Deadline(figures)) => engine::Admit::Deadline { stale: figures.stale_estimate.get().0 },
        Some(Admit::Predict(figures)) => engine::Admit::Predict(predict(figures, cx)),
        Some(Admit::Thresholds(figures)) => engine::Admit::Thresholds { queue: figures.queue.get().0 },
        Some(Admit::ServerLoad(figures)) => {
            engine::Admit::ServerLoad(server_load((&**figures).into(), classes, field.mark, cx))
        }
        Some(Admit::Codel(figures)) => codel(figures),
    }
}

/// Returns the load control. One that is missing, which was reported, is replaced.
fn load_control(field: &Required<LoadControl>, cx: &mut Context) -> engine::LoadControl {
    match field.get() {
        Some(LoadControl::Fixed(window)) => engine::LoadControl::Fixed { window: window.0 },
        Some(LoadControl::Linear(figures)) => {
            let window = (&figures.delta, &figures.first_window, &figures.min_window, &figures.max_window);
            linear(window, *figures.grow.get(), field.mark, cx)
        }
        Some(LoadControl::Adaptive(figures)) => adaptive(figures, cx),
        Some(LoadControl::Slots(figures)) => slots(&figures.per_cpu, cx),
        Some(LoadControl::Availability(figures)) => availability(&figures.horizon, figures.resource.get().copied(), cx),
        Some(LoadControl::Gradient(figures)) => gradient(figures, field.mark, cx),
        Some(LoadControl::Aimd(figures)) => aimd(figures, field.mark, cx),
        None => engine::Discipline::none().load_control,
    }
}

/// Returns the precedence. One that is missing, which was reported, is replaced.
fn precedence(field: &Required<Precedence>, cx: &mut Context) -> engine::Precedence {
    match field.get() {
        Some(Precedence::Text(PrecedenceWord(precedence))) => *precedence,
        Some(Precedence::Map(form)) => {
            engine::Precedence::Tokens(tokens(form.tokens.get(), *form.infeasible.get(), cx))
        }
        None => engine::Precedence::Fifo,
    }
}

/// Controlled delay.
fn codel(figures: &Codel) -> engine::Admit {
    engine::Admit::Codel(engine::Codel { target: figures.target.get().0, interval: figures.interval.get().0 })
}

fn gradient(figures: &Gradient, mark: Mark, cx: &mut Context) -> engine::LoadControl {
    let (first, min, max) = in_order((&figures.first_window, &figures.min_window, &figures.max_window), mark, cx);
    engine::LoadControl::Gradient(engine::Gradient {
        tolerance: within(&figures.tolerance, 1.0, 100.0, cx),
        smoothing: within(&figures.smoothing, 0.01, 1.0, cx),
        first,
        min,
        max,
    })
}

fn aimd(figures: &Aimd, mark: Mark, cx: &mut Context) -> engine::LoadControl {
    let (first, min, max) = in_order((&figures.first_window, &figures.min_window, &figures.max_window), mark, cx);
    let timeout = figures.timeout.get().0;
    let back_off = within(&figures.back_off, 0.01, 0.99, cx);
    engine::LoadControl::Aimd(engine::Aimd { back_off, timeout, first, min, max })
}

/// Load control by the availability of the nodes' resources.
fn availability(horizon: &Defaulted<Span>, only: Option<ResourceWord>, cx: &mut Context) -> engine::LoadControl {
    /// Below the lower bound a single request exceeds it, and above the upper bound nothing is held back.
    const HORIZON: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3600));
    let span = horizon.get().0;
    if !(HORIZON.0..=HORIZON.1).contains(&span) {
        cx.fail(horizon.mark, "this horizon is too short or too long", "write one from 1ms to 1h");
    }
    engine::LoadControl::ResourceAvailability(engine::Availability { horizon: span, only: only.map(|word| word.0) })
}

/// Returns a number that must lie between two bounds.
fn within(field: &Defaulted<Amount>, min: f64, max: f64, cx: &mut Context) -> f64 {
    let Amount(figure) = *field.get();
    if !(min..=max).contains(&figure) {
        let what = format!("{} is out of range", number_text(figure));
        let hint = format!("write a number from {} to {}", number_text(min), number_text(max));
        cx.fail(field.mark, what, hint);
    }
    figure
}

fn adaptive(figures: &AdaptiveWindow, cx: &mut Context) -> engine::LoadControl {
    engine::LoadControl::WindowAdaptive(engine::Adaptive {
        swing: within(&figures.swing, 0.05, 4.0, cx),
        target: within(&figures.elasticity, 0.0, 1.0, cx),
        gain: within(&figures.gain, 0.01, 10.0, cx),
        min_share: within(&figures.min_share, 0.0, 10.0, cx),
        compute_share: within(&figures.compute_share, 0.0, 1.0, cx),
        node_share: within(&figures.node_share, 1.0, 1000.0, cx),
        ..engine::Adaptive::default()
    })
}

fn tokens(figures: &TokenBuckets, Infeasible(infeasible): Infeasible, cx: &mut Context) -> engine::Tokens {
    engine::Tokens {
        debt: within(&figures.debt, 0.0, 100.0, cx),
        best_effort_share: within(&figures.best_effort_share, 0.0, 1.0, cx),
        infeasible,
        ..engine::Tokens::default()
    }
}

fn predict(figures: &Predict, cx: &mut Context) -> engine::Predict {
    engine::Predict {
        soft_share: within(&figures.soft_share, 0.0, 1.0, cx),
        soft_min: figures.soft_min.get().0,
        ..engine::Predict::default()
    }
}

type Figure<'a> = &'a Defaulted<Count>;

/// A linear window. The tuple is delta, first, smallest and largest window.
fn linear(
    (delta, first, min, max): (Figure<'_>, Figure<'_>, Figure<'_>, Figure<'_>),
    GrowWhen(grow): GrowWhen,
    mark: Mark,
    cx: &mut Context,
) -> engine::LoadControl {
    let delta = delta.get().0;
    let (first, min, max) = in_order((first, min, max), mark, cx);
    engine::LoadControl::WindowLinear { delta, first, min, max, grow }
}

/// Returns the first, smallest and largest window, which must be in order.
fn in_order((first, min, max): (Figure<'_>, Figure<'_>, Figure<'_>), mark: Mark, cx: &mut Context) -> (u32, u32, u32) {
    let [first, min, max] = [first, min, max].map(|f| f.get().0);
    if min > first || first > max {
        let what = format!("the windows are not in order: min {min}, first {first}, max {max}");
        cx.fail(mark, what, "make `min_window` ≤ `first_window` ≤ `max_window`");
    }
    (first, min, max)
}
