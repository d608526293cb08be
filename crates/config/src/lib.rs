//! Every serialised form of Weirgate.
mod site;
pub use site::*;
