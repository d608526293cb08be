//! Stage *release*: how many requests may be inside (load control) and whose turn it is (precedence).

mod precedence;
mod window;

pub(crate) use precedence::{Claim, Precedence};
pub(crate) use window::{Tightest, Window};
