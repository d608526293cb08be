//! What is wrong with a machine at an instant: the faults of an experiment, when they begin and end, and added up.

use std::time::Duration;

use weirgate_config::{Experiment, FaultKind};

/// What is wrong with a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// The operator took its nodes out.
    pub removed: bool,
    /// It is gone.
    pub crashed: bool,
    /// It does no work.
    pub stalled: bool,
    /// Share of its speed.
    pub speed: f64,
    /// Share of requests that it answers 500.
    pub fails: f64,
}

impl Condition {
    /// Nothing is wrong.
    pub const WELL: Condition = Condition { removed: false, crashed: false, stalled: false, speed: 1.0, fails: 0.0 };
}

/// What is wrong with `machine` while the faults `active` are in force: slow-downs multiply, of the shares
/// that fail the largest counts.
#[must_use]
pub fn condition(machine: usize, active: impl Iterator<Item = usize>, experiment: &Experiment) -> Condition {
    let mut condition = Condition::WELL;
    for fault in active.map(|index| &experiment.faults[index]).filter(|fault| fault.machines.contains(&machine)) {
        match fault.kind {
            FaultKind::Removed => condition.removed = true,
            FaultKind::Crash => condition.crashed = true,
            FaultKind::Stall => condition.stalled = true,
            FaultKind::Slow(speed) => condition.speed *= speed,
            FaultKind::FailFast(share) => condition.fails = condition.fails.max(share),
            FaultKind::LostReports | FaultKind::Reload => {}
        }
    }
    condition
}

/// A fault begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When, from the start of the run.
    pub at: Duration,
    /// It begins; otherwise it ends.
    pub begins: bool,
    /// Index into [`Experiment::faults`].
    pub fault: usize,
}

/// When faults begin and end, in order; at equal instants ends come first, so that one may follow another.
#[must_use]
pub fn turns(experiment: &Experiment) -> Vec<Turn> {
    let mut turns = Vec::new();
    for (fault, spec) in experiment.faults.iter().enumerate() {
        turns.push(Turn { at: spec.at, begins: true, fault });
        turns.extend(spec.until.map(|until| Turn { at: until, begins: false, fault }));
    }
    turns.sort_by_key(|turn| (turn.at, turn.begins));
    turns
}

#[cfg(test)]
mod tests {
    use weirgate_config::Fault;

    use super::*;

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
        let fault = |(kind, machines): &(FaultKind, &[usize])| Fault {
            at: Duration::ZERO,
            until: None,
            kind: *kind,
            machines: machines.to_vec(),
        };
        let mut experiment = crate::judge::tests::experiment();
        experiment.faults = faults.iter().map(fault).collect();
        let all = |machine| condition(machine, 0..faults.len(), &experiment);
        assert_eq!(all(0), Condition { speed: 0.25, fails: 0.2, ..Condition::WELL });
        assert_eq!(all(1), Condition { speed: 0.5, stalled: true, ..Condition::WELL });
        assert_eq!(condition(0, [4, 5].into_iter(), &experiment), Condition::WELL);
    }
}
