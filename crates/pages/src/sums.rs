//! The normal equations of least squares: sums over windows, and what can be done to them without the windows.

/// `G` and `m` of `G x = m`, where `G` sums `a aᵀ` and `m` sums `a y`, each window with its weight.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    /// Row by row.
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

    /// One more cost, of which nothing is known.
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

    /// One more window.
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

    /// All windows of `others` as well.
    pub(crate) fn join(&mut self, others: &Sums) {
        self.gram.iter_mut().zip(&others.gram).for_each(|(sum, more)| *sum += more);
        self.moment.iter_mut().zip(&others.moment).for_each(|(sum, more)| *sum += more);
    }

    /// All windows have the part `kept` of their weight.
    pub(crate) fn fade(&mut self, kept: f64) {
        self.gram.iter_mut().chain(&mut self.moment).for_each(|sum| *sum *= kept);
    }

    /// What the windows have left to explain along one cost.
    pub(crate) fn slope(&self, place: usize, costs: &[f64]) -> f64 {
        let size = self.moment.len();
        self.moment[place] - product(&self.gram[place * size..(place + 1) * size], costs)
    }

    /// Knows less of one cost: its variance grows by `variance`, in units of the noise. `costs` still are the best that
    /// there are if they were.
    pub(crate) fn doubt(&mut self, place: usize, variance: f64, costs: &[f64]) {
        let size = self.moment.len();
        let slopes: Vec<f64> = (0..size).map(|row| self.slope(row, costs)).collect();
        let column: Vec<f64> = (0..size).map(|row| self.gram[row * size + place]).collect();
        // The inverse of G grows by `variance` at one place: the formula of Sherman and Morrison says what that is to
        // G.
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

    /// Knows nothing of one cost, and of the others what it said of them all the same.
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

/// The sum of the products.
pub(crate) fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
