//! The figures of the discipline that are numbers or times, with their ranges.

use std::time::Duration;

use weirgate_engine::{Adaptive, Admit, Discipline, LoadControl, Precedence, Predict, Tokens};

/// All figures of the discipline.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    predict: Predict,
    window: Adaptive,
    tokens: Tokens,
}

impl Figures {
    /// Returns the discipline with these figures.
    pub fn discipline(&self) -> Discipline {
        Discipline {
            admit: Admit::Predict(self.predict),
            load_control: LoadControl::WindowAdaptive(self.window),
            precedence: Precedence::Tokens(self.tokens),
            ..Discipline::weirgate()
        }
    }
}

/// One figure.
pub struct Figure {
    /// The part of the discipline that it belongs to, and its name there.
    pub name: &'static str,
    read: fn(&Figures) -> f64,
    write: fn(&mut Figures, f64),
    /// The range that the engine accepts.
    range: [f64; 2],
    /// Whether it is a time, given in milliseconds.
    pub is_time: bool,
}

impl Figure {
    /// Returns its default.
    pub fn default_value(&self) -> f64 {
        (self.read)(&Figures::default())
    }

    /// Returns the defaults with this figure multiplied by `factor`, clamped to the range that the engine
    /// accepts. Also returns the new value, and whether it is the exact product.
    pub fn scaled(&self, factor: f64) -> (Figures, f64, bool) {
        let asked = factor * self.default_value();
        let value = asked.clamp(self.range[0], self.range[1]);
        let mut figures = Figures::default();
        (self.write)(&mut figures, value);
        (figures, value, value == asked)
    }
}

macro_rules! number {
    ($part:ident.$name:ident, $min:expr, $max:expr) => {
        Figure {
            name: concat!(stringify!($part), ".", stringify!($name)),
            read: |f| f.$part.$name,
            write: |f, value| f.$part.$name = value,
            range: [$min, $max],
            is_time: false,
        }
    };
}

macro_rules! time {
    ($part:ident.$name:ident) => {
        Figure {
            name: concat!(stringify!($part), ".", stringify!($name)),
            read: |f| f.$part.$name.as_secs_f64() * 1e3,
            write: |f, value| f.$part.$name = Duration::from_secs_f64(value / 1e3),
            range: [0.0, f64::INFINITY],
            is_time: true,
        }
    };
}

const ANY: f64 = f64::INFINITY;

/// All figures. Shares end at 1. `search` is more than 1, and 1.01 means almost no search.
pub const ALL: [Figure; 31] = [
    number!(predict.soft_share, 0.0, 1.0),
    time!(predict.soft_min),
    number!(predict.margin, 0.0, 1.0),
    number!(predict.max_compute, 0.0, 1.0),
    time!(predict.young),
    number!(predict.fresh, 0.0, 1.0),
    number!(window.swing, 0.0, ANY),
    number!(window.target, 0.0, 1.0),
    number!(window.gain, 0.0, ANY),
    number!(window.min_share, 0.0, ANY),
    number!(window.per_machine, 0.0, ANY),
    number!(window.compute_share, 0.0, 1.0),
    number!(window.back_off, 0.0, 1.0),
    time!(window.shortest),
    number!(window.computes, 0.0, ANY),
    number!(window.high, 0.0, ANY),
    number!(window.held_back, 0.0, 1.0),
    number!(window.completions, 0.0, ANY),
    number!(window.trusted, 0.0, ANY),
    number!(window.believed, 0.0, ANY),
    number!(window.search, 1.01, ANY),
    number!(window.found, 0.0, 1.0),
    number!(window.node_share, 1.0, ANY),
    number!(window.speed_completions, 0.0, ANY),
    number!(window.speed_deaf, 0.0, ANY),
    number!(window.speed_forget, 0.0, 1.0),
    number!(window.speed_longest, 0.0, ANY),
    number!(tokens.debt, 0.0, ANY),
    number!(tokens.best_effort_share, 0.0, 1.0),
    number!(tokens.best_effort_rate, 0.0, ANY),
    number!(tokens.max_cost_ratio, 1.0, ANY),
];
