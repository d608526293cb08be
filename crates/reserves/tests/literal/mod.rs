//! Steps 1 and 2 as the paper writes them, solved by an interior-point solver. The crate's own method must
//! agree with it.

use clarabel::algebra::CscMatrix;
use clarabel::solver::{DefaultSettings, DefaultSolver, IPSolver, NonnegativeConeT};
use weirgate_reserves::Problem;

/// The results that both methods must agree on.
pub struct Literal {
    /// V.
    pub deviation: f64,
    /// R after step 2.
    pub closest: Vec<Vec<f64>>,
}

/// The constraints of step 1 on the shares, row by row, followed by a bound for each class's deviation.
struct Constraints {
    entries: (Vec<usize>, Vec<usize>, Vec<f64>),
    bounds: Vec<f64>,
}

impl Constraints {
    fn at_most(&mut self, terms: impl IntoIterator<Item = (usize, f64)>, bound: f64) {
        for (variable, factor) in terms {
            self.entries.0.push(self.bounds.len());
            self.entries.1.push(variable);
            self.entries.2.push(factor);
        }
        self.bounds.push(bound);
    }

    /// Returns the x that minimises `square`/2 x^2 + `linear` x under these constraints.
    fn min(&self, square: &[f64], linear: &[f64]) -> Vec<f64> {
        let n = linear.len();
        let diagonal: Vec<usize> = (0..n).collect();
        let square = CscMatrix::new_from_triplets(n, n, diagonal.clone(), diagonal, square.to_vec());
        let (rows, columns, values) = self.entries.clone();
        let matrix = CscMatrix::new_from_triplets(self.bounds.len(), n, rows, columns, values);
        let settings = DefaultSettings {
            verbose: false,
            tol_gap_abs: 1e-10,
            tol_gap_rel: 1e-10,
            tol_feas: 1e-10,
            ..DefaultSettings::default()
        };
        let cones = [NonnegativeConeT(self.bounds.len())];
        let mut solver = DefaultSolver::new(&square, linear, &matrix, &self.bounds, &cones, settings)
            .expect("these settings and shapes are sound");
        solver.solve();
        solver.solution.x.clone()
    }
}

/// Solves both steps.
pub fn solve(problem: &Problem) -> Literal {
    let (nodes, classes) = (problem.usage.len(), problem.desired.len());
    let floor = f64::min(1.0, 100.0 / classes as f64);
    let shares = nodes * classes;
    let mut constraints = Constraints { entries: (vec![], vec![], vec![]), bounds: vec![] };
    for node in 0..nodes {
        constraints.at_most((0..classes).map(|class| (node * classes + class, 1.0)), 100.0);
        for class in 0..classes {
            let upper = if problem.sink[node][class] { 100.0 } else { problem.usage[node][class].max(floor) };
            constraints.at_most([(node * classes + class, 1.0)], upper);
            constraints.at_most([(node * classes + class, -1.0)], -floor);
        }
    }
    for class in 0..classes {
        for sign in [1.0, -1.0] {
            let sum = (0..nodes).map(|node| (node * classes + class, sign));
            constraints.at_most(sum.chain([(shares + class, -1.0)]), sign * nodes as f64 * problem.desired[class]);
        }
    }
    let deviations = |value: f64, rest: f64| {
        let mut all = vec![rest; shares + classes];
        all[shares..].fill(value);
        all
    };
    let found = constraints.min(&deviations(0.0, 0.0), &deviations(1.0, 0.0));
    let deviation: f64 = found[shares..].iter().sum();

    // An interior-point solver needs a small tolerance.
    constraints.at_most((0..classes).map(|class| (shares + class, 1.0)), deviation + 1e-6);
    let mut linear = deviations(0.0, 0.0);
    for node in 0..nodes {
        for class in 0..classes {
            linear[node * classes + class] = -aim(problem.desired[class], problem.usage[node][class]);
        }
    }
    let found = constraints.min(&deviations(0.0, 1.0), &linear);
    Literal { deviation, closest: found[..shares].chunks(classes).map(<[f64]>::to_vec).collect() }
}

/// u + k of the paper, with 5 in place of its 500.
pub fn aim(desired: f64, usage: f64) -> f64 {
    if desired == 0.0 {
        return if usage > 0.0 { usage - 5.0 } else { usage };
    }
    let offset = 5.0 * (desired - usage) / desired;
    usage + if usage < desired { offset.min(5.0) } else { offset.max(-5.0) }
}
