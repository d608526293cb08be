//! Compares the decision with an oracle that tries every division.

use proptest::prelude::*;

use super::*;

const CPU: u64 = 1_000_000;

fn wants(sets: &[(bool, f64)]) -> Vec<Wants> {
    sets.iter().map(|&(top, demand)| Wants { top, demand, busy: if top { 0.8 } else { 1.0 } }).collect()
}

fn counts(division: &[usize], sets: usize) -> Vec<usize> {
    (0..sets).map(|set| division.iter().filter(|s| **s == set).count()).collect()
}

/// Independent computation of the cost: CPUs missing for top sets, for normal sets, and Σ d²/c.
fn suffered(sets: &[(bool, f64)], cpus: &[f64]) -> (f64, f64, f64) {
    let mut sum = (0.0, 0.0, 0.0);
    for ((top, demand), cpus) in sets.iter().zip(cpus) {
        if *top {
            sum.0 += f64::max(0.0, demand / 0.8 - cpus);
        } else {
            sum.1 += f64::max(0.0, demand - cpus);
        }
        sum.2 += demand * demand / cpus;
    }
    sum
}

fn is_worse(a: (f64, f64, f64), b: (f64, f64, f64)) -> bool {
    // Demands are rounded to millionths, so four sets err by a few.
    let far = |x: f64, y: f64| (x - y).abs() > 1e-5 * (1.0 + y.abs());
    if far(a.0, b.0) {
        return a.0 > b.0;
    }
    if far(a.1, b.1) {
        return a.1 > b.1;
    }
    far(a.2, b.2) && a.2 > b.2
}

/// Every way to give `nodes` nodes to `sets` sets, at least one each.
fn every(nodes: usize, sets: usize) -> Vec<Vec<usize>> {
    if sets == 1 {
        return vec![vec![nodes]];
    }
    let firsts = 1..=nodes + 1 - sets;
    firsts
        .flat_map(|first| every(nodes - first, sets - 1).into_iter().map(move |rest| [vec![first], rest].concat()))
        .collect()
}

#[test]
fn top_sets_first_then_normal_ones_then_all() {
    let cpus = vec![2 * CPU; 6];
    let of = |sets: &[(bool, f64)]| counts(&divide(&cpus, &wants(sets), &[None; 6]), sets.len());
    // Top dynamic needs 5 / 0.8 = 6.25 of 12 CPUs: four nodes. One remains for each of the others.
    assert_eq!(of(&[(true, 0.1), (true, 5.0), (false, 9.0)]), [1, 4, 1]);
    assert_eq!(of(&[(true, 0.1), (true, 3.0), (false, 9.0)]), [1, 2, 3]);
    // No set lacks CPUs, so the rest follows the demand.
    assert_eq!(of(&[(true, 0.5), (false, 0.5)]), [3, 3]);
    assert_eq!(of(&[(true, 1.5), (false, 0.5)]), [4, 2]);
    // Without any demand, every set still has a node.
    assert!(of(&[(true, 0.0), (true, 0.0), (false, 0.0), (false, 0.0)]).iter().all(|n| *n > 0));
}

#[test]
fn configured_sizes_are_met_exactly_where_they_can_be() {
    let sized: Vec<Wants> = [1.0, 2.0, 1.0, 2.0].iter().map(|&demand| Wants { top: true, demand, busy: 1.0 }).collect();
    assert_eq!(counts(&divide(&[CPU; 6], &sized, &[None; 6]), 4), [1, 2, 1, 2]);
}

#[test]
fn too_few_nodes_go_to_top_sets_and_to_sets_with_more_demand() {
    let sets = wants(&[(true, 0.0), (true, 1.0), (false, 2.0), (false, 3.0)]);
    assert_eq!(counts(&divide(&[CPU; 3], &sets, &[None; 3]), 4), [1, 1, 0, 1]);
    assert_eq!(counts(&divide(&[CPU; 1], &sets, &[None; 1]), 4), [0, 1, 0, 0]);
    assert_eq!(redivide(&[], &sets, &[]), [0usize; 0]);
}

#[test]
fn a_node_without_a_set_goes_where_it_is_needed_and_no_other_moves() {
    let sets = wants(&[(true, 1.0), (false, 3.0)]);
    let division = redivide(&[CPU; 5], &sets, &[Some(0), Some(0), Some(1), None, Some(1)]);
    assert_eq!(division, [0, 0, 1, 1, 1]);
}

#[test]
fn a_doubtful_gain_moves_no_node() {
    // 4.05 of 4 CPUs: a fifth node would help, but with 5 % less it would not be needed.
    let cpus = [CPU; 8];
    let now = [0, 0, 0, 0, 1, 1, 1, 1];
    let current = now.map(Some);
    assert_eq!(redivide(&cpus, &wants(&[(false, 4.05), (false, 2.9)]), &current), now);
    assert_eq!(redivide(&cpus, &wants(&[(false, 5.0), (false, 2.5)]), &current), [0, 0, 0, 0, 1, 1, 1, 0]);
}

fn instances() -> impl Strategy<Value = Vec<(bool, f64)>> {
    prop::collection::vec((any::<bool>(), prop_oneof![Just(0.0), 0.0..12.0f64]), 1..=4)
}

proptest! {
    #[test]
    fn no_division_of_equal_nodes_is_better(sets in instances(), nodes in 1usize..10, size in 1u64..5) {
        prop_assume!(nodes >= sets.len());
        let cpus = vec![size * CPU; nodes];
        let division = divide(&cpus, &wants(&sets), &vec![None; nodes]);
        let count = counts(&division, sets.len());
        prop_assert!(count.iter().all(|n| *n > 0), "{count:?}");
        let of = |count: &[usize]| {
            suffered(&sets, &count.iter().map(|n| *n as f64 * size as f64).collect::<Vec<_>>())
        };
        for other in every(nodes, sets.len()) {
            prop_assert!(!is_worse(of(&count), of(&other)), "{count:?} {:?}, {other:?} {:?}", of(&count), of(&other));
        }
    }

    /// For any nodes and any current sets: each node is in one set, no set is empty, and a second call moves
    /// no node.
    #[test]
    fn every_division_is_whole_and_settles(
        sets in instances(),
        nodes in prop::collection::vec((1u64..9, prop::option::of(0usize..4)), 0..12),
    ) {
        let cpus: Vec<u64> = nodes.iter().map(|(size, _)| size * CPU / 2).collect();
        let current: Vec<Option<usize>> = nodes.iter().map(|(_, set)| set.map(|set| set % sets.len())).collect();
        let wants = wants(&sets);
        let division = redivide(&cpus, &wants, &current);
        prop_assert_eq!(division.len(), nodes.len());
        prop_assert!(division.iter().all(|set| *set < sets.len()));
        let count = counts(&division, sets.len());
        if nodes.len() >= sets.len() {
            prop_assert!(count.iter().all(|n| *n > 0), "{:?}", count);
        } else {
            prop_assert!(count.iter().all(|n| *n <= 1), "{:?}", count);
        }
        prop_assert_eq!(&division, &redivide(&cpus, &wants, &current), "it is deterministic");
        let settled: Vec<Option<usize>> = division.iter().copied().map(Some).collect();
        let once_more = redivide(&cpus, &wants, &settled);
        prop_assert_eq!(&division, &once_more);
    }

    /// Demands that stay within the hysteresis of the ones that moved the nodes do not move them back.
    #[test]
    fn noise_moves_no_node_back(
        sets in prop::collection::vec((any::<bool>(), 0.1..6.0f64), 2..=4),
        from in prop::collection::vec(0usize..4, 4..10),
        noise in prop::collection::vec(-1.0..1.0f64, 4),
    ) {
        let from: Vec<usize> = from.iter().map(|set| set % sets.len()).collect();
        prop_assume!(counts(&from, sets.len()).iter().all(|n| *n > 0));
        let cpus = vec![CPU; from.len()];
        let before: Vec<Option<usize>> = from.iter().copied().map(Some).collect();
        let moved = redivide(&cpus, &wants(&sets), &before);
        prop_assume!(moved != from);
        let heard: Vec<(bool, f64)> =
            sets.iter().zip(&noise).map(|(&(top, demand), by)| (top, demand * (1.0 + HYSTERESIS * 0.99 * by))).collect();
        let after = redivide(&cpus, &wants(&heard), &moved.iter().copied().map(Some).collect::<Vec<_>>());
        prop_assert_ne!(counts(&after, sets.len()), counts(&from, sets.len()));
    }
}
