//! Parts of guarantees: the throughput of a class that this engine keeps, where several engines promise it together.
//!
//! Source: our own (`docs/adr/0023-shares-on-leases.md`). The gateways of a site divide the guaranteed rate of a class
//! by demand and change the division many times a second. A part takes the place of the whole rate in everything that
//! the engine does: buckets, weights, needs, and the judgement whether the guarantee is held. A request beyond the part
//! is surplus, as one beyond the whole rate is without parts.
//!
//! A part ends in steps by the engine's own clock. So a process that was stopped for a while and goes on uses nothing
//! that others have been given meanwhile, however late its driver is.

use crate::engine::Engine;
use crate::index::Id;
use crate::policy::Policy;
use crate::request::ClassId;
use crate::time::Time;

/// This engine's part of the guaranteed throughput of a class, in requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// While the lease runs.
    pub granted: f64,
    /// After the lease, for some time.
    pub safe: f64,
    /// After that, for ever.
    pub least: f64,
}

/// How long parts last: those of all classes end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// End of the granted parts.
    pub granted_until: Time,
    /// End of the safe parts. Not before the end of the granted ones.
    pub safe_until: Time,
}

impl Lease {
    /// A lease that has ended: the least parts count.
    pub const ENDED: Lease = Lease { granted_until: Time::ZERO, safe_until: Time::ZERO };

    fn rate(self, now: Time, part: Part) -> f64 {
        if now < self.granted_until {
            part.granted
        } else if now < self.safe_until {
            part.safe
        } else {
            part.least
        }
    }
}

/// The parts of all classes.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    lease: Lease,
    /// Time at which the lease enters its next step, or [`Time::NEVER`].
    pub(crate) next: Time,
    /// By class of the policy. Empty if this engine keeps all rates alone.
    all: Vec<Option<Part>>,
}

impl Parts {
    pub(crate) const NONE: Parts = Parts { lease: Lease::ENDED, next: Time::NEVER, all: Vec::new() };

    fn step(&mut self, now: Time) {
        let ends = [self.lease.granted_until, self.lease.safe_until];
        let next = ends.into_iter().find(|end| *end > now).unwrap_or(Time::NEVER);
        self.next = if self.all.is_empty() { Time::NEVER } else { next };
    }

    pub(crate) fn keeps(&self, class: ClassId) -> bool {
        self.of(class).is_some()
    }

    fn of(&self, class: ClassId) -> Option<Part> {
        self.all.get(class.row()).copied().flatten()
    }
}

/// Bounds every step of a part by the whole rate. `None` if it cannot be one.
fn checked(part: Part, whole: f64) -> Option<Part> {
    let Part { granted, safe, least } = part;
    let sound = [granted, safe, least].iter().all(|rate| rate.is_finite() && *rate > 0.0);
    sound.then(|| Part { granted: granted.min(whole), safe: safe.min(whole), least: least.min(whole) })
}

impl Engine {
    /// Keeps `parts` of the guaranteed throughput of these classes from now on, and until `lease` ends. Other classes
    /// stay as they are. Ignored are classes of templates, classes without a guaranteed throughput, and rates that are
    /// not above zero. A part is at most the whole rate. Call [`Engine::poll`] afterwards.
    pub fn keep_parts(&mut self, now: Time, lease: Lease, parts: &[(ClassId, Part)]) {
        let now = self.advance(now);
        if let Some(shadow) = &mut self.shadow {
            shadow.engine().keep_parts(now, lease, parts);
        }
        self.parts.lease = lease;
        for (class, part) in parts {
            let whole = self.policy.classes.get(class.row()).and_then(|class| class.guarantee.throughput);
            let Some(part) = whole.and_then(|whole| checked(*part, whole)) else { continue };
            self.parts.all.resize(self.policy.classes.len(), None);
            self.parts.all[class.row()] = Some(part);
        }
        self.enter_step(now);
    }

    /// Keeps all guaranteed rates whole again, as without [`Engine::keep_parts`]. Call [`Engine::poll`] afterwards.
    pub fn keep_whole(&mut self, now: Time) {
        let now = self.advance(now);
        if let Some(shadow) = &mut self.shadow {
            shadow.engine().keep_whole(now);
        }
        for class in core::mem::replace(&mut self.parts, Parts::NONE).of_classes() {
            if let Some(whole) = self.policy.classes[class.row()].guarantee.throughput {
                self.change_rate(now, class, whole);
            }
        }
    }

    /// The part of the guaranteed throughput that is kept of a class, if there is one.
    pub fn part(&self, class: ClassId) -> Option<Part> {
        self.parts.of(class)
    }

    /// How long the parts last that are kept now.
    pub fn lease(&self) -> Lease {
        self.parts.lease
    }

    /// Arrivals of a class since the start that may count for its guarantee: all but those beyond its maximum rate and
    /// that of their source. Zero if there is no such class.
    pub fn asked(&self, class: ClassId) -> u64 {
        use crate::request::ShedReason::{ClassRate, SourceRate};
        let Some(state) = self.classes.all.get(class) else { return 0 };
        let counts = &state.observed.counts;
        let limited: u64 = [ClassRate, SourceRate].iter().map(|reason| counts.shed[reason.index()]).sum();
        counts.offered.saturating_sub(limited)
    }

    /// Gives each class the rate of its part at `now`.
    #[cold]
    pub(crate) fn enter_step(&mut self, now: Time) {
        self.parts.step(now);
        for row in 0..self.parts.all.len() {
            if let Some(part) = self.parts.all[row] {
                self.change_rate(now, ClassId::of(row), self.parts.lease.rate(now, part));
            }
        }
    }

    /// Changes the guaranteed throughput of a class of the policy.
    fn change_rate(&mut self, now: Time, class: ClassId, rate: f64) {
        let Some(before) = self.classes.spec(class).guarantee.throughput.filter(|before| *before != rate) else {
            return;
        };
        // Tokens until now are counted by the old rate, and a bucket holds at most the burst of the new one.
        self.scheduler.rate_changes(now, class, (before, rate));
        self.classes[class].observed.rate_changes(now, (before, rate));
        self.classes.set_throughput(class, rate);
        self.reweigh(class);
        // Its standing may have changed although its weight has not.
        self.rank(class);
    }

    /// Counts all tokens by the present rates, before classes get other numbers.
    pub(crate) fn settle_parts(&mut self, now: Time) {
        for class in self.parts.of_classes() {
            let Some(rate) = self.classes.spec(class).guarantee.throughput else { continue };
            self.scheduler.rate_changes(now, class, (rate, rate));
            self.classes[class].observed.rate_changes(now, (rate, rate));
        }
    }

    /// The parts under a new policy: a class that stays keeps its part. If less is promised of it from now on, its part
    /// shrinks alike, so that the parts of all engines together do.
    pub(crate) fn carry_parts(&self, policy: &Policy, kept: &[(ClassId, ClassId)]) -> Parts {
        let mut parts = Parts { all: Vec::new(), ..self.parts.clone() };
        for (from, to) in kept {
            let old = self.policy.classes.get(from.row()).and_then(|class| class.guarantee.throughput);
            let new = policy.classes.get(to.row()).and_then(|class| class.guarantee.throughput);
            let (Some(part), Some(old), Some(new)) = (self.parts.of(*from), old, new) else { continue };
            let by = (new / old).min(1.0);
            let Part { granted, safe, least } = part;
            parts.all.resize(policy.classes.len(), None);
            parts.all[to.row()] = Some(Part { granted: granted * by, safe: safe * by, least: least * by });
        }
        parts.step(self.now);
        parts
    }
}

impl Parts {
    pub(crate) fn of_classes(&self) -> impl Iterator<Item = ClassId> + use<> {
        let kept: Vec<ClassId> = (0..self.all.len()).filter(|row| self.all[*row].is_some()).map(ClassId::of).collect();
        kept.into_iter()
    }

    /// The rates at `now`, by class.
    pub(crate) fn rates(&self, now: Time) -> impl Iterator<Item = (ClassId, f64)> + '_ {
        let known = self.all.iter().enumerate().filter_map(|(row, part)| Some((ClassId::of(row), (*part)?)));
        known.map(move |(class, part)| (class, self.lease.rate(now, part)))
    }
}
