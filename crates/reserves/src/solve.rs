//! The three steps in turn.

use crate::closest::closest;
use crate::deviation::deviation;
use crate::problem::{Error, Problem, Solution};

/// Finds the shares of all nodes: step 1 how much of the promises can be used, step 2 the shares closest to the use
/// that reach that much, step 3 who gets what nobody can use at present.
///
/// # Errors
/// The problem makes no sense ([`Problem::check`]), or [`Error::Unsolved`].
pub fn solve(problem: &Problem) -> Result<Solution, Error> {
    problem.check()?;
    let bounds = deviation(problem);
    let closest = closest(problem, &bounds)?;
    let allocation = give_rest(problem, closest.clone());
    Ok(Solution { deviation: bounds.deviation, closest, allocation })
}

/// Step 3 (Cluster Reserves, Sec. 3): what nodes have left goes to classes below their promise, which then have it at
/// once when they need it; until then the node's scheduler lends it out.
///
/// The paper does not say in which proportions. Every node gives what it has left to every class that is owed
/// something, in proportion to both, so that neither gives or gets too much. What a node has left after that nobody is
/// owed: it goes by the promises, so that a node's shares always sum to 100.
fn give_rest(problem: &Problem, mut shares: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let nodes = problem.nodes() as f64;
    let left = |row: &Vec<f64>| (100.0 - row.iter().sum::<f64>()).max(0.0);
    let rest: Vec<f64> = shares.iter().map(left).collect();
    let owed = |class: usize| {
        let has: f64 = shares.iter().map(|row| row[class]).sum();
        (nodes * problem.desired[class] - has).max(0.0)
    };
    let owed: Vec<f64> = (0..problem.classes()).map(owed).collect();
    let most = rest.iter().sum::<f64>().max(owed.iter().sum());
    if most > 0.0 {
        for (row, rest) in shares.iter_mut().zip(&rest) {
            for (share, owed) in row.iter_mut().zip(&owed) {
                *share += rest * owed / most;
            }
        }
    }
    let promised: f64 = problem.desired.iter().sum();
    for row in &mut shares {
        let left = left(row);
        let classes = row.len() as f64;
        for (share, desired) in row.iter_mut().zip(&problem.desired) {
            // Where nothing is promised to anybody, all are alike.
            *share += if promised > 0.0 { left * desired / promised } else { left / classes };
        }
    }
    shares
}
