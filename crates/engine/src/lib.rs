//! The sans-IO engine of Weirgate.
//!
//! A request passes seven stages: *classify → admit → queue → release → dispatch → forward →
//! observe*. A timer runs *control*. This crate decides and does not act. It has no clock, no entropy,
//! no I/O, no async, no serialisation and no logging. A driver (the gateway, the simulator, a fuzzer)
//! reports every event with its time and carries out the engine's decisions.
//!
//! # Order of calls
//! 1. Call [`Engine::arrive`] for every request head. The answer releases, queues or sheds it.
//! 2. After *every* call that may free something ([`Engine::arrive`], [`Engine::cancel`],
//!    [`Engine::observe`], [`Engine::node`], [`Engine::reconfigure`]) call [`Engine::poll`] until it
//!    returns `None`, and carry out each action.
//! 3. Call [`Engine::poll`] also at [`Engine::next_timeout`].
//! 4. For a released request report [`Outcome::FirstByte`] (optional) and exactly one other outcome.
//!    If the client leaves while its request waits, call [`Engine::cancel`]. If it leaves later,
//!    report [`Outcome::Reset`].
//!
//! Times must not run backwards. A time before the latest one seen counts as the latest one.
//!
//! # A driver
//! One node serves one class, two requests at a time. Three arrive at once, and each takes 10 ms.
//! ```
//! use core::time::Duration;
//! use weirgate_engine::{Action, Arrival, ClassId, Decision, Engine, Outcome, Time};
//! use weirgate_engine::{Class, Discipline, LoadControl, Node, Policy, Pool};
//!
//! let discipline = Discipline { load_control: LoadControl::Fixed { window: Some(2) }, ..Discipline::none() };
//! let (nodes, classes) = (vec![Node::new("n", 0)], vec![Class::best_effort("all", 0)]);
//! let policy = Policy::of_one_pool(discipline, Pool::new("p"), nodes, classes);
//! let mut now = Time::ZERO;
//! let mut engine = Engine::new(now, policy, 1)?;
//! let mut in_flight = Vec::new();
//! for token in 0..3 {
//!     let arrival = Arrival { class: ClassId(0), flow: token, demand: None, locality_key: None, position: 0, token };
//!     match engine.arrive(now, arrival) {
//!         Decision::Release { ticket, .. } => in_flight.push(ticket), // forward it to the node
//!         Decision::Wait { .. } => {}                                 // poll will say
//!         Decision::Shed(shed) => println!("503: {}", shed.reason),
//!     }
//! }
//! let mut answered = 0;
//! while let Some(ticket) = in_flight.pop() {
//!     now = now + Duration::from_millis(10);
//!     engine.observe(now, ticket, Outcome::LastByte { status: 200 });
//!     answered += 1;
//!     while let Some(action) = engine.poll(now) {
//!         match action {
//!             Action::Release { ticket, .. } => in_flight.push(ticket),
//!             Action::Shed { shed, .. } => println!("503: {}", shed.reason),
//!         }
//!     }
//! }
//! assert_eq!(answered, 3);
//! # Ok::<(), weirgate_engine::InvalidPolicy>(())
//! ```
//!
//! # Seams
//! [`Engine`] calls four seams in the order of the stages: `admission`, `limit` (load control), `scheduler`
//! (precedence) and `dispatch`. Each seam is an enum of state. Each method is one file that owns its state of
//! classes and requests. `docs/adding-a-discipline.md` lists the changes that a new method needs.
//!
//! # Modules
//! - The stages: `classify`, `admission` (with `refuse`, `source_rate`), `queue`, `limit` and `scheduler` (with
//!   `release`), `dispatch`, `forward`, `observe`. `engine` calls them.
//! - Observing: `mode` (what is enforced), `passing` (requests that are only observed), `shadow` (what would have
//!   happened to them).
//! - Measurements of a class: `observed` (compared with its guarantee), `ledger` (throughput held), `expected` (compute
//!   time).
//! - Settings: `policy` (resolved), `discipline` (one method per stage), `reconfigure` (a new policy at run time),
//!   `learned` (state for another engine).
//! - Interface of a driver: `request` (messages), `demand` (the cost of a request), `snapshot` (for operators), `time`.
//! - Tools: `index` (typed indices), `ticket` (slab with generations), `heap` (every O(log n) choice), `random`,
//!   `named` (enums with words).

#[macro_use]
mod named;

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
mod late;
mod learned;
mod ledger;
mod limit;
mod mode;
mod observe;
mod observed;
mod others;
mod parts;
mod passing;
mod policy;
mod queue;
mod random;
mod reconfigure;
mod refuse;
mod release;
mod request;
mod scheduler;
mod shadow;
mod snapshot;
mod source_rate;
mod ticket;
mod time;

pub use admission::{LoadSource, ServerLoad};
pub use demand::{Demand, RESOURCES};
pub use discipline::*;
pub use dispatch::{Lard, Resize, ServiceSet};
pub use engine::Engine;
pub use learned::{Adopted, Learned, LearnedClass, LearnedKnee, LearnedNode, LearnedSize, LearnedTimes, LearnedWindow};
pub use mode::{Mode, position};
pub use others::{Beside, WindowUse};
pub use parts::{Lease, Part};
pub use policy::*;
pub use random::{Random, mixed};
pub use request::*;
pub use shadow::Would;
pub use snapshot::*;
pub use time::Time;
