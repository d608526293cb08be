//! What `mqos` and `sqos` promise, as rules that can fail: turns, shares, and that nothing is idle that somebody waits
//! for.
//!
//! In every judged phase in which no machine fails, and among classes that compete for the same machines:
//!
//! - *turns*: while something of a class waits and nothing of it is released, no more is released of the others than
//!   its turn allows. Under `mdrr` it earns its largest request in ⌈cost/quantum⌉ rounds, is in the middle of one, and
//!   may need one more; in each, others take at most a quantum and their largest request in each of their lines. Under
//!   `drfq` resources are reserved for it after two horizons of work, over its part of the weights if it is too far
//!   ahead, and it takes as much again until it fits. (`docs/disciplines/mqos.md`, "bound on waiting".)
//! - *stalls*: while somebody waits something is released. What is inside of full machines is done in a horizon at each
//!   resource, one after the other at worst.
//! - *shares*: of two classes that wait all through a phase neither gets more, over its weight, of the resource of
//!   which it takes most, within a band and what turns are long. Under `drfq` the more counts only of resources that
//!   are short, and a class that takes nothing of what the other one needs may have more.
//! - *use*: while some class waits all through a phase, the machines' busiest resources are used by as much as the
//!   grain of the requests allows.
//!
//! Bounds are wide enough for what was seen in 300 scenarios of each discipline and no wider.
//!
//! What is charged is what counts: where the table is wrong and learned, turns and stalls alone are looked at, with
//! room for costs that are far off.

use std::ops::Range;

use weirgate_experiment::{Experiment, Run, Sample};

use super::backlog::{Backlog, Domain};
use super::outcome::Lapse;
use super::resources::RESOURCES;
use super::starved::is_sound;

/// By how much classes' parts may differ besides what turns are long, under `mdrr`: a class that waits in several lines
/// leaves at the end of a round what credit none of its heads can use. Of 300 scenarios the furthest was at 0.15.
const BAND_BY_ROUNDS: f64 = 0.2;

/// The same under `drfq`, which has no rounds: none was beyond what turns are long.
const BAND: f64 = 0.05;

/// Turns of classes that wait in several lines, where one head may keep credit or reserved resources from another: the
/// longest of 300 scenarios was 1.3 of what is reckoned for one line.
const SEVERAL_LINES: f64 = 1.5;

/// A class waits all through a phase if nothing of it does for so little of it.
const SELDOM: f64 = 0.002;

/// Learned costs may be off by so much, and so may everything that follows from them.
const FAR_OFF: f64 = 8.0;

/// Seconds after a fault in which ejected nodes come back.
const RETURNS: f64 = 20.0;

/// How far a class may run ahead under `drfq`, and how far back its virtual times count: the engine's figures, in
/// horizons.
const AHEAD: f64 = 0.25;
const MEMORY: f64 = 5.0;

/// A resource is short if it is used by so much of what the most used one is.
const SHORT: f64 = 0.9;

/// What of a full server is in use at least, the grain of requests aside: 300 scenarios came down to 0.865.
const IN_USE: f64 = 0.8;

/// A rule that did not hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Broken {
    pub(super) kind: Lapse,
    /// Index of the class; of the use of machines the first one that waits.
    pub(super) class: usize,
    /// Index of the phase.
    pub(super) phase: usize,
    /// What may be at most (of shares and use: at least), and what it is.
    pub(super) bound: f64,
    pub(super) found: f64,
}

/// Every rule that did not hold in a run.
pub(super) fn broken(experiment: &Experiment, run: &Run) -> Vec<Broken> {
    let Some(backlog) = Backlog::of(experiment, run) else { return Vec::new() };
    let learned = experiment.site.page_table.as_ref().is_some_and(|table| table.learned);
    let mut all = Vec::new();
    for phase in (0..experiment.phases.len()).filter(|phase| is_sound(experiment, *phase)) {
        let stretch = stretch(experiment, phase);
        for domain in backlog.domains.iter().filter(|_| !stretch.is_empty()) {
            let look = Look { backlog: &backlog, domain, experiment, stretch: &stretch, phase };
            let off = if learned { FAR_OFF } else { 1.0 };
            all.extend(look.turns(off));
            if backlog.is_single {
                // What is not managed may keep requests inside for any time.
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

/// The part of a phase that is looked at, in nanoseconds.
fn stretch(experiment: &Experiment, phase: usize) -> Range<u64> {
    let from = experiment.phase_from(phase);
    let lasting = |fault: &&weirgate_experiment::Fault| fault.until.is_some_and(|until| until <= from);
    let before = experiment.faults.iter().filter(lasting).filter_map(|fault| fault.until).max();
    let returned = before.map_or(0.0, |until| until.as_secs_f64() + RETURNS);
    let begin = (from + experiment.settle).as_secs_f64().max(returned);
    (begin * 1e9) as u64..experiment.phases[phase].until.as_nanos() as u64
}

/// A domain in a phase.
struct Look<'a> {
    backlog: &'a Backlog,
    domain: &'a Domain,
    experiment: &'a Experiment,
    stretch: &'a Range<u64>,
    phase: usize,
}

impl Look<'_> {
    fn weight(&self, class: usize) -> f64 {
        self.experiment.site.policy.classes[class].weight
    }

    fn broken(&self, kind: Lapse, class: usize, bound: f64, found: f64) -> Broken {
        Broken { kind, class, phase: self.phase, bound, found }
    }

    /// Classes whose turn does not come.
    fn turns(&self, off: f64) -> Vec<Broken> {
        let mut all = Vec::new();
        for class in self.domain.classes.iter().copied() {
            let others = self.domain.classes.iter().copied().filter(|other| *other != class);
            let released = self.backlog.releases(others);
            let mut sums = vec![0.0];
            released.iter().for_each(|(_, work)| sums.push(sums[sums.len() - 1] + work));
            let upto = |at: u64| sums[released.partition_point(|(released, _)| *released <= at)];
            let waits = self.backlog.waits(class, self.stretch).into_iter();
            let longest = waits.map(|wait| upto(wait.end) - upto(wait.start)).fold(0.0, f64::max);
            let bound = off * SEVERAL_LINES * self.turn(class);
            if longest > bound {
                all.push(self.broken(Lapse::Turns, class, bound, longest));
            }
        }
        all
    }

    /// How much of others may be released before a class, in node-seconds of what each takes most.
    fn turn(&self, class: usize) -> f64 {
        let Domain { whole, weights, .. } = *self.domain;
        let part = self.weight(class) / weights;
        if self.backlog.by_virtual_time {
            return 2.0 * (2.0 * whole + 2.0 * whole / part);
        }
        let rounds = (self.backlog.largest(class, self.stretch) / (whole * part)).ceil() + 2.0;
        let others = self.domain.classes.iter().copied().filter(|other| *other != class);
        let round = others.map(|other| {
            let quantum = whole * self.weight(other) / weights;
            let lines: std::collections::BTreeSet<usize> =
                self.backlog.streams(other, self.stretch).into_iter().map(|stream| self.tendency(stream)).collect();
            lines.len() as f64 * (quantum + self.backlog.largest(other, self.stretch))
        });
        rounds * round.sum::<f64>()
    }

    fn tendency(&self, stream: usize) -> usize {
        let charged = self.backlog.charged[stream];
        (1..RESOURCES).fold(0, |most, next| if charged[next] > charged[most] { next } else { most })
    }

    /// Times in which somebody waits and nothing is released.
    fn stalls(&self, run: &Run, off: f64) -> Vec<Broken> {
        let longest = |record: &weirgate_experiment::Record| f64::from(record.cpu) + record.beside_cpu();
        let longest = run.records.iter().map(longest).fold(0.0, f64::max);
        // A route that the table does not know may take twice what is charged.
        let bound = off * RESOURCES as f64 * (2.0 * self.backlog.horizon + longest) + 1.0;
        let released = self.backlog.releases(self.domain.classes.iter().copied());
        let mut times: Vec<u64> = released.into_iter().map(|(at, _)| at).collect();
        times.retain(|at| self.stretch.contains(at));
        times.insert(0, self.stretch.start);
        times.push(self.stretch.end);
        let gaps = times.windows(2).map(|pair| pair[0]..pair[1]);
        let gaps: Vec<Range<u64>> = gaps.filter(|gap| (gap.end - gap.start) as f64 / 1e9 > bound).collect();
        let mut all = Vec::new();
        for class in self.domain.classes.iter().copied().filter(|_| !gaps.is_empty()) {
            let waits = self.backlog.waits(class, self.stretch);
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

    /// The classes that wait all the time.
    fn backlogged(&self) -> Vec<usize> {
        let length = (self.stretch.end - self.stretch.start) as f64;
        let waits = |class: &usize| {
            let waited: u64 = self.backlog.waits(*class, self.stretch).iter().map(|wait| wait.end - wait.start).sum();
            waited as f64 >= (1.0 - SELDOM) * length
        };
        self.domain.classes.iter().copied().filter(waits).collect()
    }

    /// Classes that get less than others that compete with them.
    fn shares(&self) -> Vec<Broken> {
        let Domain { whole, weights, .. } = *self.domain;
        let backlogged = self.backlogged();
        let short = self.short();
        // By weight, and how long a turn is by weight. What a class has of anything counts for it; what others have
        // counts where there is too little.
        let had = |class: usize, counts: [bool; RESOURCES]| {
            let used = self.backlog.used(class, self.stretch).into_iter().zip(counts);
            let used = used.filter(|(_, counts)| *counts).map(|(used, _)| used).fold(0.0, f64::max);
            (used / self.weight(class), self.backlog.largest(class, self.stretch) / self.weight(class))
        };
        let (turns, band) = if self.backlog.by_virtual_time { (AHEAD + MEMORY, BAND) } else { (2.0, BAND_BY_ROUNDS) };
        let mut all = Vec::new();
        for class in backlogged.iter().copied() {
            let (own, grain) = had(class, [true; RESOURCES]);
            let others = backlogged.iter().copied().filter(|other| *other != class && self.compete(class, *other));
            let most = others.map(|other| {
                let (had, largest) = had(other, short);
                had - largest
            });
            let bound = own * (1.0 + band) + turns * whole / weights + grain;
            let most = most.fold(0.0, f64::max);
            if most > bound {
                all.push(self.broken(Lapse::Shares, class, most, own));
            }
        }
        all
    }

    /// The resources of which there is too little. Rounds know of no difference.
    fn short(&self) -> [bool; RESOURCES] {
        let mut all = [0.0; RESOURCES];
        for class in self.domain.classes.iter().copied() {
            let used = self.backlog.used(class, self.stretch);
            all.iter_mut().zip(used).for_each(|(all, used)| *all += used);
        }
        let most = all.into_iter().fold(0.0, f64::max);
        all.map(|used| !self.backlog.by_virtual_time || used >= SHORT * most)
    }

    /// Does everything of `other` take of everything that `class` needs?
    fn compete(&self, class: usize, other: usize) -> bool {
        if !self.backlog.by_virtual_time {
            return true;
        }
        let own = self.backlog.streams(class, self.stretch);
        let takes = |resource: usize| own.iter().any(|stream| self.backlog.charged[*stream][resource] > 0.0);
        let needs: Vec<usize> = (0..RESOURCES).filter(|resource| takes(*resource)).collect();
        let others = self.backlog.streams(other, self.stretch);
        others.iter().all(|stream| needs.iter().all(|resource| self.backlog.charged[*stream][*resource] > 0.0))
    }

    /// Machines that do too little while somebody waits.
    fn unused(&self, samples: &[Sample]) -> Option<Broken> {
        let waits = *self.backlogged().first()?;
        let classes = self.domain.classes.iter();
        let largest = classes.map(|class| self.backlog.largest(*class, self.stretch)).fold(0.0, f64::max);
        // So large a part of a machine is free when it does not fit, and as few are spread over all resources.
        let grain = (largest / self.domain.smallest).min(1.0);
        let bound = IN_USE * (1.0 - grain) / (1.0 + 2.0 * grain);
        let at = |at: u64| samples.iter().find(|sample| sample.at >= at);
        let (before, after) = (at(self.stretch.start)?, at(self.stretch.end)?);
        let length = after.at.saturating_sub(before.at) as f64 / 1e9;
        let (mut used, mut had) = (0.0, 0.0);
        for index in self.domain.machines.iter().copied() {
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
