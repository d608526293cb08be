//! Step 2: of all shares that meet the promises as well as possible, finds those closest to the classes' use.
//!
//! Source: Cluster Reserves, Sec. 3, step 2: least squares around u + k, under the bounds of step 1 and with
//! its deviation. The paper hands the problem to a general solver (LOQO). This module uses the problem's
//! structure:
//!
//! 1. The cut of step 1 ([`crate::deviation`]) tells which shares are at a bound in every solution. The rest
//!    falls into two problems that have no share in common. One has the nodes that may keep something and the
//!    classes that reach their target. The other has the nodes that give everything and the classes that stay
//!    below their target.
//! 2. In each problem, a price per class makes the nodes independent of one another. A node's shares are its
//!    aims minus the prices and minus a level that makes the node's sum right, clamped to their bounds. The
//!    level is found by water filling.
//! 3. Prices are right when the sums of the classes are right. These sums are the gradient of a concave,
//!    piecewise quadratic function with one variable per class, and its curvature is known exactly. Newton's
//!    method ends in a few steps. It is damped after Levenberg and Marquardt because the curvature may be
//!    flat.
//!
//! A step costs nodes x classes^2. An interior-point solver gives the same answer within 10^-6 (the tests
//! compare with Clarabel) and takes 10 to 100 times as long (docs/disciplines/cluster-reserves.md has the
//! figures).

use crate::deviation::Deviation;
use crate::problem::{Error, Problem};

/// Tolerance for the sums of classes, in percent of a node. It is a hundred times finer than the step in
/// which cgroup shares on a thousand nodes can be set, and a thousand times coarser than the rounding errors
/// of such a sum.
const EXACT: f64 = 1e-7;

/// Tolerance for an answer if the search runs out of steps, in percent of a node. The paper's table has this
/// precision.
const GOOD_ENOUGH: f64 = 1e-3;

/// Maximum number of steps. Ten are usual, and the most that any of 200,000 random problems needed is 239.
const STEPS: usize = 1000;

/// Minimum part of a step's predicted ascent that the step must achieve (Armijo's rule, with the usual
/// figure).
const KEPT: f64 = 1e-4;

/// Smallest ascent, relative to the value, that rounding cannot hide. The value is a sum of up to a million
/// squares with 53 bits each.
const ROUNDING: f64 = 1e-10;

/// Initial damping. It is smaller than any curvature, which is a count of nodes.
const DAMPING: f64 = 1e-3;

/// Factors by which a successful step reduces the damping and a failed step raises it. Reducing it faster
/// than raising it sometimes costs a failed step, and ends the search sooner.
const EASED: f64 = 16.0;
const TIGHTENED: f64 = 8.0;

/// Minimum damping. It keeps the equations solvable where the curvature is flat.
const MIN_DAMPING: f64 = 1e-9;

/// Maximum offset that step 2 adds to the use, in percentage points (the paper's figure).
const OFFSET: f64 = 5.0;

/// Slope of the offset over the relative distance from the promise. The paper prints 500, which cannot give
/// its own Table 1: calls 3 and 4 move by 1 and 0.9 points at a distance of a fifth, and that is a slope of
/// 5.
const SLOPE: f64 = 5.0;

/// Returns the aim of step 2 for a class on a node, in percent of the node: its use plus a small offset
/// towards the same share on all nodes. The offset also probes whether a sink can use more.
pub(crate) fn aim(desired: f64, usage: f64) -> f64 {
    let offset = if desired > 0.0 {
        (SLOPE * (desired - usage) / desired).clamp(-OFFSET, OFFSET)
    } else if usage > 0.0 {
        -OFFSET
    } else {
        0.0
    };
    usage + offset
}

/// Solves step 2. Returns the share of each node and class in percent of the node.
///
/// # Errors
/// [`Error::Unsolved`].
pub(crate) fn closest(problem: &Problem, bounds: &Deviation) -> Result<Vec<Vec<f64>>, Error> {
    let (slack, full) = (&bounds.slack_node, &bounds.full_class);
    // The shares that the cut fixes: edges that leave the source's side are full, edges that enter it are
    // empty.
    let fixed = |node: usize, class: usize| match (slack[node], full[class]) {
        (true, false) => bounds.upper[node][class],
        _ => bounds.floor,
    };
    let (nodes, classes) = (problem.nodes(), problem.classes());
    let mut shares: Vec<Vec<f64>> =
        (0..nodes).map(|node| (0..classes).map(|class| fixed(node, class)).collect()).collect();
    for side in [true, false] {
        let rows: Vec<usize> = (0..nodes).filter(|node| slack[*node] == side).collect();
        let columns: Vec<usize> = (0..classes).filter(|class| full[*class] == side).collect();
        if rows.is_empty() || columns.is_empty() {
            continue;
        }
        let rest_of_row = |node: usize| {
            let given: f64 = (0..classes).filter(|class| full[*class] != side).map(|class| fixed(node, class)).sum();
            100.0 - given
        };
        let rest_of_column = |class: usize| {
            let given: f64 = (0..nodes).filter(|node| slack[*node] != side).map(|node| fixed(node, class)).sum();
            bounds.target[class] - given
        };
        let of_block = |value: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
            rows.iter().flat_map(|node| columns.iter().map(|class| value(*node, *class))).collect()
        };
        let block = Block {
            aim: of_block(&|node, class| aim(problem.desired[class], problem.usage[node][class])),
            lower: bounds.floor,
            upper: of_block(&|node, class| bounds.upper[node][class]),
            row_sum: rows.iter().map(|node| rest_of_row(*node)).collect(),
            column_sum: columns.iter().map(|class| rest_of_column(*class)).collect(),
            full_columns: side,
        };
        let found = block.solve()?;
        for (row, node) in rows.iter().enumerate() {
            for (column, class) in columns.iter().enumerate() {
                shares[*node][*class] = found[row * columns.len() + column];
            }
        }
    }
    Ok(shares)
}

/// One of the two problems: least squares around `aim` within bounds and sums. Matrices are stored row by
/// row.
struct Block {
    aim: Vec<f64>,
    lower: f64,
    upper: Vec<f64>,
    row_sum: Vec<f64>,
    column_sum: Vec<f64>,
    /// If true, columns reach their sums and rows stay at or below theirs. If false, the other way round.
    full_columns: bool,
}

/// The shares that follow from a set of prices.
struct Point {
    prices: Vec<f64>,
    /// Level of each row.
    levels: Vec<f64>,
    shares: Vec<f64>,
    /// Sum of each column minus the sum that it should have.
    excess: Vec<f64>,
    /// Value of the function that has `excess` as its gradient.
    value: f64,
}

impl Block {
    fn solve(&self) -> Result<Vec<f64>, Error> {
        let mut point = self.at(vec![0.0; self.column_sum.len()], &vec![0.0; self.row_sum.len()]);
        let mut damping = DAMPING;
        for _ in 0..STEPS {
            let missed = self.missed(&point);
            if missed <= EXACT {
                return Ok(point.shares);
            }
            let step = self.step(&point, damping);
            let prices: Vec<f64> =
                point.prices.iter().zip(&step).map(|(price, step)| self.price(price + step)).collect();
            let promised: f64 = prices
                .iter()
                .zip(&point.prices)
                .zip(&point.excess)
                .map(|((new, old), excess)| (new - old) * excess)
                .sum();
            let next = self.at(prices, &point.levels);
            // Prices that stop at 0 can turn a step downwards. More damping turns it towards the gradient, and that
            // ascends.
            let ascends = promised > 0.0 && next.value >= point.value + KEPT * promised;
            // Near the end, rounding in the value hides the ascent, but the sums still show the progress.
            let hidden = promised.abs() <= ROUNDING * point.value.abs() && self.missed(&next) < missed;
            if ascends || hidden {
                damping = (damping / EASED).max(MIN_DAMPING);
                point = next;
            } else {
                damping *= TIGHTENED;
            }
        }
        let missed = self.missed(&point);
        if missed <= GOOD_ENOUGH { Ok(point.shares) } else { Err(Error::Unsolved { missed }) }
    }

    /// Returns the price within its range. A column that must only stay below its sum has no negative price.
    fn price(&self, price: f64) -> f64 {
        if self.full_columns { price } else { price.max(0.0) }
    }

    /// Returns whether the price of a column is 0 and would have to fall further. Such a price does not move.
    fn is_at_bound(&self, point: &Point, column: usize) -> bool {
        !self.full_columns && point.prices[column] <= 0.0 && point.excess[column] <= 0.0
    }

    /// Returns the largest error of a column's sum.
    fn missed(&self, point: &Point) -> f64 {
        let columns = 0..self.column_sum.len();
        let wrong = columns.filter(|column| !self.is_at_bound(point, *column)).map(|column| point.excess[column].abs());
        wrong.fold(0.0, f64::max)
    }

    fn at(&self, prices: Vec<f64>, near: &[f64]) -> Point {
        let width = prices.len();
        let mut shares = vec![0.0; self.aim.len()];
        let mut levels = near.to_vec();
        let mut excess: Vec<f64> = self.column_sum.iter().map(|sum| -sum).collect();
        let mut value = 0.0;
        let mut priced = vec![0.0; width];
        for (row, (shares, level)) in shares.chunks_exact_mut(width).zip(&mut levels).enumerate() {
            let range = row * width..(row + 1) * width;
            let (aim, upper) = (&self.aim[range.clone()], &self.upper[range]);
            for ((priced, aim), price) in priced.iter_mut().zip(aim).zip(&prices) {
                *priced = aim - price;
            }
            *level = self.level(&priced, upper, self.row_sum[row], *level);
            for (column, share) in shares.iter_mut().enumerate() {
                *share = (priced[column] - *level).clamp(self.lower, upper[column]);
                excess[column] += *share;
                value += 0.5 * (*share - aim[column]).powi(2);
            }
        }
        value += prices.iter().zip(&excess).map(|(price, excess)| price * excess).sum::<f64>();
        Point { prices, levels, shares, excess, value }
    }

    /// Returns the level that makes a row's sum right. It is 0 for a row that may stay below its sum and does
    /// so. `near` is the previous level.
    fn level(&self, priced: &[f64], upper: &[f64], sum: f64, near: f64) -> f64 {
        // The sum at a level, and the number of shares that change with the level.
        let at = |level: f64| {
            priced.iter().zip(upper).fold((0.0, 0_u32), |(sum, moving), (priced, upper)| {
                let share = priced - level;
                if share <= self.lower {
                    (sum + self.lower, moving)
                } else if share >= *upper {
                    (sum + upper, moving)
                } else {
                    (sum + share, moving + 1)
                }
            })
        };
        if self.full_columns && at(0.0).0 <= sum {
            return 0.0;
        }
        // At `low` all shares are at their upper bound, and at `high` all are at their lower bound.
        let mut low = priced.iter().zip(upper).map(|(priced, upper)| priced - upper).fold(f64::INFINITY, f64::min);
        let mut high = priced.iter().map(|priced| priced - self.lower).fold(f64::NEG_INFINITY, f64::max);
        let mut level = near.clamp(low, high);
        // Newton's method on a falling, piecewise linear function. Where a step would leave the bracket, the
        // bracket is halved. The loop ends because a step within one piece is exact, and a hundred halvings
        // exhaust any bracket.
        for _ in 0..200 {
            let (found, moving) = at(level);
            let excess = found - sum;
            if excess.abs() <= 1e-12 * sum.max(1.0) {
                break;
            } else if excess > 0.0 {
                low = level;
            } else {
                high = level;
            }
            let newton = level + excess / f64::from(moving.max(1));
            let next = if moving > 0 && newton > low && newton < high { newton } else { f64::midpoint(low, high) };
            if next <= low || next >= high {
                break;
            }
            level = next;
        }
        level
    }

    /// Returns the step from `point`: the change of each column's price.
    fn step(&self, point: &Point, damping: f64) -> Vec<f64> {
        let width = point.prices.len();
        let mut curvature = vec![0.0; width * width];
        let mut moving = Vec::with_capacity(width);
        for (row, shares) in point.shares.chunks_exact(width).enumerate() {
            let upper = &self.upper[row * width..(row + 1) * width];
            moving.clear();
            moving.extend((0..width).filter(|column| shares[*column] > self.lower && shares[*column] < upper[*column]));
            for column in &moving {
                curvature[column * width + column] += 1.0;
            }
            // In a row that is at its sum, a share can only grow at the expense of the row's other shares.
            if !self.full_columns || point.levels[row] > 0.0 {
                let part = 1.0 / moving.len().max(1) as f64;
                for column in &moving {
                    for other in moving.iter().take_while(|other| *other <= column) {
                        curvature[column * width + other] -= part;
                    }
                }
            }
        }
        let mut step = point.excess.clone();
        for column in 0..width {
            if self.is_at_bound(point, column) {
                step[column] = 0.0;
                for other in 0..width {
                    curvature[column.max(other) * width + column.min(other)] = 0.0;
                }
                curvature[column * width + column] = 1.0;
            } else {
                curvature[column * width + column] += damping;
            }
        }
        solve_symmetric(&mut curvature, &mut step);
        step
    }
}

/// Solves `matrix` x = `vector` in place by Cholesky's factorisation. `matrix` is symmetric and positive
/// definite, and only its lower triangle is read.
fn solve_symmetric(matrix: &mut [f64], vector: &mut [f64]) {
    let n = vector.len();
    for column in 0..n {
        for row in column..n {
            let (left, above) = (&matrix[row * n..row * n + column], &matrix[column * n..column * n + column]);
            let known: f64 = left.iter().zip(above).map(|(a, b)| a * b).sum();
            let rest = matrix[row * n + column] - known;
            matrix[row * n + column] = if row == column {
                // Rounding may take a flat direction below 0.
                rest.max(MIN_DAMPING).sqrt()
            } else {
                rest / matrix[column * n + column]
            };
        }
    }
    for row in 0..n {
        let known: f64 = (0..row).map(|column| matrix[row * n + column] * vector[column]).sum();
        vector[row] = (vector[row] - known) / matrix[row * n + row];
    }
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|column| matrix[column * n + row] * vector[column]).sum();
        vector[row] = (vector[row] - known) / matrix[row * n + row];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_aim_is_the_use_and_a_step_towards_the_promise() {
        // Table 1, call 3: a use of 40 of 50 is probed with one point more, 60 with one point less.
        assert_eq!((aim(50.0, 40.0), aim(50.0, 60.0), aim(50.0, 50.0)), (41.0, 59.0, 50.0));
        assert_eq!((aim(20.0, 0.0), aim(20.0, 100.0)), (5.0, 95.0));
        assert_eq!((aim(0.0, 30.0), aim(0.0, 0.0)), (25.0, 0.0));
    }

    #[test]
    fn symmetric_equations_are_solved() {
        let mut matrix = vec![4.0, 0.0, 0.0, 2.0, 5.0, 0.0, 1.0, 3.0, 6.0];
        let mut vector = vec![11.0, 21.0, 25.0];
        solve_symmetric(&mut matrix, &mut vector);
        for (found, wanted) in vector.iter().zip([1.0, 2.0, 3.0]) {
            assert!((found - wanted).abs() < 1e-12, "{vector:?}");
        }
    }
}
