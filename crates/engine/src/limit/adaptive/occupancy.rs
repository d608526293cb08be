//! Surplus bounded by time. A request beyond the guarantees is released only if the owed requests can still
//! meet their limits when it stays as long as its class's requests usually do.
//!
//! Source: our own, with the insight of two works: long requests must not reach every slot (2DFQ: Mace et
//! al., SIGCOMM 2016), and slots kept free for short ones bound their waits (Perséphone: Demoulin et al.,
//! SOSP 2021). Unlike these, the rule here knows neither sizes nor workers. A slot that surplus has taken is
//! gone until its request ends. The rule therefore compares *how long* this takes with the *slack* of the
//! owed requests: their limit minus their time in flight.
//!
//! Let a candidate's class hold a slot for T (mean residual time of its requests in flight, E[h²]/E[h], or
//! their mean age if that is longer), and let S be the tightest slack of the other claimants. A request that
//! stays for less than S is in the way only for the part T/S, because it is gone before it hurts. A class
//! therefore blocks b = min(1, T/S) of each slot that it has. Claimants need L = Σ min(g, λ)·h slots on
//! average, and in a time T the work L·T + 2·√(V·T) with V = Σ min(g, λ)·h² (arrivals are at most as bursty
//! as a Poisson stream). This work must be done with m slots by the time T + S:
//!
//! > m ≥ (L·T + 2·√(V·T)) / (T + S),  m = B − Σ blocked − b
//!
//! Short requests have b near 0 and are not affected. Long requests are capped, the more tightly the longer
//! they stay and the tighter the limits are. For very long ones the cap is B − L. B is the smaller of the
//! window and twice the need of the guarantees, which is Σ *g·t* by the service times of the policy, or the last L
//! before contention was seen if that is more. (A service time may have been declared as CPU time, although requests
//! mostly wait.) The window follows the nodes' capacity for short requests and cannot tell how many long ones they
//! have room for: a pool of workers slows no request down until its last worker is taken.
//!
//! The same rule bounds a claimant's requests beyond its allowance ([`super::allowance`]) once contention has been
//! seen, with the window as B. The need of the guarantees does not bound them. Where a dependency becomes slow, they
//! need more than the service times say, and a window that never fills learns nothing. A class without a guarantee
//! has no claim, but it gets a share of the rest: where its requests do not fit, it earns a twentieth of the window. It
//! spends this on its tokens, and where owed requests alone fill the window, on a twentieth of its slots.

mod claim;

use self::claim::claim;
use super::allowance::{EXPENSIVE, Pace, Raise, Slowdown, allowance};
use super::probe::BLOCKABLE;
use super::round::{Pass, Round, VISITS};
use super::{REST, Room};
use crate::classify::Classes;
use crate::dispatch::Nodes;
use crate::index::{Id, MachineGroupId, PartitionId, Table};
use crate::learned::LearnedTimes;
use crate::request::ClassId;
use crate::scheduler::Standing;
use crate::time::Time;

/// Interval between two updates of active classes, in nanoseconds. It is short compared with any limit.
const TICK: u64 = 20_000_000;

/// Completions over which times in flight are averaged. The mean of 64 exponential times is within an eighth.
const COMPLETIONS: f64 = 64.0;

/// Number of earlier completions that still count after times have changed. Detecting the change took as
/// many.
const CHANGED: f64 = 4.0;

/// Completions from which a mean gives the slowdown of a class within a quarter.
const KNOWN: f64 = 16.0;

/// Arrivals, relative to the guaranteed rate, from which a class surges. At the rate itself, arrivals of a second
/// exceed it half of the time, and by a tenth less often.
const SURGES: f64 = 1.1;

/// Standard deviations of the arriving work for which room is kept. One burst in forty is larger.
const DEVIATIONS: f64 = 2.0;

/// Seconds for which classes without a guarantee can save the part of the window that they earn.
const SAVED: f64 = 2.0;

/// Slack in seconds of a claimant without a limit. Its guarantee is per second.
const NO_LIMIT: f64 = 1.0;

/// Estimates of a class.
#[derive(Clone, Copy, Debug)]
struct Holding {
    /// Whether it is among the active classes.
    active: bool,
    /// Whether it has a guaranteed throughput.
    claims: bool,
    arrivals: Pace,
    answers: Pace,
    /// Mean and mean square of the times in flight, in seconds, and the number of completions in them.
    mean: f64,
    square: f64,
    count: f64,
    in_flight: u32,
    /// Sum of the release times of the requests in flight, in seconds on the engine's clock.
    released: f64,
    /// b, T and S of the formula above.
    blocking: f64,
    stay: f64,
    slack: f64,
    /// Slots that its guarantee needs, and requests that it may have in flight whatever the window. Both are
    /// infinite while its service time alone is unknown.
    part: f64,
    allowance: f64,
    /// Slots that are part of the allowance as long as no other class suffers.
    raise: Raise,
    /// Its partition, and the latest round that has updated `blocking`.
    partition: PartitionId,
    round: u64,
}

const UNKNOWN: Holding = Holding {
    active: false,
    claims: false,
    arrivals: Pace::NONE,
    answers: Pace::NONE,
    mean: 0.0,
    square: 0.0,
    count: 0.0,
    in_flight: 0,
    released: 0.0,
    // Unknown requests count as long until the first one has ended.
    blocking: 1.0,
    stay: 0.0,
    slack: NO_LIMIT,
    part: f64::INFINITY,
    allowance: f64::INFINITY,
    raise: Raise::NONE,
    partition: PartitionId(0),
    round: 0,
};

impl Holding {
    /// Returns the mean remaining time of its requests, seen at a random moment. Longer requests are seen
    /// more often.
    fn residual(&self, now: f64) -> f64 {
        let known = if self.mean > 0.0 { self.square / self.mean } else { 0.0 };
        let age = if self.in_flight > 0 { now - self.released / f64::from(self.in_flight) } else { 0.0 };
        known.max(age)
    }

    /// Returns whether it sends so much more than its guaranteed `rate` that its own surplus slows it down.
    fn surges(&self, rate: f64) -> bool {
        self.arrivals.per_s() > SURGES * rate
    }
}

/// The claimants' need of a window, and the blocked slots.
#[derive(Clone, Copy, Debug, Default)]
struct Need {
    /// L and V of the formula above.
    slots: f64,
    variance: f64,
    blocked: f64,
    /// Maximum number of owed requests in flight that could all be answered within their limits.
    max: f64,
    /// Slots for which machines need room beyond the window, because allowances have grown past the parts of classes.
    beyond: f64,
    /// Slot-seconds that classes without a guarantee have earned.
    rest: f64,
    /// L when requests last did not wait for one another. It is what the guarantees need, whatever service times the
    /// policy declares.
    uncontended: f64,
    /// L and the blocked slots when requests were last seen not to wait for one another, at most those in flight.
    held_freely: f64,
}

/// Times in flight of all classes, and the room that they leave.
#[derive(Clone, Debug)]
pub(super) struct Occupancy {
    holdings: Table<ClassId, Holding>,
    active: Vec<ClassId>,
    /// Indexed by window.
    needs: Vec<Need>,
    /// Sums by partition while they are computed: L, V, the blocked slots, the maximum number of owed requests, and the
    /// slots beyond the windows.
    sums: Table<PartitionId, [f64; 5]>,
    /// A class that misses a limit that could be kept.
    missed: Option<ClassId>,
    common_slowdown: Slowdown,
    round: Round,
    pub(super) next: Time,
}

impl Occupancy {
    pub(super) fn new(now: Time, windows: usize, classes: usize, partitions: usize) -> Occupancy {
        Occupancy {
            holdings: Table::filled(classes, UNKNOWN),
            active: Vec::new(),
            needs: vec![Need::default(); windows],
            sums: Table::filled(partitions, [0.0; 5]),
            missed: None,
            common_slowdown: Slowdown::NONE,
            round: Round::none(now),
            next: Time::NEVER,
        }
    }

    /// Returns the time in seconds in which the slots of a group of machines are given back once: the mean time in
    /// flight of the classes, each weighted by its requests in flight. Of a class without answers the requests' age
    /// counts. `None` if nothing is in flight.
    pub(super) fn turnover(&self, now: Time, nodes: &Nodes, group: MachineGroupId) -> Option<f64> {
        let now = now.as_nanos() as f64 / 1e9;
        let (mut slots, mut seconds) = (0.0, 0.0);
        for (partition, share) in nodes.shares(group) {
            let active = self.active.iter().map(|class| &self.holdings[*class]);
            for holding in active.filter(|holding| holding.partition == partition) {
                let own = f64::from(holding.in_flight) * share;
                slots += own;
                seconds += own * if holding.mean > 0.0 { holding.mean } else { holding.residual(now) };
            }
        }
        (slots > 0.0).then(|| seconds / slots)
    }

    /// Returns the time in seconds in which the requests of a class make way for others: their mean time in flight, or
    /// the turnover of the group's slots if that is shorter.
    pub(super) fn renewal(&self, now: Time, nodes: &Nodes, group: MachineGroupId, class: ClassId) -> f64 {
        self.turnover(now, nodes, group).unwrap_or(f64::INFINITY).min(self.holdings[class].mean)
    }

    /// Returns the maximum number of owed requests in a window that could be answered within their limits.
    pub(super) fn owed_at_most(&self, window: usize) -> f64 {
        self.needs[window].max
    }

    /// Returns a class that has been seen to miss a limit by its time in flight alone although the limit could be
    /// kept. Each round reports a class once.
    pub(super) fn misses(&mut self) -> Option<ClassId> {
        self.missed.take()
    }

    /// Returns the factor by which the least affected class takes longer in flight than alone, at least 1. After a
    /// change that nothing explains, what a request takes alone is unknown (`changed`). If all classes are slowed down
    /// alike, the slowdown may then be that of a dependency, and does not count.
    pub(super) fn slowdown(&self, classes: &Classes, changed: bool) -> f64 {
        let all = || self.active.iter().filter_map(|class| self.slowdown_of(classes, *class));
        let least = bounded(all().fold(f64::INFINITY, f64::min));
        let is_shared = changed && all().all(|slowdown| slowdown <= EXPENSIVE * least);
        if is_shared { 1.0 } else { least }
    }

    /// Returns whether another class is slowed down so much more than this one that it may be the cause of a change of
    /// this one's times. Of more classes than a round visits at once, some may not have been looked at yet.
    pub(super) fn is_explained(&self, classes: &Classes, class: ClassId) -> bool {
        let Some(alone) = classes.service_time(class) else { return false };
        // Few completions since the change count, so this slowdown is mostly that before it.
        let own = self.holdings[class].mean / alone;
        self.round.slowest.of_others(class) > Some(EXPENSIVE * own)
    }

    /// Returns the factor by which a class takes longer in flight than alone, if it is known.
    fn slowdown_of(&self, classes: &Classes, class: ClassId) -> Option<f64> {
        let holding = &self.holdings[class];
        let known = classes.service_time(class).filter(|_| holding.count >= KNOWN)?;
        Some(holding.mean / known)
    }

    pub(super) fn open(&mut self, class: ClassId) {
        let active = self.holdings.get(class).is_some_and(|known| known.active);
        self.holdings.put(class, Holding { active, ..UNKNOWN });
    }

    /// Takes over the estimates of a class's times.
    pub(super) fn carry(&mut self, old: &Occupancy, from: ClassId, to: ClassId) {
        let Holding { arrivals, mean, square, count, blocking, stay, slack, .. } = old.holdings[from];
        let holding = &mut self.holdings[to];
        *holding = Holding { mean, square, count, blocking, stay, slack, ..*holding };
        holding.arrivals.carry(arrivals);
    }

    /// Takes over what a window's claimants need when requests do not wait for one another.
    pub(super) fn carry_window(&mut self, old: &Occupancy, from: usize, to: usize) {
        self.needs[to].uncontended = old.needs[from].uncontended;
    }

    /// Returns the times of a class with completions.
    pub(super) fn learned_times(&self, class: ClassId) -> Option<LearnedTimes> {
        let Holding { arrivals, mean, square, count, .. } = *self.holdings.get(class)?;
        (count > 0.0).then(|| LearnedTimes { arrivals_per_s: arrivals.per_s(), mean, square, completions: count })
    }

    /// Takes over the times of a class.
    pub(super) fn adopt_times(&mut self, class: ClassId, times: LearnedTimes) {
        let Some(holding) = self.holdings.get_mut(class) else { return };
        (holding.mean, holding.square) = (times.mean, times.square);
        holding.count = times.completions.min(COMPLETIONS);
        holding.arrivals.adopt(times.arrivals_per_s);
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
        holding.arrivals.add();
        // Set at once, because owed requests must not be held back until the first update.
        holding.claims = claims;
    }

    /// Activates a class that has requests under a new policy, because it may have no further arrivals.
    pub(super) fn resumes(&mut self, now: Time, class: ClassId, claims: bool) {
        self.activate(now, class);
        self.holdings[class].claims = claims;
    }

    /// Counts a request in flight. `earned` says that a class without a guarantee pays for it with what it has earned.
    #[inline]
    pub(super) fn enters(&mut self, now: Time, window: usize, class: ClassId, earned: bool) {
        self.activate(now, class);
        let holding = &mut self.holdings[class];
        holding.in_flight += 1;
        holding.released += now.as_nanos() as f64 / 1e9;
        self.needs[window].blocked += holding.blocking;
        if holding.round == self.round.number {
            self.sums[holding.partition][2] += holding.blocking;
        }
        if !holding.claims && earned {
            // Unknown requests are assumed to take as long as those in flight have taken so far.
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
        if holding.round == self.round.number {
            self.sums[holding.partition][2] -= holding.blocking;
        }
    }

    /// Moves a request in flight that is released again to another node.
    pub(super) fn again(&mut self, now: Time, (from, to): (usize, usize), class: ClassId, released: Time) {
        let holding = &mut self.holdings[class];
        holding.released += now.since(released).as_secs_f64();
        self.needs[from].blocked -= holding.blocking;
        self.needs[to].blocked += holding.blocking;
    }

    #[inline]
    pub(super) fn completed(&mut self, class: ClassId, seconds: f64) {
        let holding = &mut self.holdings[class];
        holding.answers.add();
        if f64::from(holding.in_flight) + 1.0 >= holding.allowance {
            holding.allowance += holding.raise.used_up();
        }
        holding.count = (holding.count + 1.0).min(COMPLETIONS);
        holding.mean += (seconds - holding.mean) / holding.count;
        holding.square += (seconds * seconds - holding.square) / holding.count;
    }

    /// Records that the times in flight of a class have changed.
    pub(super) fn changed(&mut self, class: ClassId) {
        let holding = &mut self.holdings[class];
        holding.count = holding.count.min(CHANGED);
    }

    /// Returns L and the blocked slots of a window.
    pub(super) fn occupied(&self, window: usize) -> (f64, f64) {
        let need = &self.needs[window];
        (need.slots, need.blocked.max(0.0))
    }

    /// Returns the number of requests of a class that may be in flight whatever the window, if its service
    /// time alone is known.
    pub(super) fn allowance(&self, class: ClassId) -> Option<f64> {
        self.holdings.get(class).map(|holding| holding.allowance).filter(|allowance| allowance.is_finite())
    }

    /// Returns whether a class has fewer requests in flight than its allowance, or has earned its share of a
    /// window.
    #[inline]
    pub(super) fn allows(&self, class: ClassId, window: usize) -> bool {
        self.holdings.get(class).is_some_and(|holding| match holding.claims {
            true => holding.allowance.is_finite() && f64::from(holding.in_flight) < holding.allowance,
            false => self.has_earned(holding, window),
        })
    }

    /// Returns whether a class without a guarantee has earned a request. Unknown requests are released one by
    /// one.
    fn has_earned(&self, holding: &Holding, window: usize) -> bool {
        self.needs[window].rest > 0.0 && (holding.count > 0.0 || holding.in_flight == 0)
    }

    /// Returns the slots for which the machines of a window need room beyond it.
    pub(super) fn beyond(&self, window: usize) -> f64 {
        self.needs[window].beyond
    }

    /// Notes that the requests of a window, `in_flight` of them, have been seen not to wait for one another.
    #[inline]
    pub(super) fn seen_free(&mut self, window: usize, in_flight: u32) {
        let need = &mut self.needs[window];
        // A class that has just become expensive claims more than it holds.
        need.held_freely = (need.slots + need.blocked).min(f64::from(in_flight));
    }

    /// Returns the slots of a window that claimants held when requests were last seen not to wait for one another.
    pub(super) fn held_freely(&self, window: usize) -> f64 {
        self.needs[window].held_freely
    }

    /// Returns the factor by which the needs of classes are raised.
    pub(super) fn common_slowdown(&self) -> f64 {
        self.common_slowdown.factor()
    }

    /// Returns whether a request of the class may be released with this standing.
    #[inline]
    pub(super) fn admits(&self, class: ClassId, standing: Standing, room: Room) -> bool {
        let holding = &self.holdings[class];
        match (standing, holding.claims) {
            (Standing::Owed, true) => {
                !room.contended
                    || f64::from(holding.in_flight) < holding.allowance
                    || self.fits(holding, room.window, room.bound)
            }
            (Standing::Owed, false) => self.has_earned(holding, room.window) || self.fits_surplus(holding, room),
            (Standing::Surplus, _) => self.fits_surplus(holding, room),
            (Standing::Needed, _) => true,
        }
    }

    /// Returns whether the claimants' need is still met if the request stays as long as its class's requests usually
    /// do, and at most `blockable` slots of the window may be blocked.
    fn fits(&self, holding: &Holding, window: usize, blockable: f64) -> bool {
        let Holding { blocking, stay, slack, .. } = *holding;
        let need = &self.needs[window];
        let work = need.slots * stay + DEVIATIONS * (need.variance.max(0.0) * stay).sqrt();
        need.blocked + blocking * (work / (stay + slack).max(1e-6) + 1.0) <= blockable
    }

    /// Returns whether a request that no guaranteed throughput covers fits. The need of the guarantees bounds it too.
    fn fits_surplus(&self, holding: &Holding, Room { window, bound, max_blocked, .. }: Room) -> bool {
        let needed = max_blocked.max(BLOCKABLE * self.needs[window].uncontended);
        self.fits(holding, window, bound.min(needed))
    }

    /// Continues the round through the active classes when it is due. `bounds` returns B and whether contention has
    /// been seen, by window.
    pub(super) fn tick(&mut self, now: Time, classes: &mut Classes, nodes: &Nodes, bounds: impl Fn(usize) -> Room) {
        if now < self.next {
            return;
        }
        if self.round.pass == Pass::Over {
            self.begin(now);
        }
        let contended = (0..self.needs.len()).all(|window| bounds(window).contended);
        let mut left = VISITS;
        while self.round.pass != Pass::Over {
            let end = self.active.len().min(self.round.at + left);
            left -= end - self.round.at;
            while self.round.at < end {
                self.visit(now, classes, nodes, contended);
                self.round.at += 1;
            }
            if self.round.at < self.active.len() {
                break;
            }
            self.round.at = 0;
            self.round.pass = match self.round.pass {
                Pass::Slowdown => {
                    self.common_slowdown = Slowdown::new(bounded(self.round.slowdown));
                    Pass::Need
                }
                Pass::Need => {
                    self.round.counted = self.active.len();
                    Pass::Room
                }
                Pass::Room | Pass::Over => {
                    self.active.truncate(self.round.kept);
                    self.divide(nodes, self.round.seconds, &bounds);
                    Pass::Over
                }
            };
        }
        self.next = if self.active.is_empty() { Time::NEVER } else { Time::from_nanos(now.as_nanos() + TICK) };
    }

    /// Begins a round.
    fn begin(&mut self, now: Time) {
        self.round = self.round.next(now);
        self.missed = None;
        self.sums.fill([0.0; 5]);
    }

    /// Updates the next class of the pass.
    fn visit(&mut self, now: Time, classes: &mut Classes, nodes: &Nodes, contended: bool) {
        let Round { number, pass, at, seconds, .. } = self.round;
        let class = self.active[at];
        match pass {
            Pass::Slowdown => {
                let slowdown = self.slowdown_of(classes, class).filter(|slowdown| slowdown.is_finite());
                self.round.slowdown = self.round.slowdown.min(slowdown.unwrap_or(f64::INFINITY));
                // A class of which nothing is known yet is not slowed down visibly.
                let visible = slowdown.unwrap_or(1.0);
                self.round.slowest.add(visible, class);
                if self.holdings[class].claims {
                    let rate = classes.spec(class).guarantee.throughput.unwrap_or(0.0);
                    let surges = self.holdings[class].surges(rate);
                    self.round.suffering.add(if surges { 1.0 } else { visible }, class);
                }
            }
            Pass::Need => {
                let holding = &mut self.holdings[class];
                holding.arrivals.update(seconds);
                holding.answers.update(seconds);
                let common = (contended, self.common_slowdown);
                if claim(now, classes, class, holding, common, &mut self.sums, &mut self.round.tightest) {
                    self.missed = Some(class);
                }
            }
            // It has become active since the pass before.
            Pass::Room if at >= self.round.counted => {
                self.active[self.round.kept] = class;
                self.round.kept += 1;
            }
            Pass::Room => {
                let state = &classes[class];
                let (holding, tightest) = (&mut self.holdings[class], &self.round.tightest);
                let seconds = now.as_nanos() as f64 / 1e9;
                holding.stay = holding.residual(seconds);
                holding.slack = tightest.of_others(class).min(1e6);
                holding.allowance = allowance(holding.part, holding.answers, tightest.limit);
                if contended && holding.claims && holding.allowance.is_finite() {
                    let others = self.round.suffering.of_others(class);
                    let rate = classes.spec(class).guarantee.throughput.unwrap_or(0.0);
                    // What the guarantee needs at present times.
                    let needed = rate * holding.mean;
                    holding.raise.update(seconds, others, (needed - holding.allowance).max(0.0));
                    holding.allowance += holding.raise.slots();
                    let beyond = match others {
                        // A class alone can harm only itself, and its answers already bound it.
                        None => holding.allowance,
                        // Beside others, the allowance of a class that surges would grow with the times that it causes.
                        Some(_) if holding.surges(rate) => 0.0,
                        Some(_) => holding.allowance.min(needed),
                    };
                    self.sums[state.partition][4] += (beyond - holding.part).max(0.0);
                } else {
                    holding.raise.ends();
                }
                // Until the first request has ended, its class's requests may stay for ever.
                let unknown = holding.count == 0.0 && holding.in_flight > 0 && !holding.claims;
                let blocking = if unknown { 1.0 } else { (holding.stay / holding.slack).min(1.0) };
                let changed = f64::from(holding.in_flight) * (blocking - holding.blocking);
                (holding.blocking, holding.partition, holding.round) = (blocking, state.partition, number);
                self.sums[state.partition][2] += holding.blocking * f64::from(holding.in_flight);
                holding.active = holding.in_flight > 0 || holding.arrivals.per_s() > 1e-3 || state.queue.len > 0;
                self.active[self.round.kept] = class;
                self.round.kept += usize::from(holding.active);
                // The sums take effect at the end of the round, but a request that leaves before counts as it does now.
                if changed != 0.0 && !Round::is_short(self.active.len()) {
                    self.add_blocked(nodes, state.partition, changed);
                }
            }
            Pass::Over => {}
        }
    }

    /// Adds slots to those that requests of a partition block.
    fn add_blocked(&mut self, nodes: &Nodes, partition: PartitionId, slots: f64) {
        for (window, need) in self.needs.iter_mut().enumerate() {
            let group = MachineGroupId::of(window % nodes.groups.len());
            let shares = nodes.shares(group).filter(|(of, _)| *of == partition);
            need.blocked += slots * shares.map(|(_, share)| share).sum::<f64>();
        }
    }

    /// Divides the partitions' sums among their groups of machines.
    fn divide(&mut self, nodes: &Nodes, seconds: f64, bounds: &impl Fn(usize) -> Room) {
        let groups = nodes.groups.len();
        for window in 0..self.needs.len() {
            let group = MachineGroupId::of(window % groups);
            let mut sum = [0.0; 5];
            for (partition, share) in nodes.shares(group) {
                sum.iter_mut().zip(self.sums[partition]).for_each(|(sum, of_partition)| *sum += of_partition * share);
            }
            let max = REST * bounds(window).bound;
            let need = &mut self.needs[window];
            [need.slots, need.variance, need.blocked, need.max, need.beyond] = sum;
            if !bounds(window).contended {
                need.uncontended = need.slots;
            }
            need.rest = (need.rest + max * seconds).min(max * SAVED);
        }
    }
}

/// Returns a slowdown that can be used as a factor.
fn bounded(slowdown: f64) -> f64 {
    slowdown.clamp(1.0, 1e6)
}
