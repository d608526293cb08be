//! Stage *release*: how many requests may be inside (load control) and whose turn it is (precedence).

mod adaptive;
mod dominant;
mod precedence;
mod reenqueue;
mod rounds;
mod tokens;
mod turn;
mod window;

pub(crate) use adaptive::{Danger, Half, Halves, Swing, Work};
pub(crate) use precedence::{Claim, Claimed, Precedence, Share};
pub(crate) use rounds::Sight;
pub(crate) use tokens::Bucket;
pub(crate) use window::{Tightest, Window};
