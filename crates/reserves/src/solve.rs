//! The three steps in sequence.

use crate::closest::closest;
use crate::deviation::deviation;
use crate::problem::{Error, Problem, Solution};

/// Finds the shares of all nodes. Step 1 finds how much of the promises can be used, step 2 the shares
/// closest to the use that reach that much, and step 3 distributes the capacity that no class can use at
/// present.
///
/// # Errors
/// The problem is invalid ([`Problem::check`]), or [`Error::Unsolved`].
pub fn solve(problem: &Problem) -> Result<Solution, Error> {
    problem.check()?;
    let bounds = deviation(problem);
    let closest = closest(problem, &bounds)?;
    let allocation = give_rest(problem, closest.clone());
    Ok(Solution { deviation: bounds.deviation, closest, allocation })
}

/// Step 3 (Cluster Reserves, Sec. 3): the spare capacity of nodes goes to classes below their promise, which
/// then have it at once when they need it. Until then the node's scheduler lends it out.
///
/// The paper does not give the proportions. Here every node divides its spare capacity among the classes
/// below their promise, in proportion to both, so that no node gives and no class gets too much. Any
/// remaining capacity of a node is divided in proportion to the promises, so that a node's shares always sum
/// to 100.
fn give_rest(problem: &Problem, mut shares: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let nodes = problem.nodes() as f64;
    let left = |row: &Vec<f64>| (100.0 - row.iter().sum::<f64>()).max(0.0);
    let rest: Vec<f64> = shares.iter().map(left).collect();
    let owed = |class: usize| {
        let has: f64 = shares.iter().map(|row| row[class]).sum();
        (nodes * problem.desired[class] - has).max(0.0)
    };
    let owed: Vec<f64> = (0..problem.classes()).map(owed).collect();
    let max = rest.iter().sum::<f64>().max(owed.iter().sum());
    if max > 0.0 {
        for (row, rest) in shares.iter_mut().zip(&rest) {
            for (share, owed) in row.iter_mut().zip(&owed) {
                *share += rest * owed / max;
            }
        }
    }
    let promised: f64 = problem.desired.iter().sum();
    for row in &mut shares {
        let left = left(row);
        let classes = row.len() as f64;
        for (share, desired) in row.iter_mut().zip(&problem.desired) {
            // If no class has a promise, all get the same.
            *share += if promised > 0.0 { left * desired / promised } else { left / classes };
        }
    }
    shares
}
