//! Stage *release*: how many requests may be inside (load control) and whose turn it is (precedence).

mod adaptive;
mod window;

pub(crate) use adaptive::{Danger, Half, Halves, Swing, Work};
pub(crate) use window::{Tightest, Window};
