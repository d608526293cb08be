//! Surplus bounded by time: a request beyond the guarantees is released only if, should it stay as long as its class's
//! requests do, what is owed meanwhile still meets its limits.
//!
//! Source: our own, with the insight of two works: long requests must not reach every slot (2DFQ: Mace et al., SIGCOMM
//! 2016), and slots kept free for short ones bound their waits (Perséphone: Demoulin et al., SOSP 2021). Unlike these
//! it knows neither sizes nor workers. A slot that surplus has taken is gone until its request ends, so what matters is
//! *how long* that is, against the *slack* of what is owed: the limit less the time in flight.
//!
//! Let a candidate's class hold a slot for T (mean residual time of what is in flight, E[h²]/E[h], or its mean age if
//! that is more), and let the tightest slack of the other claimants be S. Of what stays shorter than S only the part
//! T/S is in the way: it is gone before it hurts. So a class blocks b = min(1, T/S) of each slot that it has. Claimants
//! need L = Σ min(g, λ)·h slots on average, and in a time T the work L·T + 2·√(V·T) with V = Σ min(g, λ)·h² (arrivals
//! are at most as bursty as a Poisson stream). It must be done with m slots by the time T + S:
//!
//! > m ≥ (L·T + 2·√(V·T)) / (T + S),  m = B − Σ blocked − b
//!
//! Short requests have b near 0 and never notice. Long ones get a cap by themselves, the lower the longer they stay and
//! the tighter the limits are. For very long ones it is B − L. B is the smaller of the
//! window and twice what the guarantees need. The window follows what nodes can do with short requests. For how many
//! long ones they have room it does not know: a pool of workers slows no request down until its last worker is taken.
//!
//! The same bounds a claimant's requests beyond its allowance ([`super::allowance`]), once contention has been seen. A
//! class without a guarantee has no claim, but a share of what is left: where its requests do not fit, it earns a
//! twentieth of the window.

use super::allowance::{Pace, Stretch};
use crate::classify::Classes;
use crate::dispatch::Nodes;
use crate::index::Table;
use crate::request::ClassId;
use crate::scheduler::Standing;
use crate::time::{Time, nanos};

/// Between two looks at all active classes, in nanoseconds: short against any limit.
const TICK: u64 = 20_000_000;

/// Active classes for which a look may take as long; more are looked at less often, so that it costs the same share of
/// time.
const CLASSES: u64 = 2000;

/// Seconds over which arrivals are averaged: the depth of the buckets.
const RATE_OVER: f64 = 1.0;

/// Completions over which times in flight are averaged: the mean of 64 exponential times is within an eighth.
const COMPLETIONS: f64 = 64.0;

/// Completions that count of those before times changed: it took as many to see it.
const CHANGED: f64 = 4.0;

/// Completions from which on a mean says by how much a class is slowed down: within a quarter.
const KNOWN: f64 = 16.0;

/// Standard deviations of the work that arrives for which there is to be room: one burst in forty is larger.
const DEVIATIONS: f64 = 2.0;

/// Means that a percentile is taken for at most when a limit seems missed: an estimate of it jumps, and exponential
/// times have three means at the 95th.
const ROUGH: f64 = 3.0;

/// Share of a limit that is left for waiting at least, however long its class is in flight now.
const KEEPABLE: f64 = 0.1;

/// Share of the window that is earned by classes without a guarantee, and seconds for which it is saved.
const REST: f64 = 0.05;
const SAVED: f64 = 2.0;

/// Share of a limit that may go to the time in flight; the other half is for waiting, as in Quorum.
const IN_FLIGHT: f64 = 0.5;

/// Slack of a claimant without a limit, in seconds: its promise is per second.
const NO_LIMIT: f64 = 1.0;

/// What is known of a class.
#[derive(Clone, Copy, Debug)]
struct Holding {
    /// Is it among the active ones?
    active: bool,
    /// Has it a guaranteed throughput?
    claims: bool,
    /// Arrivals since the last look, and a second.
    arrivals: u32,
    rate: f64,
    /// Mean and mean square of the times in flight, in seconds, and the completions behind them.
    mean: f64,
    square: f64,
    count: f64,
    in_flight: u32,
    /// Sum of their releases, in seconds on the engine's clock.
    released: f64,
    /// b, T and S.
    blocking: f64,
    stay: f64,
    slack: f64,
    pace: Pace,
    /// Slots that its guarantee needs, and requests that it may have in flight whatever the window says; infinite while
    /// its time alone is unknown.
    part: f64,
    allowance: f64,
}

const UNKNOWN: Holding = Holding {
    active: false,
    claims: false,
    arrivals: 0,
    rate: 0.0,
    mean: 0.0,
    square: 0.0,
    count: 0.0,
    in_flight: 0,
    released: 0.0,
    // Unknown requests are long ones, until the first one has ended.
    blocking: 1.0,
    stay: 0.0,
    slack: NO_LIMIT,
    pace: Pace::NONE,
    part: f64::INFINITY,
    allowance: f64::INFINITY,
};

impl Holding {
    /// How long its requests still stay, seen at a moment: the longer ones are seen more often.
    fn residual(&self, now: f64) -> f64 {
        let known = if self.mean > 0.0 { self.square / self.mean } else { 0.0 };
        let age = if self.in_flight > 0 { now - self.released / f64::from(self.in_flight) } else { 0.0 };
        known.max(age)
    }
}

/// What claimants need of a window, and what is blocked of it.
#[derive(Clone, Copy, Debug, Default)]
struct Need {
    /// L and V.
    slots: f64,
    variance: f64,
    blocked: f64,
    /// Owed requests that could be answered within their limits, if there are no more in flight.
    most: f64,
    /// Slot-seconds that classes without a guarantee have earned.
    rest: f64,
}

/// The two tightest slacks, since a class does not wait for its own, and the tightest limit.
#[derive(Clone, Copy, Debug)]
struct Tightest {
    slacks: [(f64, ClassId); 2],
    limit: f64,
}

impl Tightest {
    const NONE: Tightest = Tightest { slacks: [(f64::INFINITY, ClassId::NONE); 2], limit: f64::INFINITY };

    fn add(&mut self, slack: f64, limit: f64, class: ClassId) {
        self.limit = self.limit.min(limit);
        if slack < self.slacks[0].0 {
            self.slacks = [(slack, class), self.slacks[0]];
        } else if slack < self.slacks[1].0 {
            self.slacks[1] = (slack, class);
        }
    }

    fn of_others(&self, class: ClassId) -> f64 {
        if self.slacks[0].1 == class { self.slacks[1].0 } else { self.slacks[0].0 }
    }
}

/// Times in flight of all classes, and what they leave.
#[derive(Clone, Debug)]
pub(super) struct Occupancy {
    holdings: Table<ClassId, Holding>,
    active: Vec<ClassId>,
    /// By window.
    needs: Vec<Need>,
    /// By pool: L, V, what is blocked and the most that may be owed, while they are summed.
    sums: Vec<[f64; 4]>,
    /// A class that misses a limit that could be kept.
    missed: Option<ClassId>,
    stretch: Stretch,
    at: Time,
    pub(super) next: Time,
}

/// The window in question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) window: usize,
    /// The window in a high half, and what may be blocked of it.
    pub(super) bound: f64,
    pub(super) blockable: f64,
    /// Has contention been seen?
    pub(super) contended: bool,
}

impl Occupancy {
    pub(super) fn new(now: Time, windows: usize, classes: usize, pools: usize) -> Occupancy {
        Occupancy {
            holdings: Table::filled(classes, UNKNOWN),
            active: Vec::new(),
            needs: vec![Need::default(); windows],
            sums: vec![[0.0; 4]; pools],
            missed: None,
            stretch: Stretch::NONE,
            at: now,
            next: Time::NEVER,
        }
    }

    /// Classes that ask for something.
    pub(super) fn active(&self) -> &[ClassId] {
        &self.active
    }

    /// Owed requests in a window that could be answered within their limits.
    pub(super) fn owed_at_most(&self, window: usize) -> f64 {
        self.needs[window].most
    }

    /// A class that misses a limit that could be kept, by the time in flight alone.
    pub(super) fn misses(&self) -> Option<ClassId> {
        self.missed
    }

    /// By how much the least affected class takes longer in flight than alone; at least 1.
    pub(super) fn slowdown(&self, classes: &Classes) -> f64 {
        let of = |class: &ClassId| {
            let holding = &self.holdings[*class];
            let known = classes.service_time(*class).filter(|_| holding.count >= KNOWN)?;
            Some(holding.mean / known)
        };
        self.active.iter().filter_map(of).fold(f64::INFINITY, f64::min).clamp(1.0, 1e6)
    }

    pub(super) fn open(&mut self, class: ClassId) {
        let active = self.holdings.get(class).is_some_and(|known| known.active);
        self.holdings.put(class, Holding { active, ..UNKNOWN });
    }

    /// Takes over what is known of a class's times.
    pub(super) fn carry(&mut self, old: &Occupancy, from: ClassId, to: ClassId) {
        let Holding { rate, mean, square, count, blocking, stay, slack, .. } = old.holdings[from];
        self.holdings[to] = Holding { rate, mean, square, count, blocking, stay, slack, ..self.holdings[to] };
    }

    #[inline]
    fn activate(&mut self, now: Time, class: ClassId) {
        let holding = &mut self.holdings[class];
        if !holding.active {
            holding.active = true;
            self.active.push(class);
            self.next = self.next.min(Time::from_nanos(now.as_nanos() + TICK));
        }
    }

    #[inline]
    pub(super) fn offered(&mut self, now: Time, class: ClassId, claims: bool) {
        self.activate(now, class);
        let holding = &mut self.holdings[class];
        holding.arrivals += 1;
        // Before the first look as well: what is owed is not held back until then.
        holding.claims = claims;
    }

    /// A class has requests under a new policy: it is looked at, although it may not ask for anything again.
    pub(super) fn resumes(&mut self, now: Time, class: ClassId, claims: bool) {
        self.activate(now, class);
        self.holdings[class].claims = claims;
    }

    #[inline]
    pub(super) fn enters(&mut self, now: Time, window: usize, class: ClassId, standing: Standing) {
        self.activate(now, class);
        let holding = &mut self.holdings[class];
        holding.in_flight += 1;
        holding.released += now.as_nanos() as f64 / 1e9;
        self.needs[window].blocked += holding.blocking;
        if !holding.claims && standing != Standing::Surplus {
            // Unknown requests stay as long as the ones in flight have stayed so far.
            let stay = if holding.count > 0.0 { holding.mean } else { holding.stay };
            self.needs[window].rest -= holding.blocking * stay;
        }
    }

    #[inline]
    pub(super) fn leaves(&mut self, window: usize, class: ClassId, released: Time) {
        let holding = &mut self.holdings[class];
        holding.in_flight -= 1;
        holding.released =
            if holding.in_flight == 0 { 0.0 } else { holding.released - released.as_nanos() as f64 / 1e9 };
        self.needs[window].blocked -= holding.blocking;
    }

    /// A request in flight is released once more, to another node.
    pub(super) fn again(&mut self, now: Time, (from, to): (usize, usize), class: ClassId, released: Time) {
        let holding = &mut self.holdings[class];
        holding.released += now.since(released).as_secs_f64();
        self.needs[from].blocked -= holding.blocking;
        self.needs[to].blocked += holding.blocking;
    }

    #[inline]
    pub(super) fn completed(&mut self, class: ClassId, seconds: f64) {
        let holding = &mut self.holdings[class];
        holding.pace.answered();
        holding.count = (holding.count + 1.0).min(COMPLETIONS);
        holding.mean += (seconds - holding.mean) / holding.count;
        holding.square += (seconds * seconds - holding.square) / holding.count;
    }

    /// Times in flight of a class are others.
    pub(super) fn changed(&mut self, class: ClassId) {
        let holding = &mut self.holdings[class];
        holding.count = holding.count.min(CHANGED);
    }

    /// L and what is blocked of a window.
    pub(super) fn occupied(&self, window: usize) -> (f64, f64) {
        let need = &self.needs[window];
        (need.slots, need.blocked.max(0.0))
    }

    /// Requests of a class that may be in flight whatever the window says, if its time alone is known.
    pub(super) fn allowance(&self, class: ClassId) -> Option<f64> {
        self.holdings.get(class).map(|holding| holding.allowance).filter(|allowance| allowance.is_finite())
    }

    /// Has a class less in flight than its allowance, or has it earned its share of a window?
    #[inline]
    pub(super) fn allows(&self, class: ClassId, window: usize) -> bool {
        self.holdings.get(class).is_some_and(|holding| match holding.claims {
            true => holding.allowance.is_finite() && f64::from(holding.in_flight) < holding.allowance,
            false => self.has_earned(holding, window),
        })
    }

    /// Has a class without a guarantee earned a request? Unknown requests come one by one.
    fn has_earned(&self, holding: &Holding, window: usize) -> bool {
        self.needs[window].rest > 0.0 && (holding.count > 0.0 || holding.in_flight == 0)
    }

    /// By how much the needs of classes are stretched.
    pub(super) fn stretch(&self) -> f64 {
        self.stretch.factor()
    }

    /// May a request of the class be released in this standing?
    #[inline]
    pub(super) fn admits(&self, class: ClassId, standing: Standing, room: Room) -> bool {
        let holding = &self.holdings[class];
        match (standing, holding.claims) {
            (Standing::Owed, true) => {
                !room.contended || f64::from(holding.in_flight) < holding.allowance || self.fits(holding, room)
            }
            (Standing::Owed, false) => self.has_earned(holding, room.window) || self.fits(holding, room),
            (Standing::Surplus, _) => self.fits(holding, room),
            (Standing::Needed, _) => true,
        }
    }

    /// Is what claimants need meanwhile left over, should it stay as long as its class's requests do?
    fn fits(&self, holding: &Holding, Room { window, blockable, .. }: Room) -> bool {
        let Holding { blocking, stay, slack, .. } = *holding;
        let need = &self.needs[window];
        let work = need.slots * stay + DEVIATIONS * (need.variance.max(0.0) * stay).sqrt();
        need.blocked + blocking * (work / (stay + slack).max(1e-6) + 1.0) <= blockable
    }

    /// Looks at all active classes, if it is time. `bounds` are B and whether contention has been seen, by window.
    pub(super) fn tick(&mut self, now: Time, classes: &mut Classes, nodes: &Nodes, bounds: impl Fn(usize) -> Room) {
        if now < self.next {
            return;
        }
        let seconds = now.since(self.at).as_secs_f64();
        self.at = now;
        self.stretch = Stretch::new(self.slowdown(classes));
        let contended = (0..self.needs.len()).all(|window| bounds(window).contended);
        let mut tightest = Tightest::NONE;
        self.missed = None;
        self.sums.fill([0.0; 4]);
        for class in &self.active {
            let holding = &mut self.holdings[*class];
            let instant = f64::from(core::mem::take(&mut holding.arrivals)) / seconds.max(1e-9);
            holding.rate += (1.0 - (-seconds / RATE_OVER).exp()) * (instant - holding.rate);
            holding.pace.look(seconds);
            if claim(now, classes, *class, holding, (contended, self.stretch), &mut self.sums, &mut tightest) {
                self.missed = Some(*class);
            }
        }
        let now_s = now.as_nanos() as f64 / 1e9;
        for class in &self.active {
            let holding = &mut self.holdings[*class];
            holding.stay = holding.residual(now_s);
            holding.slack = tightest.of_others(*class).min(1e6);
            holding.allowance = holding.pace.allowance(holding.part, tightest.limit);
            // Before the first one has ended they may stay for ever.
            let unknown = holding.count == 0.0 && holding.in_flight > 0 && !holding.claims;
            holding.blocking = if unknown { 1.0 } else { (holding.stay / holding.slack).min(1.0) };
            self.sums[classes[*class].pool][2] += holding.blocking * f64::from(holding.in_flight);
        }
        self.divide(nodes, seconds, bounds);
        let holdings = &mut self.holdings;
        self.active.retain(|class| {
            let holding = &mut holdings[*class];
            holding.active = holding.in_flight > 0 || holding.rate > 1e-3 || classes[*class].queue.len > 0;
            holding.active
        });
        let wait = TICK * (self.active.len() as u64).div_ceil(CLASSES).max(1);
        self.next = if self.active.is_empty() { Time::NEVER } else { Time::from_nanos(now.as_nanos() + wait) };
    }

    /// Divides the pools' sums over their groups of machines.
    fn divide(&mut self, nodes: &Nodes, seconds: f64, bounds: impl Fn(usize) -> Room) {
        let groups = nodes.groups.len();
        for window in 0..self.needs.len() {
            let group = nodes.groups.ids().nth(window % groups);
            let mut sum = [0.0; 4];
            for (pool, share) in group.into_iter().flat_map(|group| nodes.shares(group)) {
                sum.iter_mut().zip(self.sums[pool]).for_each(|(sum, of_pool)| *sum += of_pool * share);
            }
            let most = REST * bounds(window).bound;
            let need = &mut self.needs[window];
            [need.slots, need.variance, need.blocked, need.most] = sum;
            need.rest = (need.rest + most * seconds).min(most * SAVED);
        }
    }
}

/// Adds what a class claims. True if it misses its limit, in flight alone.
fn claim(
    now: Time,
    classes: &mut Classes,
    class: ClassId,
    holding: &mut Holding,
    (contended, stretch): (bool, Stretch),
    sums: &mut [[f64; 4]],
    tightest: &mut Tightest,
) -> bool {
    classes.roll(now, class);
    let spec = classes.spec(class);
    let Some(rate) = spec.guarantee.throughput else {
        holding.claims = false;
        return false;
    };
    let (limit, declared) = (spec.guarantee.response_time.map(|rt| nanos(rt.limit) as f64 / 1e9), spec.service_time);
    holding.claims = true;
    holding.part = classes.service_time(class).map_or(f64::INFINITY, |alone| {
        let slowdown = if holding.count >= KNOWN { holding.mean / alone } else { 1.0 };
        stretch.part(rate * alone, slowdown)
    });
    if holding.rate < 0.01 * rate && !classes[class].active() {
        return false;
    }
    let time = if holding.count > 0.0 { holding.mean } else { declared.map_or(0.0, |time| time.as_secs_f64()) };
    let slots = rate.min(holding.rate) * time;
    let slots = if contended { slots.min(holding.part) } else { slots };
    // What it blocks itself it does not claim as well.
    let slots = (slots - holding.blocking * f64::from(holding.in_flight)).max(0.0);
    let sum = &mut sums[classes[class].pool];
    sum[0] += slots;
    sum[1] += slots * time;
    sum[3] += rate * limit.map_or(NO_LIMIT, |limit| IN_FLIGHT * limit);
    let Some(limit) = limit else {
        tightest.add(NO_LIMIT, NO_LIMIT, class);
        return false;
    };
    // A limit that is shorter than a request by itself cannot be kept, and asks for nothing.
    if classes.service_time(class).is_some_and(|time| time > (1.0 - KEEPABLE) * limit) {
        return false;
    }
    let left = limit - classes[class].expected.guaranteed().unwrap_or(0.0);
    tightest.add(left.max(KEEPABLE * limit), limit, class);
    left < KEEPABLE * limit && limit - ROUGH * holding.mean < KEEPABLE * limit
}
