//! The sans-IO engine of Weirgate.
//!
//! A request passes seven stages: *classify → admit → queue → release → dispatch → forward →
//! observe*, and *control* runs on a timer. This crate decides; it does not act. It has no clock, no
//! entropy, no I/O, no async, no serialisation and no logging: a driver (the gateway, the simulator, a
//! fuzzer) tells it what happened and when, and does what it says.
//!
//! # Order of calls
//! 1. [`Engine::arrive`] for every request head. The answer releases it, lets it wait, or sheds it.
//! 2. After *every* call that may free something ([`Engine::arrive`], [`Engine::cancel`],
//!    [`Engine::observe`], [`Engine::node`], [`Engine::reconfigure`]) call [`Engine::poll`] until it
//!    returns `None`, and do what it says.
//! 3. Call [`Engine::poll`] also when [`Engine::next_timeout`] has come.
//! 4. For a released request report [`Outcome::FirstByte`] (optional) and exactly one of the others.
//!    A client that leaves while waiting is a [`Engine::cancel`]; one that leaves later is an
//!    [`Outcome::Reset`].
//!
//! Times must not run backwards; one that does counts as the latest time seen.

mod admission;
mod classify;
mod demand;
mod discipline;
mod dispatch;
mod engine;
mod expected;
mod forward;
mod heap;
mod index;
mod limit;
mod observe;
mod policy;
mod queue;
mod random;
mod reconfigure;
mod request;
mod scheduler;
mod snapshot;
mod ticket;
mod time;

pub use admission::{LoadSource, ServerLoad};
pub use demand::{Demand, RESOURCES};
pub use discipline::*;
pub use dispatch::{Lard, Resize, ServiceSet};
pub use engine::Engine;
pub use policy::*;
pub use request::*;
pub use snapshot::*;
pub use time::Time;
