//! Learned costs compared with least squares over all windows, with the truth, and with a truth that changes.

#[path = "../../tests/support/dice.rs"]
mod dice;

use dice::Dice;
use proptest::prelude::*;

use super::*;

impl Dice {
    fn poisson(&mut self, mean: f64) -> usize {
        let mut sum = 0.0;
        (0..)
            .find(|_| {
                sum -= (1.0 - self.next()).ln();
                sum > mean
            })
            .unwrap_or(0)
    }
}

const ANY: Prior = Prior { cost: 0.01, deviation: 0.05, max: MAX };

fn priors(routes: usize) -> Vec<Prior> {
    let background = Prior { cost: 0.0, deviation: 0.05, max: MAX };
    std::iter::once(background).chain(std::iter::repeat_n(ANY, routes)).collect()
}

/// One second of a node in production. Requests arrive at `rate`, which varies by half for each route. Each
/// costs as much as its route ± 30 %. The node itself uses 2 %, and the agent's error is 3 %.
fn second(dice: &mut Dice, costs: &[f64], rate: f64) -> (Vec<f64>, f64) {
    let mut rates = vec![1.0];
    let mut used = 0.02;
    for cost in costs {
        let mean = rate * (0.5 + dice.next());
        let count = dice.poisson(mean);
        rates.push(count as f64);
        used += (0..count).map(|_| cost * (1.0 + 0.3 * dice.normal()).max(0.0)).sum::<f64>();
    }
    (rates, used * (1.0 + 0.03 * dice.normal()))
}

#[test]
fn a_route_that_gets_three_times_dearer_is_known_after_a_minute() {
    for (routes, rate) in [(3usize, 40.0), (5, 10.0), (8, 20.0)] {
        let mut errors = Vec::new();
        for seed in 0..40u64 {
            let mut dice = Dice(seed);
            let mean = 0.5 / (routes as f64 * rate);
            let mut costs: Vec<f64> = (0..routes).map(|_| mean * (0.4 + 1.2 * dice.next())).collect();
            let changed = seed as usize % routes;
            // Changes in the more expensive half of the routes are the ones that matter.
            costs[changed] = costs[changed].max(mean);
            let mut equations = Equations::new(priors(routes));
            for at in 0..360 {
                if at == 300 {
                    costs[changed] *= 3.0;
                }
                let (rates, used) = second(&mut dice, &costs, rate);
                equations.learn(f64::from(at), 1.0, &rates, used);
            }
            errors.push((equations.costs()[changed + 1] / costs[changed] - 1.0).abs());
        }
        errors.sort_by(f64::total_cmp);
        assert!(errors[39] < 0.2, "{routes} routes at {rate}/s: {errors:.2?}");
    }
}

#[test]
fn errors_are_as_large_as_said() {
    let mut in_flight = 0;
    for seed in 0..50 {
        let mut dice = Dice(seed);
        let costs = [0.004, 0.001, 0.002, 0.0005];
        let mut equations = Equations::new(priors(4));
        for at in 0..200 {
            let (rates, used) = second(&mut dice, &costs, 30.0);
            equations.learn(f64::from(at), 1.0, &rates, used);
        }
        let deviations = equations.deviations();
        for (place, cost) in costs.iter().enumerate() {
            in_flight += i32::from((equations.costs()[place + 1] - cost).abs() < 2.0 * deviations[place + 1]);
            assert!(deviations[place + 1] < 0.0005, "{deviations:?}");
        }
    }
    // Two deviations: 95 % of 200.
    assert!(in_flight >= 186, "{in_flight}");
}

#[test]
fn routes_that_always_come_together_have_the_right_sum_and_rest() {
    let mut dice = Dice(1);
    let mut priors = priors(2);
    priors[1] = Prior { cost: 0.03, deviation: 0.03, max: MAX };
    let mut equations = Equations::new(priors);
    let mut splits = Vec::new();
    for at in 0..400 {
        let count = (20.0 + 10.0 * dice.next()).floor();
        let used = count * (0.01 + 0.01) * (1.0 + 0.02 * dice.normal());
        equations.learn(f64::from(at), 1.0, &[1.0, count, count], used);
        if at > 100 {
            let costs = equations.costs();
            assert!((costs[1] + costs[2] - 0.02).abs() < 0.002, "{costs:?}");
            splits.push(costs[1]);
        }
    }
    let (min, max) = splits.iter().fold((f64::MAX, 0.0f64), |(a, b), s| (a.min(*s), b.max(*s)));
    assert!(max - min < 0.002, "{min} to {max}");
}

#[test]
fn odd_windows_move_little_and_raise_no_alarm() {
    let mut dice = Dice(5);
    let costs = [0.004, 0.002, 0.001];
    let mut equations = Equations::new(priors(3));
    for at in 0..600 {
        let (rates, used) = second(&mut dice, &costs, 30.0);
        let odd = at > 60 && at % 20 == 0;
        equations.learn(f64::from(at), 1.0, &rates, if odd { used * 5.0 } else { used });
    }
    for (found, cost) in equations.costs()[1..].iter().zip(costs) {
        assert!((found / cost - 1.0).abs() < 0.15, "{:?}", equations.costs());
    }
}

/// Returns the best costs between 0 and [`MAX`] over all windows at once. It tries for each cost whether it
/// is on a bound, and finds the others by Gaussian elimination.
fn batch(windows: &[(f64, f64, Vec<f64>, f64)], prior: &[Prior]) -> Vec<f64> {
    let size = prior.len();
    let end = windows.iter().map(|w| w.0).fold(f64::MIN, f64::max);
    let weights: Vec<f64> =
        windows.iter().map(|w| MEMORY * ((w.0 - end) / MEMORY).exp() * (1.0 - (-w.1 / MEMORY).exp())).collect();
    let loss = |costs: &[f64]| {
        let seen: f64 = windows
            .iter()
            .zip(&weights)
            .map(|(w, weight)| weight * (w.3 - w.2.iter().zip(costs).map(|(a, b)| a * b).sum::<f64>()).powi(2))
            .sum();
        let held: f64 = prior.iter().zip(costs).map(|(p, c)| ((c - p.cost) / p.deviation).powi(2)).sum();
        seen + ASSUMED * ASSUMED * held
    };
    let mut best: Option<(f64, Vec<f64>)> = None;
    for choice in 0..3usize.pow(u32::try_from(size).expect("few")) {
        let fixed: Vec<Option<f64>> =
            (0..size).map(|i| [None, Some(0.0), Some(MAX)][choice / 3usize.pow(i as u32) % 3]).collect();
        let free: Vec<usize> = (0..size).filter(|i| fixed[*i].is_none()).collect();
        let mut rows: Vec<Vec<f64>> = free
            .iter()
            .map(|i| {
                let hold = ASSUMED * ASSUMED / prior[*i].deviation.powi(2);
                let mut row: Vec<f64> = free
                    .iter()
                    .map(|j| {
                        windows.iter().zip(&weights).map(|(w, k)| k * w.2[*i] * w.2[*j]).sum::<f64>()
                            + if i == j { hold } else { 0.0 }
                    })
                    .collect();
                let known = |w: &(f64, f64, Vec<f64>, f64)| {
                    w.3 - fixed.iter().zip(&w.2).filter_map(|(f, a)| f.map(|f| f * a)).sum::<f64>()
                };
                row.push(
                    windows.iter().zip(&weights).map(|(w, k)| k * w.2[*i] * known(w)).sum::<f64>()
                        + hold * prior[*i].cost,
                );
                row
            })
            .collect();
        for pivot in 0..free.len() {
            let scale = rows[pivot][pivot];
            rows[pivot].iter_mut().for_each(|x| *x /= scale);
            for other in (0..free.len()).filter(|o| *o != pivot) {
                let factor = rows[other][pivot];
                let above = rows[pivot].clone();
                rows[other].iter_mut().zip(above).for_each(|(entry, above)| *entry -= factor * above);
            }
        }
        let mut costs: Vec<f64> = fixed.iter().map(|f| f.unwrap_or(0.0)).collect();
        free.iter().zip(&rows).for_each(|(i, row)| costs[*i] = row[free.len()]);
        if costs.iter().all(|c| (-1e-9..=MAX + 1e-9).contains(c)) {
            let loss = loss(&costs);
            if best.as_ref().is_none_or(|best| loss < best.0) {
                best = Some((loss, costs));
            }
        }
    }
    best.expect("some choice is feasible").1
}

fn window(routes: usize) -> impl Strategy<Value = (f64, f64, Vec<f64>, f64)> {
    (0.2f64..3.0, proptest::collection::vec(0.0f64..30.0, routes), 0.0f64..3.0).prop_map(
        |(seconds, mut rates, used)| {
            rates.insert(0, 1.0);
            (0.0, seconds, rates, used)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Before the noise is known, the result equals least squares over all windows at once, for any windows.
    #[test]
    fn as_good_as_all_windows_at_once(mut windows in proptest::collection::vec(window(3), 1..10)) {
        let mut equations = Equations::new(priors(3));
        let mut at = 100.0;
        for window in &mut windows {
            at += window.1;
            window.0 = at;
            equations.learn(at, window.1, &window.2, window.3);
        }
        // Repeats until nothing moves, as further windows with the same content would.
        (0..2000).for_each(|_| equations.solve());
        let batch = batch(&windows, &priors(3));
        for (found, best) in equations.costs().iter().zip(&batch) {
            prop_assert!((found - best).abs() < 1e-4, "{:?} {:?}", equations.costs(), batch);
        }
    }

    /// Whatever windows say, costs are numbers between 0 and the maximum.
    #[test]
    fn costs_are_bounded(windows in proptest::collection::vec((window(4), 0.0f64..20.0, 0.0f64..5.0), 1..120)) {
        let mut equations = Equations::new(priors(4));
        let mut at: f64 = 0.0;
        for ((_, seconds, rates, used), wait, late) in windows {
            at += wait;
            equations.learn((at - late).max(0.0), seconds, &rates, used);
            prop_assert!(equations.costs().iter().all(|cost| (0.0..=MAX).contains(cost)), "{:?}", equations.costs());
        }
        prop_assert!(equations.deviations().iter().all(|deviation| deviation.is_finite()));
    }

    /// Without noise the truth is found, whatever the mixes are.
    #[test]
    fn the_truth_is_found(
        costs in proptest::collection::vec(0.0f64..0.05, 4),
        mixes in proptest::collection::vec(proptest::collection::vec(0u32..40, 4), 120..150),
    ) {
        let mut equations = Equations::new(priors(4));
        for (at, mix) in mixes.iter().enumerate() {
            let mut rates = vec![1.0];
            rates.extend(mix.iter().map(|count| f64::from(*count)));
            let used = 0.03 + rates[1..].iter().zip(&costs).map(|(a, b)| a * b).sum::<f64>();
            equations.learn(at as f64, 1.0, &rates, used);
        }
        for (found, cost) in equations.costs()[1..].iter().zip(&costs) {
            prop_assert!((found - cost).abs() < 0.0005 + 0.02 * cost, "{:?} {costs:?}", equations.costs());
        }
    }

    /// Pieces of a window with the same mix give the same result as the whole.
    #[test]
    fn pieces_say_what_the_whole_says(windows in proptest::collection::vec((window(3), 1usize..5), 1..9)) {
        let mut whole = Equations::new(priors(3));
        let mut cut = Equations::new(priors(3));
        let mut at = 0.0;
        for ((_, seconds, rates, used), pieces) in windows {
            let begun = at;
            at += seconds;
            whole.learn(at, seconds, &rates, used);
            for piece in 1..=pieces {
                let part = seconds / pieces as f64;
                // With a known noise, clipping would make them differ.
                cut.noise = Noise::default();
                cut.learn(begun + part * piece as f64, part, &rates, used);
            }
        }
        let largest = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs() / (1.0 + b.abs())).fold(0.0, f64::max);
        prop_assert!(largest(&whole.all.gram, &cut.all.gram) < 1e-9);
        prop_assert!(largest(&whole.all.moment, &cut.all.moment) < 1e-9);
    }
}
