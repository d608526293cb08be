//! The same experiment in less time, for real processes, which cannot run faster than real time.
//!
//! Rates, demands, guarantees and the cluster stay as they are, so every queue and window sees the same
//! load. Only the lengths of time shrink. Results that need time to show (a mean over a phase, a window
//! that grows slowly) are judged on less data. The first seconds of a phase are still judged separately.

use std::time::Duration;

use crate::{Experiment, Profile, Source};

/// Minimum length of a phase after compression, in multiples of its settling time, which is judged
/// separately. The half that remains is a second or two with a few hundred requests each, enough for a 95th
/// percentile.
const MIN_PHASE: f64 = 1.5;

/// `experiment` in less time: all instants (phases, faults, changes of rates, users, demands and speeds)
/// are divided by `factor`. Traces keep their pace and are cut at the end.
///
/// # Errors
/// `factor` is not a number of at least 1, or a phase becomes shorter than 1.5 times its settling time.
pub fn compressed(experiment: &Experiment, factor: f64) -> Result<Experiment, String> {
    if !(factor.is_finite() && factor >= 1.0) {
        return Err(format!("time cannot be compressed {factor} times; write a number from 1 on"));
    }
    paced(experiment, factor)
}

/// `experiment` with the length `seconds`, longer or shorter. The settling time shrinks with short phases.
///
/// # Errors
/// A phase becomes shorter than 1.5 times its settling time.
pub fn lasting(experiment: &Experiment, seconds: f64) -> Result<Experiment, String> {
    let factor = experiment.duration().as_secs_f64() / seconds;
    let settle = experiment.settle.div_f64(factor.max(1.0));
    paced(&Experiment { settle, ..experiment.clone() }, factor)
}

/// `experiment` with all instants (phases, faults, changes of rates, users, demands and speeds) divided by
/// `factor`, which is more than 0. Traces keep their pace and are cut at the end.
fn paced(experiment: &Experiment, factor: f64) -> Result<Experiment, String> {
    let shrink = |at: &mut Duration| *at = at.div_f64(factor);
    let mut experiment = experiment.clone();
    for phase in &mut experiment.phases {
        shrink(&mut phase.until);
    }
    for (index, phase) in experiment.phases.iter().enumerate() {
        let length = phase.until.saturating_sub(experiment.phase_from(index));
        if phase.judged && length < experiment.settle.mul_f64(MIN_PHASE) {
            let (length, settle) = (length.as_secs_f64(), experiment.settle.as_secs_f64());
            return Err(format!(
                "compressed {factor} times, phase {} lasts {length:.1} s, of which {settle:.1} s are judged apart; \
                 compress less",
                phase.name
            ));
        }
    }
    experiment.reloads.iter_mut().for_each(|reload| shrink(&mut reload.at));
    for fault in &mut experiment.faults {
        shrink(&mut fault.at);
        fault.until.iter_mut().for_each(shrink);
    }
    let profile = |profile: &mut Profile| {
        for knot in &mut profile.0 {
            shrink(&mut knot.at);
            shrink(&mut knot.over);
        }
    };
    experiment.machines.iter_mut().for_each(|machine| profile(&mut machine.drift));
    let end = experiment.duration();
    for traffic in &mut experiment.traffic {
        match &mut traffic.source {
            Source::Open { rate, .. } => profile(rate),
            Source::Users { users, .. } => profile(users),
            Source::Trace(instants) => {
                instants.retain(|at| *at < end);
                traffic.traced.truncate(instants.len());
                traffic.senders.truncate(instants.len());
            }
            Source::Objects { .. } | Source::Part { .. } => {}
        }
        for demand in &mut traffic.demand {
            shrink(&mut demand.at);
            shrink(&mut demand.over);
        }
    }
    Ok(experiment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::hand_made;
    use crate::{Fault, FaultKind, Knot};

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn all_instants_shrink_and_nothing_else() {
        let mut experiment = hand_made();
        let fault = Fault::plain(FaultKind::Stall, S(20), Some(S(40)), &[0]);
        experiment.faults = vec![fault];
        let knots = vec![Knot { at: S(0), over: S(0), value: 10.0 }, Knot { at: S(20), over: S(8), value: 90.0 }];
        experiment.traffic[0].source = Source::Open { arrivals: crate::Arrivals::Poisson, rate: Profile(knots) };
        experiment.traffic[1].source = Source::Trace(vec![S(1), S(29), S(31)]);
        let shorter = compressed(&experiment, 2.0).expect("phases stay long enough");
        assert_eq!(shorter.phases.iter().map(|p| p.until).collect::<Vec<_>>(), [S(10), S(20), S(30)]);
        assert_eq!((shorter.faults[0].at, shorter.faults[0].until), (S(10), Some(S(20))));
        let Source::Open { rate, .. } = &shorter.traffic[0].source else { panic!("open") };
        assert_eq!(rate.0[1], Knot { at: S(10), over: S(4), value: 90.0 });
        assert_eq!(shorter.traffic[1].source, Source::Trace(vec![S(1), S(29)]));
        assert_eq!(shorter.traffic[0].demand, experiment.traffic[0].demand);
        assert_eq!(shorter.settle, experiment.settle);
    }

    #[test]
    fn too_much_is_refused_with_the_phase() {
        let experiment = hand_made();
        let error = compressed(&experiment, 4.0).expect_err("all 5 s are judged apart");
        assert!(error.contains("phase before lasts 5.0 s"), "{error}");
        for factor in [0.5, f64::NAN, -1.0] {
            assert!(compressed(&experiment, factor).is_err());
        }
    }
}
