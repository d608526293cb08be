//! Precedence: which class's head gets the next slot.
//!
//! Source: Quorum Sec. 3.2. The window is partitioned in proportion to the classes' weights φ
//! (guaranteed throughput × expected cost); slots that a class does not claim go to the others. Shares
//! are of *slots*, not of rate: a class whose requests become dearer keeps its part of the cluster and
//! loses throughput, not the others'.
//!
//! The paper names the properties (those of weighted fair queueing, applied to window sizes) and leaves
//! the arithmetic open. Here it is two steps.
//! 1. *Partition.* θ = W / Σφ over the classes with a claim (waiting or inside). A class whose next slot
//!    lies within its part, (out + 1) ≤ φθ, goes first, smallest (out + 1)/φ before others: a class that
//!    loses a slot by a completion gets it back at once, which Sec. 3.3 relies on.
//! 2. *Surplus and fractions.* What remains are the fractions of slots that rounding leaves and the
//!    parts nobody claims. They go by start-time fair queueing (Goyal, Vin, Cheng 1996) in slot-seconds:
//!    each class has a tag that advances by (slot-seconds used)/φ; the smallest tag is next. A release
//!    is charged its expected compute time and corrected when it ends. So a class whose part is a tenth
//!    of a slot holds a slot a tenth of the time, and nothing with φ > 0 starves.
//!
//! Best-effort classes (φ = 0) get what no other class can use, in turns.
//!
//! # Tokens
//! [`Method::Tokens`] puts the guaranteed *rate* first. Classes with a claim (a whole token, see `tokens`) go
//! before those without, in the order of `out/φ`: the class that is furthest behind its part of the slots.
//! With `out` and not `out + 1` a class with nothing inside is always next, so that a class whose part is a
//! tenth of a slot does not wait until the others hold ten times theirs; its tokens bound what it gets that
//! way. If more is claimed than there is, equal `out/φ` means that every class gets the same part of its
//! guarantee, with nobody having to find out that the policy is infeasible; a rank before it makes the order
//! strict instead. What the claims leave is shared by start-time fair queueing as above, in slot-seconds of the
//! surplus alone.
//!
//! # Tags
//! SEDA (Le Baron and Elkan, Secs. 3.3, 4.3) orders by tag, not by share. [`Method::Priority`] is the priority queue
//! that the paper describes and did not build: the greatest rank first. [`Method::Reenqueue`] is what it built: the
//! order of arrival, in which a request that is not to be handled yet goes back to the end; see `reenqueue`. The
//! paper's batches make no difference to that order and are not there.
//!
//! # Resources
//! [`Method::Mdrr`] and [`Method::Drfq`] share the nodes' resources, each of them among all classes; see `rounds` and
//! `dominant`.
//!
//! # Lines
//! What is ranked is a class's line (see `queue`), and what has room or not is a pool for that line: one number for
//! each of both, the class's or the pool's times the number of lines, plus the line's.
//!
//! One heap per step and pool: a pool without room is passed over without touching its classes. A
//! choice costs O(pools + log classes).

use super::dominant::Dominant;
use super::rounds::{Rounds, Sight};
use crate::demand::Demand;
use crate::discipline::Precedence as Method;
use crate::heap::Heaps;
use crate::request::ClassId;
use crate::time::Time;

/// Rounding of θ and (out + 1)/φ may differ in the last bits; a part that is met exactly counts.
const EXACT: f64 = 1.0 + 1e-9;

/// What precedence needs to know of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) class: ClassId,
    pub(crate) pool: usize,
    pub(crate) line: usize,
    /// φ in billionths of a slot; 0 is best effort.
    pub(crate) weight: u64,
    pub(crate) outstanding: u32,
    /// Virtual time of its next turn.
    pub(crate) tag: f64,
    /// Arrival number of its head.
    pub(crate) sequence: u64,
    /// Under [`Method::Priority`]: the rank of its head's tag.
    pub(crate) rank: u32,
    /// Under [`Method::Tokens`]: what is claimed.
    pub(crate) claimed: Claimed,
}

/// A class's part of its pool's resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) pool: usize,
    /// The first of the pools that have the same machines.
    pub(crate) domain: usize,
    pub(crate) weight: f64,
    /// The weights of all classes of the domain.
    pub(crate) weights: f64,
    /// What all nodes of the domain do in a horizon, in node-seconds.
    pub(crate) whole: f64,
}

impl Share {
    /// What it gets of each resource in a round, in billionths of a node-second: together the classes get what the nodes
    /// have.
    pub(crate) fn quantum(self) -> i64 {
        (self.whole * 1e9 * self.weight / self.weights).round().max(1.0) as i64
    }
}

/// What a class claims under [`Method::Tokens`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claimed {
    /// Its guaranteed rate; smaller ranks go first.
    Guaranteed { rank: f64 },
    /// Surplus, until it has a whole token.
    Surplus { until: Time },
}

/// Whose turn it is.
#[derive(Clone, Debug)]
pub(crate) struct Precedence {
    method: Method,
    /// Waiting classes with φ > 0 by (out + 1)/φ. Under `fifo` and `reenqueue` all waiting classes by arrival, under
    /// `priority` by rank, then by arrival.
    partition: Heaps<(f64, u64)>,
    /// The same classes by tag.
    surplus: Heaps<(f64, u64)>,
    /// Waiting classes with φ = 0 by tag.
    best_effort: Heaps<(f64, u64)>,
    /// Under `tokens`: waiting classes with a claim by rank and out/φ. Those without are in `surplus`.
    guaranteed: Heaps<(f64, f64, u64)>,
    /// Under `tokens`: waiting classes without a claim by the instant at which they will have one.
    promotions: Heaps<Time>,
    /// Largest start tag released so far: of classes with φ > 0, of best-effort classes.
    virtual_time: [f64; 2],
    /// Σφ over classes with a claim.
    claimed: u64,
    lines: usize,
    /// Under `mdrr`.
    pub(crate) rounds: Rounds,
    /// Under `drfq`.
    dominant: Dominant,
    /// The domain after the one that released last, under both.
    turn: usize,
}

impl Precedence {
    /// For so many pools and classes, each with `lines` lines.
    pub(crate) fn new(method: Method, pools: usize, classes: usize, lines: usize) -> Precedence {
        let (rounds, dominant) = match method {
            Method::Mdrr => (Rounds::new(pools, lines), Dominant::new(0, lines)),
            Method::Drfq => (Rounds::new(0, lines), Dominant::new(pools, lines)),
            _ => (Rounds::new(0, lines), Dominant::new(0, lines)),
        };
        let (pools, classes) = (pools * lines, classes * lines);
        Precedence {
            method,
            partition: Heaps::new(pools, classes),
            surplus: Heaps::new(pools, classes),
            best_effort: Heaps::new(pools, classes),
            guaranteed: Heaps::new(pools, classes),
            promotions: Heaps::new(1, classes),
            virtual_time: [0.0; 2],
            claimed: 0,
            lines,
            rounds,
            dominant,
            turn: 0,
        }
    }

    /// Opens the account of a class with its share of the resources.
    pub(crate) fn open(&mut self, class: ClassId, share: Share) {
        match self.method {
            Method::Mdrr => self.rounds.open(class, share),
            Method::Drfq => self.dominant.open(class, share),
            _ => {}
        }
    }

    /// The nodes of a class's share have another size.
    pub(crate) fn resize(&mut self, class: ClassId, share: Share) {
        match self.method {
            Method::Mdrr => self.rounds.resize(class, share),
            Method::Drfq => self.dominant.resize(share),
            _ => {}
        }
    }

    /// A class's line and its pool's.
    fn place(&self, class: ClassId, pool: usize, line: usize) -> (u32, usize) {
        (class.0 * self.lines as u32 + line as u32, pool * self.lines + line)
    }

    /// Makes room for classes below `classes`.
    pub(crate) fn grow(&mut self, classes: usize) {
        let classes = classes * self.lines;
        self.partition.grow(classes);
        self.surplus.grow(classes);
        self.best_effort.grow(classes);
        self.guaranteed.grow(classes);
        self.promotions.grow(classes);
    }

    /// A class has a claim from now on, or none any more (the last argument).
    pub(crate) fn claim(&mut self, weight: u64, claims: bool) {
        if claims {
            self.claimed += weight;
        } else {
            self.claimed -= weight;
        }
    }

    /// Tag of a class whose queue was empty: it does not catch up on what it did not use.
    pub(crate) fn start(&self, tag: f64, weight: u64) -> f64 {
        tag.max(self.virtual_time[usize::from(weight == 0)])
    }

    /// A class waits, or something in its claim changed while it waits.
    pub(crate) fn set(&mut self, claim: &Claim) {
        let tie = claim.sequence;
        let (class, pool) = self.place(claim.class, claim.pool, claim.line);
        match (self.method, claim.weight) {
            (Method::Mdrr, _) => self.rounds.waits(claim.class, claim.line),
            (Method::Drfq, _) => self.dominant.waits(claim.class, claim.line, claim.sequence),
            (Method::Fifo | Method::Reenqueue, _) => self.partition.set(pool, class, (claim.sequence as f64, tie)),
            (Method::Priority, _) => self.partition.set(pool, class, (-f64::from(claim.rank), tie)),
            (Method::Tokens(_), weight) => match claim.claimed {
                Claimed::Guaranteed { rank } => {
                    self.surplus.remove(pool, class);
                    self.promotions.remove(0, class);
                    let part = f64::from(claim.outstanding) / slots(weight);
                    self.guaranteed.set(pool, class, (rank, part, tie));
                }
                Claimed::Surplus { until } => {
                    self.guaranteed.remove(pool, class);
                    self.promotions.set(0, class, until);
                    self.surplus.set(pool, class, (claim.tag, tie));
                }
            },
            (Method::WeightedFair, 0) => self.best_effort.set(pool, class, (claim.tag, tie)),
            (Method::WeightedFair, weight) => {
                let next = f64::from(claim.outstanding + 1) / weight as f64;
                self.partition.set(pool, class, (next, tie));
                self.surplus.set(pool, class, (claim.tag, tie));
            }
        }
    }

    /// Is a class of the pool waiting in this line?
    pub(crate) fn waits(&self, pool: usize, line: usize) -> bool {
        let (_, pool) = self.place(ClassId(0), pool, line);
        [&self.partition, &self.surplus, &self.best_effort].iter().any(|heaps| heaps.peek(pool).is_some())
            || self.guaranteed.peek(pool).is_some()
    }

    /// A class whose claim has become whole by `now`.
    pub(crate) fn promoted(&self, now: Time) -> Option<ClassId> {
        self.promotions.peek(0).filter(|(at, _)| *at <= now).map(|(_, line)| ClassId(line / self.lines as u32))
    }

    /// Is the next release of a class's line one of the surplus? Then its slot-seconds are charged to its tag.
    pub(crate) fn charges(&self, class: ClassId, line: usize) -> bool {
        !matches!(self.method, Method::Tokens(_)) || self.surplus.contains(self.place(class, 0, line).0)
    }

    /// A line no longer waits.
    pub(crate) fn remove(&mut self, class: ClassId, pool: usize, line: usize) {
        match self.method {
            Method::Mdrr => return self.rounds.waits_no_more(class, line),
            Method::Drfq => return self.dominant.waits_no_more(class, line),
            _ => {}
        }
        let (class, pool) = self.place(class, pool, line);
        self.partition.remove(pool, class);
        self.surplus.remove(pool, class);
        self.best_effort.remove(pool, class);
        self.guaranteed.remove(pool, class);
        self.promotions.remove(0, class);
    }

    /// The class and line whose head is next, among pools' lines for which `has_room` holds. `window` is the size of the
    /// first window.
    pub(crate) fn next(&self, window: u32, has_room: impl Fn(usize, usize) -> bool) -> Option<(ClassId, usize)> {
        let lines = self.lines;
        let has_room = &|place: usize| has_room(place / lines, place % lines);
        let found = match self.method {
            Method::Tokens(_) => {
                let first = best(&self.guaranteed, has_room).map(|(_, class)| class);
                first.or_else(|| best(&self.surplus, has_room).map(|(_, class)| class))
            }
            method => match best(&self.partition, has_room) {
                Some(((key, _), class)) => {
                    let divided = method == Method::WeightedFair;
                    if !divided || key * self.claimed as f64 <= f64::from(window) * EXACT {
                        Some(class)
                    } else {
                        best(&self.surplus, has_room).map(|(_, class)| class)
                    }
                }
                None => best(&self.best_effort, has_room).map(|(_, class)| class),
            },
        };
        found.map(|item| (ClassId(item / lines as u32), item as usize % lines))
    }

    /// The same by what is left of the nodes' resources. Domains, which are among the first `pools`, take turns: what one
    /// releases does not depend on another, unless they share some of their machines.
    pub(crate) fn next_by_resources(&mut self, pools: usize, sight: &mut impl Sight) -> Option<(ClassId, usize)> {
        for step in 0..pools {
            let domain = (self.turn + step) % pools;
            let found = match self.method {
                Method::Mdrr => self.rounds.next(domain, sight),
                _ => self.dominant.next(domain, sight),
            };
            if found.is_some() {
                self.turn = domain + 1;
                return found;
            }
        }
        None
    }

    /// A release of what takes so much of the nodes is charged to its class, under `mdrr` and `drfq`.
    pub(crate) fn charge_resources(&mut self, class: ClassId, line: usize, demand: Demand) {
        match self.method {
            Method::Mdrr => self.rounds.charge(class, demand),
            Method::Drfq => self.dominant.charge(class, line, demand),
            _ => {}
        }
    }

    /// Charges a release: the class's tag afterwards, and the charge that [`Precedence::settle`] corrects.
    pub(crate) fn charge(&mut self, tag: f64, weight: u64, seconds: f64) -> f64 {
        let time = &mut self.virtual_time[usize::from(weight == 0)];
        *time = time.max(tag);
        tag + seconds / slots(weight)
    }

    /// Corrects a charge of `charged` slot-seconds to what was used.
    pub(crate) fn settle(tag: f64, weight: u64, charged: f64, used: f64) -> f64 {
        tag + (used - charged) / slots(weight)
    }
}

/// The smallest key among the pools for which `has_room` holds, and its class.
fn best<K: Copy + PartialOrd>(heaps: &Heaps<K>, has_room: impl Fn(usize) -> bool) -> Option<(K, u32)> {
    let tops = heaps.tops().filter(|(pool, _)| has_room(*pool)).map(|(_, top)| top);
    tops.min_by(|a, b| a.partial_cmp(b).unwrap_or(core::cmp::Ordering::Equal))
}

/// φ in slots. Best-effort classes are equals among themselves.
fn slots(weight: u64) -> f64 {
    if weight == 0 { 1.0 } else { weight as f64 / 1e9 }
}
