//! The adaptive window. It seeks the knee: the number in flight from which one more request only makes the others
//! slower.
//!
//! Source: our own. By Little's law W requests in flight with a mean service time R are completed at the rate X =
//! W/R. Below the knee R does not depend on W and X grows with it. Above the knee X is constant and R grows. The
//! elasticity e = d ln R / d ln W is therefore 0 far below the knee and 1 far above it. This holds for any cost of
//! requests, any number of processors and any time spent waiting for a database, so no figure of the cluster has to
//! be known. (Nodes that thrash have e > 1.)
//!
//! While the window holds requests back it probes: half a cycle at its base B, half a cycle at B·(1 + swing). The
//! completions in the two halves give e = 1 − ln(X high / X low) / ln(W high / W low). Completions are counted as work,
//! each with its class's mean service time over the cycle, so that a change in the mix of classes between the halves
//! does not matter. (By Little's law, response times of the two halves would say the same. But requests that do not end
//! within their half are missing from them, and those are the slow ones.) A half lasts until its slots have been given
//! back often enough (see [`super::cycle`]). B then moves by a factor exp(gain · (target − e) · ln(W high / W low)): up
//! while more requests in flight still increase throughput, down while they only wait. The product is computed without
//! the quotient, so an incomplete probe moves B a little instead of wildly. A cycle costs only a little response time.
//! No request is shed to measure, and no minimum of response times is remembered, so nothing can drift.
//!
//! Far above the knee e is 1 and far below it 0 at any distance, so this step alone would need a hundred cycles.
//! Whenever the window starts anew it therefore searches first. B grows by half per cycle while e is certainly below
//! one half, or shrinks by one swing while e is certainly close to 1. The search never changes direction. When
//! neither holds and the estimate is precise, it has found the knee, and the cycles become long.
//!
//! A limit at risk has priority. A class's limit is at risk if its service time uses more than `compute_share` of the
//! part that the limit leaves beyond the unloaded service time. B then shrinks by a tenth, unless the last elasticity
//! was low: a smaller window would cost throughput and help no class. While no elasticity is known, B shrinks once a
//! cycle, so that the cycle can tell.
//!
//! While the window holds nothing back it stays as it is, so a quiet period does not open it for a surge.

use core::time::Duration;

use super::CERTAIN;
use super::cycle::{All, Cycle, HalfCycle, Halves, Lesson, Others, SWUNG};
use super::elasticity::{Elasticity, FLAT};
use crate::discipline::Adaptive;
use crate::others::LARGEST;
use crate::request::{ClassId, Why};
use crate::time::Time;

/// Maximum length in seconds of a half cycle without enough completions.
const PATIENCE: f64 = 10.0;

/// Factors on the length of the low and high half once the knee has been found. More completions mean less noise.
/// Only the low half loses work, a fiftieth of it, and it lasts a sixteenth of a cycle, so a cycle costs a
/// thousandth.
const STEADY: [f64; 2] = [2.0, 30.0];

/// Standard error of the elasticity below which a search ends if it moves in neither direction: half of the difference
/// between the elasticities of the two sides of the knee.
const CLEAR: f64 = 0.25;

/// Number of short cycles after contention has been seen, because the knee that it shows is rough.
const SETTLED: u32 = 40;

/// Maximum number of slots that surplus may block, relative to the slots that the guarantees need. This assumes a
/// cluster of about twice the needed size. Short requests cannot tell whether nodes have room for more long requests
/// than that.
pub(super) const BLOCKABLE: f64 = 2.0;

/// Seconds for which the number in flight has to stay beyond the window before the window follows it. A burst of all
/// buckets is a second's worth of requests, and is gone by then. With one second Fig. 9's p95 leaves its band.
const LASTING: f64 = 3.0;

/// A moment, in seconds, and at most this part of the tightest limit: nobody sees the time that requests stay longer
/// because so many of them are in flight. A fast node reads and answers several requests at once, and wakes up less
/// often. With four to twelve in flight, nginx on one processor answers a tenth fewer requests a second than with
/// forty, and the gateway spends a twelfth more processor time on each.
const MOMENT: f64 = 0.001;
const BRIEF: f64 = 0.05;

/// The probing state of one window.
#[derive(Clone, Debug)]
pub(in crate::limit) struct Probe {
    figures: Adaptive,
    /// B, in requests.
    pub(in crate::limit) base: f64,
    /// The base before the latest trial.
    pub(in crate::limit) before: f64,
    search: Search,
    /// The smallest base.
    pub(in crate::limit) min: f64,
    /// Maximum number of slots that surplus may block, however large the window is.
    max_blocked: f64,
    /// Number of the cycle.
    cycle: u64,
    /// Number of times that conditions have changed. What was learned in an earlier era is obsolete.
    pub(in crate::limit) era: u64,
    /// Cycles since contention was seen.
    settled: u32,
    /// Whether the half is the one at B·(1 + swing).
    high: bool,
    /// Time from which releases count. The number in flight takes one service time to follow the window.
    counts_from: Time,
    /// Time at which the half may end.
    pub(in crate::limit) next: Time,
    /// Length in seconds of the latest cycles in which the number in flight was beyond the window.
    beyond: f64,
    /// Weight of the usable machines that the base is for.
    pub(in crate::limit) weight: f64,
    /// Smallest ratio of service time to unloaded service time among the classes of the latest half, at least 1. It
    /// is the slowdown that every request in flight has.
    pub(in crate::limit) slowdown: f64,
    /// The elasticity that the latest cycles show.
    elasticity: Elasticity,
    /// Integral of the number in flight since `counts_from`, in request-seconds, and the time of its last update.
    area: f64,
    at: Time,
    /// The part of the window of all engines on the same machines that this one has, at most 1.
    pub(in crate::limit) part: f64,
    /// While it hears nothing of the other engines: the part that it had before. Otherwise 1.
    alone: f64,
    /// The half that all engines are in, if there are others.
    together: Option<bool>,
    /// The others, and the integrals of their number in flight, their work and their completions in this half.
    others: Others,
    of_others: [f64; 3],
    /// Work and completions of this engine in this half, with service times on unloaded machines.
    own: [f64; 2],
    /// The same of its whole life.
    pub(in crate::limit) answered: [f64; 2],
    /// Time since `counts_from` during which requests were held back, in seconds.
    held: f64,
    holding: bool,
    completions: u32,
    /// The low half of the cycle, if it counts: mean number in flight, that of all engines, and seconds.
    low: Option<(f64, All, f64)>,
    /// Mean service time of the latest half, in seconds.
    compute: f64,
    /// Number of requests that are answered within a moment, at the pace of the latest half.
    passing: f64,
    sum: f64,
    /// Classes with completions in this cycle.
    pub(in crate::limit) seen: Vec<ClassId>,
}

impl Probe {
    pub(in crate::limit) fn new(now: Time, figures: Adaptive) -> Probe {
        Probe {
            figures,
            base: 0.0,
            before: f64::INFINITY,
            search: Search::Begun,
            min: 1.0,
            max_blocked: 1.0,
            cycle: 1,
            era: 0,
            settled: 0,
            high: true,
            counts_from: now,
            next: now + figures.shortest,
            beyond: 0.0,
            weight: 0.0,
            slowdown: 1.0,
            elasticity: Elasticity::default(),
            area: 0.0,
            at: now,
            part: 1.0,
            alone: 1.0,
            together: None,
            others: Others::default(),
            of_others: [0.0; 3],
            own: [0.0; 2],
            answered: [0.0; 2],
            held: 0.0,
            holding: false,
            completions: 0,
            low: None,
            compute: 0.0,
            passing: 0.0,
            sum: 0.0,
            seen: Vec::new(),
        }
    }

    pub(in crate::limit) fn figures(&self) -> &Adaptive {
        &self.figures
    }

    /// Applies new figures and classes. The estimate of the knee stays.
    pub(in crate::limit) fn reconfigure(&mut self, now: Time, figures: Adaptive) {
        self.figures = figures;
        self.turn(now, HalfCycle::Free);
    }

    /// Divides the base by `parts` after windows were split. `parts` is below 1 if they were merged.
    pub(in crate::limit) fn divide(&mut self, parts: f64) {
        self.base /= parts;
    }

    /// Sets what other engines do from now on.
    pub(in crate::limit) fn beside(&mut self, now: Time, in_flight: u32, others: Others) {
        self.note(now, in_flight, self.holding);
        self.others = others;
    }

    /// Sets the half that all engines are in. Returns whether this window must turn.
    pub(in crate::limit) fn turned(&mut self, high: bool) -> bool {
        let is_new = self.together.replace(high).is_none();
        is_new || self.high != high
    }

    /// Returns whether it swings with other engines.
    #[inline]
    pub(in crate::limit) fn is_together(&self) -> bool {
        self.together.is_some()
    }

    /// Takes this part of the window of all engines. An engine that went on alone gives the window of the others back.
    pub(in crate::limit) fn joins(&mut self, part: f64) {
        self.base *= core::mem::replace(&mut self.alone, 1.0);
        self.part = part;
    }

    /// Goes on alone, with the window of all engines. The half ends now, because it waits for another engine to end it.
    pub(in crate::limit) fn parts(&mut self, now: Time) {
        self.alone = self.part.max(1.0 / LARGEST);
        self.base /= self.alone;
        (self.together, self.part, self.next) = (None, 1.0, now);
    }

    /// The number in flight of other engines.
    pub(in crate::limit) fn others(&self) -> f64 {
        self.others.in_flight
    }

    /// Multiplies the base: a part of the window goes to another engine, or comes from it. The cycle goes on, because
    /// the number in flight of all engines stays. It may go below the lower bound until the next half: what an engine
    /// kept of it would make the sum of all windows larger with each move.
    pub(in crate::limit) fn moves(&mut self, factor: f64) {
        self.base = (self.base * factor).max(1.0);
        self.before *= factor;
    }

    /// Sets the slots that the guarantees need of this group, its usable machines and their weight. The base begins
    /// at these slots. It is never below a share of them, nor below `per_machine` requests per machine, nor below what
    /// is answered within a moment. It follows the weight of the machines, as the knee does.
    pub(in crate::limit) fn needs(&mut self, now: Time, slots: f64, machines: u32, weight: f64) {
        self.at_least(slots, machines);
        if self.base == 0.0 {
            self.base = slots;
        } else if weight > 0.0 && self.weight > 0.0 && weight != self.weight {
            self.base *= weight / self.weight;
            self.turn(now, HalfCycle::Free);
        }
        if weight > 0.0 {
            self.weight = weight;
        }
        self.base = self.base.max(self.min);
    }

    /// Sets the lower bound of the base from the slots that the guarantees need, the machines, and what is answered
    /// within a moment.
    pub(in crate::limit) fn at_least(&mut self, slots: f64, machines: u32) {
        let few = self.figures.per_machine * f64::from(machines.max(1));
        let few = (few * self.part).max(few.min(1.0));
        self.min = (self.figures.min_share * slots).max(few).max(self.passing);
        self.max_blocked = (BLOCKABLE * slots).max(few);
    }

    /// Sets the number of requests that are answered within a moment, from the answers of the half that has ended, and
    /// raises the base to it. A pause lets the base go below, and a window that small may never fill enough to take a
    /// step. `tightest` is the tightest limit of the classes seen.
    pub(in crate::limit) fn passes(&mut self, now: Time, tightest: Option<Duration>) {
        let moment = tightest.map_or(MOMENT, |limit| MOMENT.min(BRIEF * limit.as_secs_f64()));
        self.passing = moment * f64::from(self.completions) / now.since(self.counts_from).as_secs_f64().max(1e-9);
        self.base = self.base.max(self.passing);
    }

    /// Returns the slots that surplus may block of a larger window, by the need that the policy states.
    pub(in crate::limit) fn max_blocked(&self) -> f64 {
        self.max_blocked
    }

    /// Returns whether the base is above its lower bound.
    pub(in crate::limit) fn can_shrink(&self) -> bool {
        self.base > 1.01 * self.min
    }

    /// Returns the window in a high half before rounding. It is constant through the cycle.
    pub(in crate::limit) fn bound(&self) -> f64 {
        self.base * (1.0 + self.figures.swing)
    }

    /// Returns the present window.
    pub(in crate::limit) fn size(&self) -> u32 {
        if self.high { self.high() } else { self.low() as u32 }
    }

    /// Returns the window in a high half.
    pub(in crate::limit) fn high(&self) -> u32 {
        (self.base * (1.0 + self.figures.swing)).round().clamp(self.low() + 1.0, 1e9) as u32
    }

    fn low(&self) -> f64 {
        self.base.round().clamp(1.0, 1e8)
    }

    /// Returns whether requests are held back.
    pub(in crate::limit) fn holding(&self) -> bool {
        self.holding
    }

    /// Records the number in flight before it changes, or before requests begin or cease to be held back.
    pub(in crate::limit) fn note(&mut self, now: Time, in_flight: u32, holding: bool) {
        let from = self.at.max(self.counts_from);
        if now > from {
            let passed = now.since(from).as_secs_f64();
            self.area += passed * f64::from(in_flight);
            let Others { in_flight, work_per_s, answers_per_s } = self.others;
            for (sum, rate) in self.of_others.iter_mut().zip([in_flight, work_per_s, answers_per_s]) {
                *sum += passed * rate;
            }
            self.held += if self.holding { passed } else { 0.0 };
        }
        self.at = self.at.max(now);
        self.holding = holding;
    }

    /// Counts the work of an answer, for all engines together. `alone` is its service time on an unloaded machine.
    #[cold]
    pub(in crate::limit) fn answers(&mut self, now: Time, alone: f64) {
        self.answered = [self.answered[0] + alone, self.answered[1] + 1.0];
        if now >= self.counts_from {
            self.own = [self.own[0] + alone, self.own[1] + 1.0];
        }
    }

    /// Learns from a successful answer of `class` after `compute` seconds.
    pub(in crate::limit) fn completed(&mut self, now: Time, class: ClassId, halves: &mut Halves, compute: f64) {
        if now < self.counts_from {
            return;
        }
        if halves.cycle != self.cycle {
            *halves = Halves { cycle: self.cycle, ..Halves::default() };
            self.seen.push(class);
        }
        let half = usize::from(self.high);
        halves.sum += compute;
        halves.count[half] += 1;
        self.completions += 1;
        self.sum += compute;
    }

    /// Returns the result of the half that has ended, as far as it tells anything. `in_flight` is the present number,
    /// and `turnover` the seconds in which these requests leave once, if there are any.
    pub(in crate::limit) fn half(&mut self, now: Time, in_flight: u32, turnover: Option<f64>) -> HalfCycle {
        self.note(now, in_flight, self.holding);
        let seconds = now.since(self.counts_from).as_secs_f64();
        let held = self.held > self.figures.held_back * seconds;
        let each = self.sum / f64::from(self.completions.max(1));
        let turnover = turnover.unwrap_or(each).max(1e-9);
        let enough = self.completions > 0 && self.area / turnover >= self.figures.completions;
        let mean = self.area / seconds.max(1e-9);
        let [area, work, answers] = self.of_others;
        let all = All { area: self.area + area, work: self.own[0] + work, answers: self.own[1] + answers };
        let enough = enough || self.together.is_some() && all.answers >= self.figures.completions;
        if held && !enough && seconds < PATIENCE && self.together.is_none() {
            self.next = now + self.figures.shortest;
            return HalfCycle::Unfinished;
        }
        if self.completions > 0 {
            self.compute = each;
        }
        if !(held && enough) {
            return HalfCycle::Free;
        }
        match (self.high, self.low) {
            (true, Some((low, all_low, seconds_low))) => HalfCycle::Cycle(Cycle {
                in_flight: [low, mean],
                seconds: [seconds_low, seconds],
                turnover,
                all: (self.others != Others::default()).then_some([all_low, all]),
            }),
            (true, None) => HalfCycle::High,
            (false, _) => {
                self.low = Some((mean, all, seconds));
                HalfCycle::Low
            }
        }
    }

    /// Returns the work of one class completed in the low and in the high half of the cycle.
    pub(in crate::limit) fn work(&self, halves: &Halves) -> [f64; 2] {
        let count = f64::from(halves.count[0] + halves.count[1]);
        if halves.cycle != self.cycle || count == 0.0 {
            return [0.0; 2];
        }
        halves.count.map(|n| f64::from(n) * halves.sum / count)
    }

    /// Learns from a whole cycle, in which `work` was completed in the two halves.
    pub(in crate::limit) fn learn(&mut self, work: [f64; 2], cycle: Cycle) -> Lesson {
        let per_s = |sums: [f64; 2]| (sums[1] / cycle.seconds[1]) / (sums[0] / cycle.seconds[0]);
        let own = (cycle.in_flight[1] / cycle.in_flight[0]).ln();
        // With other engines on the machines, the sums of all of them count. A larger window of one engine takes
        // answers from the others, and its own sums would show them as gained.
        let (gained, swung) = match cycle.all {
            None => (per_s(work), own),
            Some(all) => (per_s(all.map(|half| half.work)), per_s(all.map(|half| half.area)).ln()),
        };
        let gained = if gained.is_finite() && gained > 0.0 { gained.ln() } else { 0.0 };
        let full = (1.0 + self.figures.swing).ln();
        // The others may have swung the other way, and further.
        let divisor = if cycle.all.is_some() && swung < 0.0 { swung.min(-0.1 * full) } else { swung.max(0.1 * full) };
        let elasticity = 1.0 - gained / divisor;
        let [low, high] = cycle.answers().map(|count| count.max(1.0));
        let precision = swung * swung / (1.0 / low + 1.0 / high);
        (self.beyond, self.settled) = (0.0, self.settled.saturating_add(1));
        self.elasticity.learn(elasticity, precision);
        let trust = (low.min(high) / self.figures.trusted).min(1.0);
        let max = self.figures.believed * full;
        let pull = (gained - (1.0 - self.figures.target) * swung) * divisor.signum();
        Lesson { elasticity, pull: self.figures.gain * trust * pull.clamp(-max, max) }
    }

    /// Moves the base after a whole cycle.
    pub(in crate::limit) fn step(&mut self, lesson: Lesson) -> Why {
        if !self.searches() {
            self.base *= lesson.pull.exp();
        }
        self.base = self.base.max(self.min);
        Why::Elasticity { elasticity: lesson.elasticity, searching: self.search != Search::Over }
    }

    /// Takes a step of the search. Returns false if there is none, and then the base follows the elasticity.
    fn searches(&mut self) -> bool {
        let (elasticity, error) = self.elasticity();
        self.search = match self.search {
            Search::Begun | Search::Up if elasticity + CERTAIN * error < self.figures.found => {
                self.base *= self.figures.search;
                Search::Up
            }
            Search::Begun | Search::Down if elasticity - error > FLAT && self.base > self.min => {
                self.base /= 1.0 + self.figures.swing;
                Search::Down
            }
            Search::Over => return false,
            _ if error < CLEAR => {
                self.search = Search::Over;
                return false;
            }
            _ => return false,
        };
        self.elasticity = Elasticity::default();
        true
    }

    /// Returns whether a smaller window would shorten service times, as far as is known at the end of `half`. While
    /// nothing is known, it is tried at the end of a cycle. If the base moved after each half, no cycle would tell.
    pub(in crate::limit) fn helps(&self, half: HalfCycle) -> bool {
        let unknown = matches!(half, HalfCycle::Free | HalfCycle::Cycle(_));
        self.elasticity.known().map_or(unknown, |mean| mean >= self.figures.found)
    }

    /// Returns the mean service time of a class over the cycle, minus the part that may be chance, in seconds.
    pub(in crate::limit) fn mean(&self, halves: &Halves) -> f64 {
        let count = f64::from(halves.count[0] + halves.count[1]);
        if halves.cycle != self.cycle || count == 0.0 {
            return 0.0;
        }
        // Two standard errors of exponential times.
        halves.sum / count / (1.0 + 2.0 / count.sqrt())
    }

    /// Returns the window in the low and in the high half.
    pub(in crate::limit) fn sizes(&self) -> [f64; 2] {
        [self.low(), self.high().into()]
    }

    /// Raises the base to the number in flight if that stays beyond the window. Allowances can keep it there, and a
    /// window that bounds nothing never learns. A search that goes down or is over knows the knee.
    pub(in crate::limit) fn rises(&mut self, cycle: Cycle) {
        let (Search::Begun | Search::Up, Some(in_flight)) = (self.search, cycle.beyond(self.sizes())) else {
            self.beyond = 0.0;
            return;
        };
        self.beyond += cycle.seconds.iter().sum::<f64>();
        if self.beyond >= LASTING {
            self.base = self.base.max(in_flight);
        }
    }

    /// Returns the elasticity of the latest cycles and its standard error.
    pub(in crate::limit) fn elasticity(&self) -> (f64, f64) {
        self.elasticity.estimate()
    }

    /// Discards the evidence after conditions have changed, and begins a new era.
    pub(in crate::limit) fn forget(&mut self, now: Time) {
        self.era += 1;
        self.begin();
        self.turn(now, HalfCycle::Free);
    }

    /// Restarts the search, because the knee may be anywhere.
    pub(in crate::limit) fn begin(&mut self) {
        self.elasticity = Elasticity::default();
        self.search = Search::Begun;
    }

    /// Restarts at `knee`, the number in flight from which requests have been seen to wait for one another.
    pub(in crate::limit) fn begin_at(&mut self, knee: f64) {
        self.begin();
        self.settled = 0;
        self.base = knee.max(self.min);
    }

    /// Remembers the base at the start of a trial.
    pub(in crate::limit) fn tries(&mut self) {
        self.before = self.base;
    }

    /// Ends a trial that has shown contention. The base is at most its previous value.
    pub(in crate::limit) fn reverts(&mut self) {
        self.base = self.base.min(self.before).max(self.min);
    }

    /// Raises the base to the number in flight, by Little's law, of the requests answered in this half without a sign
    /// of contention: the knee is no lower. Requests that hang do not count. A few long requests that end at once
    /// count for no more than the number in flight. A number that the window itself held back proves nothing.
    pub(in crate::limit) fn proven(&mut self, now: Time, half: HalfCycle) {
        let seconds = now.since(self.counts_from).as_secs_f64();
        let answered = self.sum.min(self.area) / seconds.max(1e-9);
        if half == HalfCycle::Free || answered > f64::from(self.size()) * SWUNG.exp() {
            self.base = self.base.max(answered);
        }
    }

    /// Shrinks the base because a limit is at risk. At its lower bound the search for the knee restarts.
    pub(in crate::limit) fn back_off(&mut self, in_flight: u32) {
        self.search = Search::Over;
        self.base = (self.figures.back_off * self.base.min(f64::from(in_flight.max(1)))).max(self.min);
        if self.base <= self.min {
            self.begin();
        }
    }

    /// Begins the other half of the cycle, or a new cycle.
    pub(in crate::limit) fn turn(&mut self, now: Time, half: HalfCycle) {
        let alone = match half {
            HalfCycle::Unfinished => return,
            HalfCycle::Free | HalfCycle::Low => true,
            HalfCycle::High | HalfCycle::Cycle(_) => false,
        };
        self.high = self.together.unwrap_or(alone);
        if half != HalfCycle::Low {
            self.cycle += 1;
            self.seen.clear();
            self.low = None;
        }
        let compute = Duration::from_secs_f64(self.compute.min(PATIENCE));
        self.counts_from = now + compute;
        let length = compute.mul_f64(self.figures.computes).max(self.figures.shortest);
        self.next = self.counts_from
            + match (self.search == Search::Over && self.settled >= SETTLED, self.high) {
                (false, false) => length,
                (false, true) => length.mul_f64(self.figures.high),
                (true, high) => length.mul_f64(STEADY[usize::from(high)]),
            };
        if self.together.is_some() {
            // Another engine says when.
            self.next = self.counts_from + Duration::from_secs_f64(PATIENCE);
        }
        self.at = now;
        self.area = 0.0;
        self.of_others = [0.0; 3];
        self.own = [0.0; 2];
        self.held = 0.0;
        self.completions = 0;
        self.sum = 0.0;
    }
}

/// State of the search for the knee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// Stepping, with the direction still unknown.
    Begun,
    Up,
    Down,
    /// The knee has been found, and the base follows the elasticity.
    Over,
}

#[cfg(test)]
mod tests;
