//! The normal equations of least squares: sums over windows, and operations on them that do not need the
//! windows.

/// `G` and `m` of `G x = m`. `G` sums `a aᵀ` and `m` sums `a y`, with the weight of each window.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    /// Stored row by row.
    pub(crate) gram: Vec<f64>,
    pub(crate) moment: Vec<f64>,
}

impl Sums {
    pub(crate) fn new(size: usize) -> Sums {
        Sums { gram: vec![0.0; size * size], moment: vec![0.0; size] }
    }

    pub(crate) fn clear(&mut self) {
        self.gram.fill(0.0);
        self.moment.fill(0.0);
    }

    /// Adds a cost about which nothing is known.
    pub(crate) fn push(&mut self) {
        let size = self.moment.len();
        let mut gram = Vec::with_capacity((size + 1) * (size + 1));
        for row in self.gram.chunks(size.max(1)).take(size) {
            gram.extend_from_slice(row);
            gram.push(0.0);
        }
        gram.resize((size + 1) * (size + 1), 0.0);
        self.gram = gram;
        self.moment.push(0.0);
    }

    pub(crate) fn add(&mut self, weight: f64, rates: &[f64], used: f64) {
        let size = self.moment.len();
        for (row, rate) in rates.iter().enumerate().filter(|(_, rate)| **rate != 0.0) {
            let weighted = weight * rate;
            for (sum, other) in self.gram[row * size..(row + 1) * size].iter_mut().zip(rates) {
                *sum += weighted * other;
            }
            self.moment[row] += weighted * used;
        }
    }

    /// Adds all windows of `others`.
    pub(crate) fn join(&mut self, others: &Sums) {
        self.gram.iter_mut().zip(&others.gram).for_each(|(sum, more)| *sum += more);
        self.moment.iter_mut().zip(&others.moment).for_each(|(sum, more)| *sum += more);
    }

    /// Multiplies the weight of all windows by `kept`.
    pub(crate) fn fade(&mut self, kept: f64) {
        self.gram.iter_mut().chain(&mut self.moment).for_each(|sum| *sum *= kept);
    }

    /// Returns the gradient for one cost: the use that the windows leave unexplained along it.
    pub(crate) fn slope(&self, place: usize, costs: &[f64]) -> f64 {
        let size = self.moment.len();
        self.moment[place] - product(&self.gram[place * size..(place + 1) * size], costs)
    }

    /// Adds `variance`, in units of the noise, to the variance of one cost. If `costs` were the best
    /// solution, they remain so.
    pub(crate) fn doubt(&mut self, place: usize, variance: f64, costs: &[f64]) {
        let size = self.moment.len();
        let slopes: Vec<f64> = (0..size).map(|row| self.slope(row, costs)).collect();
        let column: Vec<f64> = (0..size).map(|row| self.gram[row * size + place]).collect();
        // The inverse of G grows by `variance` at one place. The formula of Sherman and Morrison gives the
        // effect on G.
        let scale = 1.0 / (1.0 / variance + column[place]);
        if scale.is_finite() {
            for (row, part) in column.iter().enumerate() {
                for (sum, other) in self.gram[row * size..(row + 1) * size].iter_mut().zip(&column) {
                    *sum -= scale * part * other;
                }
            }
        }
        for (row, slope) in slopes.into_iter().enumerate() {
            self.moment[row] = slope + product(&self.gram[row * size..(row + 1) * size], costs);
        }
    }

    /// Forgets one cost, but keeps its evidence about the others.
    pub(crate) fn remove(&mut self, place: usize, costs: &[f64]) {
        let size = self.moment.len();
        self.doubt(place, f64::INFINITY, costs);
        for other in 0..size {
            self.gram[place * size + other] = 0.0;
            self.gram[other * size + place] = 0.0;
        }
        self.moment[place] = 0.0;
    }
}

pub(crate) fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
