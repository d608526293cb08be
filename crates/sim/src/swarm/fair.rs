//! The promises of `mqos` and `sqos` as rules that can fail: turns, shares, and no idle resource that a
//! request waits for.
//!
//! The rules apply in every judged phase without a failing machine, among classes that compete for the same
//! machines:
//!
//! - *turns*: while requests of a class wait and none is released, no more is released of the other classes
//!   than the class's turn allows. Under `mdrr` the class earns its largest request in ⌈cost/quantum⌉
//!   rounds, is in the middle of one round, and may need one more. In each round, another class takes at
//!   most a quantum and its largest request in each of its queues. Under `drfq` resources are reserved for
//!   the class after two horizons of work, divided by its part of the weights if it is too far ahead, and
//!   as much again passes until its request fits. (`docs/disciplines/mqos.md`, "bound on waiting".)
//! - *stalls*: while a request waits, requests are released. The requests in flight on full machines end
//!   within a horizon at each resource, at worst one resource after the other.
//! - *shares*: of two classes that wait all through a phase, neither gets more, over its weight, of the
//!   resource that it uses most. The rule allows a band and the length of turns. Under `drfq` the excess
//!   counts only for resources that are short, and a class that uses none of the other class's resources
//!   may have more.
//! - *use*: while a class waits all through a phase, the machines' busiest resources are used as far as the
//!   grain of the requests allows.
//!
//! The bounds are wide enough for all observations in 300 scenarios of each discipline, and no wider.
//!
//! The rules count charges. If the table is wrong and learned, only turns and stalls are checked, with room
//! for costs that are far off.

use std::ops::Range;

use weirgate_experiment::{Experiment, Run, Sample};

use super::backlog::{Backlog, Competitors};
use super::outcome::Lapse;
use super::resources::RESOURCES;
use super::starved::is_sound;

/// Allowed relative difference between classes' parts under `mdrr`, apart from the length of turns: a class
/// that waits in several queues leaves credit that none of its heads can use at the end of a round. The
/// largest difference in 300 scenarios was 0.15.
const BAND_BY_ROUNDS: f64 = 0.2;

/// The same under `drfq`, which has no rounds. No scenario exceeded the length of turns.
const BAND: f64 = 0.05;

/// Factor on the turns of classes that wait in several queues, where one head may keep credit or reserved
/// resources from another. The longest turn in 300 scenarios was 1.3 times the one computed for one queue.
const SEVERAL_LINES: f64 = 1.5;

/// A class waits all through a phase if the time in which none of its requests waits is at most this share
/// of it.
const SELDOM: f64 = 0.002;

/// Factor by which learned costs may be wrong, and with them all values derived from them.
const FAR_OFF: f64 = 8.0;

/// Seconds after a fault within which ejected nodes come back.
const RETURNS: f64 = 20.0;

/// Distance that a class may run ahead under `drfq`, and the age up to which its virtual times count. Both
/// are the engine's values, in horizons.
const AHEAD: f64 = 0.25;
const MEMORY: f64 = 5.0;

/// A resource is short if its use is at least this share of the use of the busiest resource.
const SHORT: f64 = 0.9;

/// Minimum share of a full server that is in use, apart from the grain of requests. The smallest in 300
/// scenarios was 0.865.
const IN_USE: f64 = 0.8;

/// A rule that did not hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Broken {
    pub(super) kind: Lapse,
    /// Index of the class. For the use of machines, the first class that waits.
    pub(super) class: usize,
    pub(super) phase: usize,
    /// The largest allowed value (for shares and use: the smallest) and the value found.
    pub(super) bound: f64,
    pub(super) found: f64,
}

/// Returns every rule that did not hold in a run.
pub(super) fn broken(experiment: &Experiment, run: &Run) -> Vec<Broken> {
    let Some(backlog) = Backlog::of(experiment, run) else { return Vec::new() };
    let learned = experiment.site.page_table.as_ref().is_some_and(|table| table.learned);
    let mut all = Vec::new();
    for phase in (0..experiment.phases.len()).filter(|phase| is_sound(experiment, *phase)) {
        let span = span(experiment, phase);
        for competitors in backlog.competitors.iter().filter(|_| !span.is_empty()) {
            let look = Look { backlog: &backlog, competitors, experiment, span: &span, phase };
            let off = if learned { FAR_OFF } else { 1.0 };
            all.extend(look.turns(off));
            if backlog.is_single {
                // Unmanaged resources may keep requests in flight for any time.
                continue;
            }
            all.extend(look.stalls(run, off));
            if !learned {
                all.extend(look.shares());
                all.extend(look.unused(&run.samples));
            }
        }
    }
    all
}

/// Returns the part of a phase that the rules check, in nanoseconds.
fn span(experiment: &Experiment, phase: usize) -> Range<u64> {
    let from = experiment.phase_from(phase);
    let lasting = |fault: &&weirgate_experiment::Fault| fault.until.is_some_and(|until| until <= from);
    let before = experiment.faults.iter().filter(lasting).filter_map(|fault| fault.until).max();
    let returned = before.map_or(0.0, |until| until.as_secs_f64() + RETURNS);
    let begin = (from + experiment.settle).as_secs_f64().max(returned);
    (begin * 1e9) as u64..experiment.phases[phase].until.as_nanos() as u64
}

/// Competing classes in a phase.
struct Look<'a> {
    backlog: &'a Backlog,
    competitors: &'a Competitors,
    experiment: &'a Experiment,
    span: &'a Range<u64>,
    phase: usize,
}

impl Look<'_> {
    fn weight(&self, class: usize) -> f64 {
        self.experiment.site.policy.classes[class].weight
    }

    fn broken(&self, kind: Lapse, class: usize, bound: f64, found: f64) -> Broken {
        Broken { kind, class, phase: self.phase, bound, found }
    }

    /// Returns the classes that waited longer than their turn allows.
    fn turns(&self, off: f64) -> Vec<Broken> {
        let mut all = Vec::new();
        for class in self.competitors.classes.iter().copied() {
            let others = self.competitors.classes.iter().copied().filter(|other| *other != class);
            let released = self.backlog.releases(others);
            let mut sums = vec![0.0];
            released.iter().for_each(|(_, work)| sums.push(sums[sums.len() - 1] + work));
            let upto = |at: u64| sums[released.partition_point(|(released, _)| *released <= at)];
            let waits = self.backlog.waits(class, self.span).into_iter();
            let longest = waits.map(|wait| upto(wait.end) - upto(wait.start)).fold(0.0, f64::max);
            let bound = off * SEVERAL_LINES * self.turn(class);
            if longest > bound {
                all.push(self.broken(Lapse::Turns, class, bound, longest));
            }
        }
        all
    }

    /// Returns the work of other classes that may be released before a class, in node-seconds of each
    /// request's dominant resource.
    fn turn(&self, class: usize) -> f64 {
        let Competitors { whole, weights, .. } = *self.competitors;
        let part = self.weight(class) / weights;
        if self.backlog.by_virtual_time {
            return 2.0 * (2.0 * whole + 2.0 * whole / part);
        }
        let rounds = (self.backlog.largest(class, self.span) / (whole * part)).ceil() + 2.0;
        let others = self.competitors.classes.iter().copied().filter(|other| *other != class);
        let round = others.map(|other| {
            let quantum = whole * self.weight(other) / weights;
            let lines: std::collections::BTreeSet<usize> =
                self.backlog.streams(other, self.span).into_iter().map(|stream| self.tendency(stream)).collect();
            lines.len() as f64 * (quantum + self.backlog.largest(other, self.span))
        });
        rounds * round.sum::<f64>()
    }

    fn tendency(&self, stream: usize) -> usize {
        let charged = self.backlog.charged[stream];
        (1..RESOURCES).fold(0, |max, next| if charged[next] > charged[max] { next } else { max })
    }

    /// Returns the classes that waited while nothing was released.
    fn stalls(&self, run: &Run, off: f64) -> Vec<Broken> {
        let longest = |record: &weirgate_experiment::Record| f64::from(record.cpu) + record.beside_cpu();
        let longest = run.records.iter().map(longest).fold(0.0, f64::max);
        // A request on a route that the table does not have may take twice its charge.
        let bound = off * RESOURCES as f64 * (2.0 * self.backlog.horizon + longest) + 1.0;
        let released = self.backlog.releases(self.competitors.classes.iter().copied());
        let mut times: Vec<u64> = released.into_iter().map(|(at, _)| at).collect();
        times.retain(|at| self.span.contains(at));
        times.insert(0, self.span.start);
        times.push(self.span.end);
        let gaps = times.windows(2).map(|pair| pair[0]..pair[1]);
        let gaps: Vec<Range<u64>> = gaps.filter(|gap| (gap.end - gap.start) as f64 / 1e9 > bound).collect();
        let mut all = Vec::new();
        for class in self.competitors.classes.iter().copied().filter(|_| !gaps.is_empty()) {
            let waits = self.backlog.waits(class, self.span);
            let within = |gap: &Range<u64>, wait: &Range<u64>| {
                wait.end.min(gap.end).saturating_sub(wait.start.max(gap.start)) as f64 / 1e9
            };
            let found = gaps.iter().flat_map(|gap| waits.iter().map(|wait| within(gap, wait))).fold(0.0, f64::max);
            if found > bound {
                all.push(self.broken(Lapse::Starved, class, bound, found));
            }
        }
        all
    }

    /// Returns the classes that wait all the time.
    fn backlogged(&self) -> Vec<usize> {
        let length = (self.span.end - self.span.start) as f64;
        let waits = |class: &usize| {
            let waited: u64 = self.backlog.waits(*class, self.span).iter().map(|wait| wait.end - wait.start).sum();
            waited as f64 >= (1.0 - SELDOM) * length
        };
        self.competitors.classes.iter().copied().filter(waits).collect()
    }

    /// Returns the classes that got less than others that compete with them.
    fn shares(&self) -> Vec<Broken> {
        let Competitors { whole, weights, .. } = *self.competitors;
        let backlogged = self.backlogged();
        let short = self.short();
        // Use and length of a turn, both by weight. For the class itself, all its use counts. For other
        // classes, only the use of resources that are short counts.
        let had = |class: usize, counts: [bool; RESOURCES]| {
            let used = self.backlog.used(class, self.span).into_iter().zip(counts);
            let used = used.filter(|(_, counts)| *counts).map(|(used, _)| used).fold(0.0, f64::max);
            (used / self.weight(class), self.backlog.largest(class, self.span) / self.weight(class))
        };
        let (turns, band) = if self.backlog.by_virtual_time { (AHEAD + MEMORY, BAND) } else { (2.0, BAND_BY_ROUNDS) };
        let mut all = Vec::new();
        for class in backlogged.iter().copied() {
            let (own, grain) = had(class, [true; RESOURCES]);
            let others = backlogged.iter().copied().filter(|other| *other != class && self.compete(class, *other));
            let max = others.map(|other| {
                let (had, largest) = had(other, short);
                had - largest
            });
            let bound = own * (1.0 + band) + turns * whole / weights + grain;
            let max = max.fold(0.0, f64::max);
            if max > bound {
                all.push(self.broken(Lapse::Shares, class, max, own));
            }
        }
        all
    }

    /// Returns the resources that are short. Under rounds all of them count.
    fn short(&self) -> [bool; RESOURCES] {
        let mut all = [0.0; RESOURCES];
        for class in self.competitors.classes.iter().copied() {
            let used = self.backlog.used(class, self.span);
            all.iter_mut().zip(used).for_each(|(all, used)| *all += used);
        }
        let max = all.into_iter().fold(0.0, f64::max);
        all.map(|used| !self.backlog.by_virtual_time || used >= SHORT * max)
    }

    /// Returns whether every stream of `other` uses every resource that `class` needs.
    fn compete(&self, class: usize, other: usize) -> bool {
        if !self.backlog.by_virtual_time {
            return true;
        }
        let own = self.backlog.streams(class, self.span);
        let takes = |resource: usize| own.iter().any(|stream| self.backlog.charged[*stream][resource] > 0.0);
        let needs: Vec<usize> = (0..RESOURCES).filter(|resource| takes(*resource)).collect();
        let others = self.backlog.streams(other, self.span);
        others.iter().all(|stream| needs.iter().all(|resource| self.backlog.charged[*stream][*resource] > 0.0))
    }

    /// Returns a lapse if the machines do too little while a class waits.
    fn unused(&self, samples: &[Sample]) -> Option<Broken> {
        let waits = *self.backlogged().first()?;
        let classes = self.competitors.classes.iter();
        let largest = classes.map(|class| self.backlog.largest(*class, self.span)).fold(0.0, f64::max);
        // This part of a machine stays free when a request does not fit, and few requests spread over all
        // resources.
        let grain = (largest / self.competitors.smallest).min(1.0);
        let bound = IN_USE * (1.0 - grain) / (1.0 + 2.0 * grain);
        let at = |at: u64| samples.iter().find(|sample| sample.at >= at);
        let (before, after) = (at(self.span.start)?, at(self.span.end)?);
        let length = after.at.saturating_sub(before.at) as f64 / 1e9;
        let (mut used, mut had) = (0.0, 0.0);
        for index in self.competitors.machines.iter().copied() {
            let machine = &self.experiment.machines[index];
            let servers = f64::from(machine.servers);
            let cpu = (after.busy[index] - before.busy[index]) / (f64::from(machine.cpus) * machine.speed);
            let others = [after.disk[index] - before.disk[index], after.link[index] - before.link[index]];
            used += others.into_iter().fold(cpu, f64::max) / length;
            had += servers;
        }
        let found = used / had;
        (found < bound).then(|| self.broken(Lapse::Unused, waits, bound, found))
    }
}
