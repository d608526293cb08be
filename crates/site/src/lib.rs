//! Many gateways, one guarantee: budgets that the gateways of a site share by demand, on leases.
//!
//! A floor of 800 requests a second is one number, however many gateways serve the class and however unevenly the
//! clients reach them. Each gateway is a [`Member`]. One elected process runs the [`Coordinator`]. Members report their
//! demand, the coordinator answers with grants, and a member asks its [`Member::share`] at any instant without waiting
//! for anyone. A *budget* is the floor of a class, in millionths of a request a second.
//!
//! Reports and grants also carry the windows of groups of nodes: what all other members have in flight there, and
//! factors that move windows to demand (ADR 27). The invariant below does not cover them.
//!
//! # The invariant
//! At every instant the shares that all members believe they have add up to at most the budget. Messages may be lost,
//! late, repeated or reordered, processes may crash or be partitioned, and several may believe to be the coordinator.
//! It needs clocks whose rates differ by at most [`Settings::margin_percent`], and one process under the name of each
//! member. Clocks need not show the same time. ADR 23 has the argument, and `tests/` check it.
//!
//! - A grant counts from the moment at which the member *sent* the report that the grant answers. The coordinator
//!   counts it from the moment at which it received that report, and for longer by the margin. So delays only shorten
//!   grants.
//! - A grant ends in steps: the whole share for [`Settings::lease`], a part of it (the safe share) until
//!   [`Settings::safe_for`], and then the minimum, which every member has at all times: never nothing, never
//!   everything.
//! - A share is lowered first at its member, which confirms, and then raised at another.
//! - A member follows one coordinator, the one with the highest revision that it has heard of (fencing).
//! - A coordinator acts only for [`Settings::proof`] after it has last proved that it is the elected one. Its successor
//!   waits that long, asks every member for its shares, and gives out nothing that a silent member may hold.
//!
//! # Sources
//! Leases: Gray and Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency"
//! (SOSP 1989). Shares by demand with a lease and a safe capacity: Doorman (YouTube, 2016). Departures: the safe share
//! follows the granted one and ends, lowering is confirmed before raising, and a successor asks instead of waiting.
//!
//! # Driving the machines
//! Sans-IO: no clock, no entropy, no messages sent. Each machine is given the time of its own process, as nanoseconds
//! of a monotonic clock. Ask [`Member::poll_report`] and [`Coordinator::run`] at their next timeouts and after every
//! input.
//! ```
//! use std::sync::Arc;
//! use core::time::Duration;
//! use weirgate_engine::Time;
//! use weirgate_site::{Coordinator, Member, Record, Settings};
//!
//! // Two gateways share a floor of 800 requests a second.
//! let site = Arc::new(Settings::new(2, vec![800_000_000]).check()?);
//! let mut members = [Member::new(site.clone(), 1), Member::new(site.clone(), 1)];
//! let mut coordinator = Coordinator::new(Time::ZERO, site, 7, &[Record::Nothing; 2]);
//! members[0].demand(0, 600_000_000);
//! members[1].demand(0, 100_000_000);
//!
//! let mut now = Time::ZERO;
//! for _ in 0..200 {
//!     now = now + Duration::from_millis(10);
//!     coordinator.proved(now); // the elected process asks etcd
//!     for (index, member) in members.iter_mut().enumerate() {
//!         member.follow(7);
//!         if let Some(report) = member.poll_report(now) {
//!             coordinator.report(now, index, report)?;
//!         }
//!     }
//!     coordinator.run(now);
//!     while let Some((index, record)) = coordinator.poll_record() {
//!         coordinator.recorded(index, record); // the driver has written it to etcd
//!     }
//!     while let Some((index, grant)) = coordinator.poll_grant() {
//!         members[index].granted(now, grant)?;
//!     }
//! }
//! assert!(members[0].share(now, 0) >= 600_000_000);
//! assert!(members[0].share(now, 0) + members[1].share(now, 0) <= 800_000_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//! `settings` (the agreement of all processes of a site), `message` (their messages), `member`, `coordinator` (with
//! `slot`, its account of one member, `table`, its account of all budgets, and `windows`), `fill` (max-min shares),
//! `demand` (from arrivals), and `usage` (of windows).
#![forbid(unsafe_code)]

mod coordinator;
mod demand;
mod fill;
mod member;
mod message;
mod settings;
mod usage;

pub use coordinator::{Coordinator, Counts, Phase, Record};
pub use demand::Demand;
pub use fill::fill;
pub use member::{Member, Stage};
pub use message::{Grant, GroupShare, GroupUse, Refused, Report, Step};
pub use settings::{
    InvalidSettings, MAX_BUDGET, MAX_BUDGETS, MAX_EJECTED, MAX_GROUPS, MAX_MEMBERS, MAX_SAFE, Settings, Site,
};
pub use usage::Usage;
