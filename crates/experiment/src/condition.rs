//! Condition of a machine at an instant: the sum of the faults in force, the times at which they begin and
//! end, and the drift of its speed.
//!
//! Departure: a speed that changes linearly is played as a staircase of steps of at most [`STEP`], each at
//! the mean speed of its interval. The work that a machine does is therefore exact at the end of every step.

use std::time::Duration;

use crate::run::{RESOURCES, Work};
use crate::{Experiment, Fault, FaultKind, Knot, Profile};

/// Longest step of a speed that ramps. Within a step the work done is off by at most slope × step² / 8. For
/// a speed that halves in ten seconds this is 16 µs of CPU time, less than any request takes. Twenty
/// commands per second are little load for the lab.
pub const STEP: Duration = Duration::from_millis(50);

/// Faults and speed of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The operator removed its nodes.
    pub removed: bool,
    /// The machine is down.
    pub crashed: bool,
    /// The machine does no work.
    pub stalled: bool,
    /// Fraction of its speed at the start of the run. More than 1 if it became faster.
    pub speed: f64,
    /// Fraction of requests that it answers with 500.
    pub fails: f64,
    /// The same fraction for single classes: first those of the policy, then of templates. The larger of
    /// the two applies.
    pub fails_of: Vec<(usize, f64)>,
}

impl Condition {
    /// A machine without faults.
    pub const WELL: Condition =
        Condition { removed: false, crashed: false, stalled: false, speed: 1.0, fails: 0.0, fails_of: Vec::new() };

    /// Fraction of the requests of a class that it answers with 500. Classes are numbered as in
    /// [`Condition::fails_of`].
    pub fn fails(&self, class: usize) -> f64 {
        self.fails_of.iter().filter(|(own, _)| *own == class).map(|(_, share)| *share).fold(self.fails, f64::max)
    }
}

/// Condition of `machine` at `at` while the faults `active` are in force. Slow-downs multiply. Of several
/// failing fractions the largest applies.
pub fn condition(
    machine: usize,
    at: Duration,
    active: impl Iterator<Item = usize>,
    experiment: &Experiment,
) -> Condition {
    let drift = experiment.machines.get(machine).map_or(1.0, |machine| stair(&machine.drift, at));
    let mut condition = Condition { speed: drift, ..Condition::WELL };
    for fault in active.map(|index| &experiment.faults[index]).filter(|fault| fault.machines.contains(&machine)) {
        match fault.kind {
            FaultKind::Removed => condition.removed = true,
            FaultKind::Crash => condition.crashed = true,
            FaultKind::Stall => condition.stalled = true,
            FaultKind::Slow(speed) => condition.speed *= speed,
            FaultKind::FailFast(share) if fault.classes.is_empty() => condition.fails = condition.fails.max(share),
            FaultKind::FailFast(share) => condition.fails_of.extend(fault.classes.iter().map(|class| (*class, share))),
            FaultKind::LostReports | FaultKind::Reload | FaultKind::Restart { .. } => {}
        }
    }
    condition
}

/// A change of a machine's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Instant of the change, from the start of the run.
    pub at: Duration,
    /// Kind of change.
    pub what: Change,
}

/// Kind of change. At equal instants ends come first, so that one fault may follow another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// This fault ends. The value is an index into [`Experiment::faults`].
    Ends(usize),
    /// This fault begins. The value is an index into [`Experiment::faults`].
    Begins(usize),
    /// The speed of this machine changes. The value is an index into [`Experiment::machines`].
    Drifts(usize),
}

/// Instants at which faults begin and end and speeds change, in order.
pub fn turns(experiment: &Experiment) -> Vec<Turn> {
    let mut turns = Vec::new();
    for (fault, spec) in experiment.faults.iter().enumerate() {
        turns.push(Turn { at: spec.at, what: Change::Begins(fault) });
        turns.extend(spec.until.map(|until| Turn { at: until, what: Change::Ends(fault) }));
    }
    let end = experiment.duration();
    for (machine, spec) in experiment.machines.iter().enumerate() {
        // The first knot is the condition at the start, not a change.
        for knot in spec.drift.0.iter().skip(1) {
            let border = |step: u32| Turn { at: border(knot, step), what: Change::Drifts(machine) };
            turns.extend((0..=steps(knot)).map(border).filter(|turn| turn.at < end));
        }
    }
    turns.sort_by_key(|turn| (turn.at, turn.what));
    turns
}

/// Number of steps in which a change is played, or 0 if it is instantaneous.
fn steps(knot: &Knot) -> u32 {
    u32::try_from(knot.over.as_nanos().div_ceil(STEP.as_nanos())).unwrap_or(u32::MAX)
}

/// Start of step number `step` of a change.
fn border(knot: &Knot, step: u32) -> Duration {
    knot.at + knot.over * step / steps(knot).max(1)
}

/// Value of `profile` at `at`, with every ramp replaced by a staircase at the mean of each step's interval.
fn stair(profile: &Profile, at: Duration) -> f64 {
    let Some(knot) = profile.0.iter().rfind(|knot| knot.at <= at && at < knot.at + knot.over) else {
        return profile.at(at);
    };
    // Finds the last step that begins at or before `at`. The quotient may be off by one.
    let guess = (at - knot.at).as_nanos() * u128::from(steps(knot)) / knot.over.as_nanos();
    let guess = u32::try_from(guess).unwrap_or(u32::MAX);
    let step = if border(knot, guess + 1) <= at { guess + 1 } else { guess };
    profile.mean(border(knot, step), border(knot, step + 1))
}

/// Share of its work that a machine can do on average between two instants, per resource. It is more than 1 for a
/// machine with CPUs that became faster.
pub fn availability(experiment: &Experiment, machine: usize, from: Duration, to: Duration) -> Work {
    let end = experiment.duration();
    let faults: Vec<(&Fault, Duration)> = experiment
        .faults
        .iter()
        .filter(|fault| fault.machines.contains(&machine))
        .map(|fault| (fault, fault.until.unwrap_or(end)))
        .collect();
    let mut borders: Vec<Duration> = faults.iter().flat_map(|(fault, until)| [fault.at, *until]).collect();
    borders.retain(|at| from < *at && *at < to);
    borders.extend([from, to]);
    borders.sort_unstable();
    let mut sums = [0.0; RESOURCES];
    for pair in borders.windows(2) {
        let in_force = faults.iter().filter(|(fault, until)| fault.at <= pair[0] && pair[0] < *until);
        // A fault of single classes leaves the capacity for the others.
        let of_all = in_force.filter(|(fault, _)| fault.classes.is_empty());
        let left = left(of_all.map(|(fault, _)| fault.kind));
        let drift = experiment.machines[machine].drift.mean(pair[0], pair[1]);
        let share = [left[0] * drift, left[1], left[2]];
        sums.iter_mut().zip(share).for_each(|(sum, share)| *sum += share * (pair[1] - pair[0]).as_secs_f64());
    }
    let length = to.saturating_sub(from).as_secs_f64();
    sums.map(|sum| if length > 0.0 { sum / length } else { 1.0 })
}

/// Share of its work that a machine still does under faults. Slow-downs multiply and affect the CPUs only. Of several
/// shares of failing requests the largest counts.
fn left(faults: impl Iterator<Item = FaultKind>) -> Work {
    let (mut works, mut speed, mut fails) = (1.0, 1.0, 0.0_f64);
    for fault in faults {
        match fault {
            FaultKind::Removed | FaultKind::Crash | FaultKind::Stall => works = 0.0,
            FaultKind::Slow(share) => speed *= share,
            FaultKind::FailFast(share) => fails = fails.max(share),
            FaultKind::LostReports | FaultKind::Reload | FaultKind::Restart { .. } => {}
        }
    }
    let others = works * (1.0 - fails);
    [speed * others, others, others]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::hand_made;

    #[test]
    fn faults_of_a_machine_add_up() {
        let faults: [(FaultKind, &[usize]); 6] = [
            (FaultKind::Slow(0.5), &[0]),
            (FaultKind::Slow(0.5), &[0, 1]),
            (FaultKind::FailFast(0.2), &[0]),
            (FaultKind::FailFast(0.1), &[0]),
            (FaultKind::Stall, &[1]),
            (FaultKind::Reload, &[]),
        ];
        let fault = |(kind, machines): &(FaultKind, &[usize])| Fault::plain(*kind, Duration::ZERO, None, machines);
        let mut experiment = hand_made();
        experiment.faults = faults.iter().map(fault).collect();
        let all = |experiment: &Experiment, machine| condition(machine, Duration::ZERO, 0..faults.len(), experiment);
        assert_eq!(all(&experiment, 0), Condition { speed: 0.25, fails: 0.2, ..Condition::WELL });
        assert_eq!(all(&experiment, 1), Condition { speed: 0.5, stalled: true, ..Condition::WELL });
        assert_eq!(condition(0, Duration::ZERO, [4, 5].into_iter(), &experiment), Condition::WELL);
        // Single classes have another fraction.
        experiment.faults[3].classes = vec![2];
        experiment.faults[2] = Fault { kind: FaultKind::FailFast(0.05), ..experiment.faults[2].clone() };
        let found = condition(0, Duration::ZERO, 0..faults.len(), &experiment);
        assert_eq!([0, 2].map(|class| found.fails(class)), [0.05, 0.1]);
    }

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn drifting(knots: &[(u64, u64, f64)]) -> Experiment {
        let mut experiment = hand_made();
        let knot = |&(at, over, value): &(u64, u64, f64)| Knot { at: S(at), over: S(over), value };
        experiment.machines[1].drift = Profile(knots.iter().map(knot).collect());
        experiment
    }

    #[test]
    fn a_speed_that_changes_at_once_is_one_turn_and_one_that_ramps_a_stair() {
        let experiment = drifting(&[(0, 0, 1.0), (10, 0, 0.5), (20, 1, 1.5), (70, 0, 9.0)]);
        let turns = turns(&experiment);
        // Nothing happens at 70 s, ten seconds after the end of the run.
        assert_eq!(turns.len(), 1 + 21);
        assert!(turns.iter().all(|turn| turn.what == Change::Drifts(1)) && turns.is_sorted_by_key(|turn| turn.at));
        let speed = |at| condition(1, at, std::iter::empty(), &experiment).speed;
        assert_eq!([0, 9, 10, 15, 21, 59].map(|at| speed(S(at))), [1.0, 1.0, 0.5, 0.5, 1.5, 1.5]);
        assert!((speed(S(20)) - 0.525).abs() < 1e-9 && (speed(S(21) - Duration::from_nanos(1)) - 1.475).abs() < 1e-9);
        assert_eq!(condition(0, S(20), std::iter::empty(), &experiment), Condition::WELL);
    }

    proptest! {
        /// The staircase does the work of the ramp. At the end of every step it matches a numeric
        /// integration of the ramp exactly, and it is never further away than the last step allows.
        #[test]
        fn the_work_of_a_stair_is_that_of_the_line(
            start in 0u64..5_000, over in 1u64..9_000, from in 0.05f64..3.0, to in 0.05f64..3.0,
        ) {
            let ms = Duration::from_millis;
            let mut experiment = drifting(&[(0, 0, 1.0)]);
            experiment.machines[1].drift = Profile(vec![
                Knot { at: Duration::ZERO, over: Duration::ZERO, value: 1.0 },
                Knot { at: ms(start / 2), over: Duration::ZERO, value: from },
                Knot { at: ms(start), over: ms(over), value: to },
            ]);
            let line = experiment.machines[1].drift.clone();
            let (mut at, mut done, mut exact) = (Duration::ZERO, 0.0, 0.0);
            let mut speed = condition(1, at, std::iter::empty(), &experiment).speed;
            for turn in turns(&experiment) {
                let length = turn.at - at;
                done += speed * length.as_secs_f64();
                for slice in 0..64 {
                    let middle = at + length * (2 * slice + 1) / 128;
                    exact += line.at(middle) * length.as_secs_f64() / 64.0;
                }
                at = turn.at;
                speed = condition(1, at, std::iter::empty(), &experiment).speed;
                prop_assert!((done - exact).abs() < 1e-6, "{done} of {exact} until {at:?}");
                prop_assert!((line.mean(Duration::ZERO, at) * at.as_secs_f64() - exact).abs() < 1e-6);
                let slope = (to - from).abs() / ms(over).as_secs_f64();
                prop_assert!((speed - line.at(at)).abs() <= slope * STEP.as_secs_f64() / 2.0 + 1e-9);
            }
        }
    }

    #[test]
    fn capacity_is_averaged_over_faults() {
        let mut experiment = hand_made();
        let fault = |at, until: Option<u64>, kind| Fault::plain(kind, S(at), until.map(S), &[0]);
        experiment.faults = vec![
            fault(10, Some(15), FaultKind::Crash),
            fault(12, None, FaultKind::Slow(0.5)),
            fault(20, None, FaultKind::FailFast(0.2)),
        ];
        let of = |from, to| availability(&experiment, 0, Duration::from_secs(from), Duration::from_secs(to));
        assert_eq!([of(0, 10), of(10, 15)], [[1.0; 3], [0.0; 3]]);
        // A slow machine has slow CPUs. Its disks and links are as they were.
        assert_eq!([of(0, 20), of(30, 40)], [[0.625, 0.75, 0.75], [0.4, 0.8, 0.8]]);
        assert_eq!(availability(&experiment, 1, Duration::ZERO, Duration::from_secs(60)), [1.0; 3]);
    }
}
