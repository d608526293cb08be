//! Exact egalitarian processor sharing, with the time passed in.
//!
//! With n requests in service and k CPUs, each request runs at rate min(1, k/n). All requests run at the
//! same rate. A single number therefore orders their ends: the service that a request would have received
//! if it had been here all the time. A request that enters at service s with demand d leaves when the
//! number reaches s + d. A heap of these ends gives every departure in O(log n), however often the rate
//! changes in between. Source: the virtual-time view of processor sharing (Kleinrock, *Queueing Systems*
//! II, Sec. 4.4).
//!
//! Departure: requests leave at whole nanoseconds, rounded up. The other requests receive the service of
//! that fraction of a nanosecond, so no request accumulates an advantage before its demand is met.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Rounding error that is not worth a nanosecond.
const ROUNDING: f64 = 1e-6;

/// Slowdown of a node when too many requests are in service (paging, cache misses, context switches). Every
/// request with a worker counts, even while it waits for I/O, because it holds its memory all the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thrashing {
    /// Number of requests in service without any loss of speed.
    pub beyond: u32,
    /// Slowdown of the whole node by every further request: its speed becomes 1 / (1 + `penalty` × surplus).
    pub penalty: f64,
}

/// k CPUs shared by all requests in service. `T` identifies a request.
#[derive(Debug)]
pub struct Processor<T> {
    cpus: u32,
    thrashing: Option<Thrashing>,
    /// Speed of a CPU: 1 is nominal, 0 stands still.
    speed: f64,
    /// Service that each request receives per unit of time. It is recalculated only when the number of
    /// requests or the speed changes, and not at every query.
    rate: f64,
    /// Instant of the next departure if nothing changes.
    departure: Option<u64>,
    /// Nanoseconds of service received by a request that has been here since the processor was last empty.
    service: f64,
    /// Instant up to which the state has been calculated.
    now: u64,
    in_flight: BinaryHeap<Resident<T>>,
    /// Requests that are in the node but at none of its CPUs.
    beside: usize,
    /// Number of entries so far. It keeps equal ends in order of entry.
    entries: u64,
    busy: f64,
    done: f64,
}

#[derive(Debug)]
struct Resident<T> {
    end: f64,
    entry: u64,
    what: T,
}

impl<T> PartialEq for Resident<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Resident<T> {}

impl<T> PartialOrd for Resident<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Resident<T> {
    /// The heap returns the greatest element first, so the earliest end is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.end.total_cmp(&self.end).then(other.entry.cmp(&self.entry))
    }
}

/// Rounds up to a whole number. (`f64::ceil` is a library call on targets that have no instruction for it.)
fn round_up(x: f64) -> u64 {
    let whole = x as u64;
    whole + u64::from(x > whole as f64)
}

impl<T> Processor<T> {
    /// An empty processor at instant `now` (nanoseconds).
    pub fn new(now: u64, cpus: u32, thrashing: Option<Thrashing>) -> Processor<T> {
        let in_flight = BinaryHeap::new();
        let (departure, entries, busy, done) = (None, 0, 0.0, 0.0);
        let (speed, rate, service, beside) = (1.0, 1.0, 0.0, 0);
        Processor { cpus, thrashing, speed, rate, departure, service, now, in_flight, beside, entries, busy, done }
    }

    /// Number of requests in service.
    pub fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether no request is in service.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// CPU-nanoseconds during which CPUs were occupied: Σ min(n, k) · dt, whatever their speed.
    pub fn busy(&self) -> f64 {
        self.busy
    }

    /// Nanoseconds of nominal CPU time handed out, which is the completed part of the demands.
    pub fn done(&self) -> f64 {
        self.done
    }

    /// The value of [`Processor::busy`] at instant `at`, if nothing enters or leaves before it. The
    /// processor itself does not advance.
    pub fn busy_at(&self, at: u64) -> f64 {
        self.busy + at.saturating_sub(self.now) as f64 * (self.in_flight.len() as f64).min(f64::from(self.cpus))
    }

    /// The value of [`Processor::done`] at instant `at`, under the same condition.
    pub fn done_at(&self, at: u64) -> f64 {
        self.done + at.saturating_sub(self.now) as f64 * self.rate * self.in_flight.len() as f64
    }

    /// Sets the number of requests that are in the node but at none of its CPUs. They count for thrashing.
    pub fn set_beside(&mut self, count: usize) {
        if self.beside != count {
            self.beside = count;
            self.refresh();
        }
    }

    /// Sets the speed: 1 is nominal, at 0.5 everything takes twice as long, and 0 stands still.
    pub fn set_speed(&mut self, speed: f64) {
        self.speed = speed.max(0.0);
        self.refresh();
    }

    /// Adds request `what` with a demand in CPU-nanoseconds. Call [`Processor::advance`] to the present first.
    pub fn enter(&mut self, what: T, demand: u64) {
        self.in_flight.push(Resident { end: self.service + demand as f64, entry: self.entries, what });
        self.entries += 1;
        self.refresh();
    }

    /// Instant of the next departure if nothing changes, or `None` if no request will ever leave.
    pub fn next_departure(&self) -> Option<u64> {
        self.departure
    }

    /// Advances to `to`. Nothing may leave before it, as [`Processor::next_departure`] tells.
    pub fn coast(&mut self, to: u64) {
        self.step(to);
    }

    /// Advances to `to` and appends the requests that have left on the way, with their instants, in order.
    pub fn advance(&mut self, to: u64, left: &mut Vec<(T, u64)>) {
        while let Some(at) = self.next_departure()
            && at <= to
        {
            self.step(at);
            // `at` is rounded up, so this corrects only the last bits of the floating-point sum.
            self.service = self.service.max(self.in_flight.peek().map_or(0.0, |first| first.end));
            while let Some(first) = self.in_flight.peek()
                && first.end <= self.service
            {
                left.extend(self.in_flight.pop().map(|gone| (gone.what, at)));
            }
            self.refresh();
        }
        self.step(to);
        if self.in_flight.is_empty() {
            // A fresh start keeps the sum small and its last bits exact.
            self.service = 0.0;
        }
    }

    /// Removes the requests for which `is_it` is true, before their demand is met. Call
    /// [`Processor::advance`] to the present first. Costs O(n), because leaving early is rare.
    pub fn remove(&mut self, mut is_it: impl FnMut(&T) -> bool) -> bool {
        let before = self.in_flight.len();
        self.in_flight.retain(|resident| !is_it(&resident.what));
        self.refresh();
        if self.in_flight.is_empty() {
            self.service = 0.0;
        }
        self.in_flight.len() < before
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.in_flight.clear();
        self.refresh();
        self.service = 0.0;
    }

    /// Recalculates the next departure.
    fn plan(&mut self) {
        let after = |first: &Resident<T>| round_up((first.end - self.service) / self.rate - ROUNDING);
        let first = self.in_flight.peek().filter(|_| self.rate > 0.0);
        self.departure = first.map(|first| self.now.saturating_add(after(first)));
    }

    /// Recalculates the rate and everything that depends on it.
    fn refresh(&mut self) {
        let n = self.in_flight.len() as f64;
        let share = (f64::from(self.cpus) / n).min(1.0);
        self.rate = match self.thrashing {
            None => self.speed * share,
            Some(Thrashing { beyond, penalty }) => {
                let surplus = (n + self.beside as f64 - f64::from(beyond)).max(0.0);
                self.speed / (1.0 + penalty * surplus) * share
            }
        };
        self.plan();
    }

    /// Advances to `to`. Nothing may leave before it.
    fn step(&mut self, to: u64) {
        let dt = to.saturating_sub(self.now) as f64;
        if dt > 0.0 {
            self.now = to;
            if !self.in_flight.is_empty() {
                let n = self.in_flight.len() as f64;
                let each = dt * self.rate;
                self.service += each;
                self.done += each * n;
                self.busy += dt * n.min(f64::from(self.cpus));
                self.plan();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// Runs (arrival, demand) pairs and returns the departure of each.
    fn run(cpus: u32, thrashing: Option<Thrashing>, jobs: &[(u64, u64)]) -> (Vec<u64>, Processor<usize>) {
        let mut processor = Processor::new(0, cpus, thrashing);
        let mut left = Vec::new();
        for (i, &(at, demand)) in jobs.iter().enumerate() {
            processor.advance(at, &mut left);
            processor.enter(i, demand);
        }
        while let Some(at) = processor.next_departure() {
            processor.advance(at, &mut left);
        }
        let mut ends = vec![0; jobs.len()];
        for (i, at) in left {
            ends[i] = at;
        }
        (ends, processor)
    }

    #[test]
    fn alone_a_request_takes_its_demand() {
        assert_eq!(run(2, None, &[(5 * MS, 8 * MS)]).0, [13 * MS]);
    }

    #[test]
    fn two_on_one_cpu_by_hand() {
        // 0–4: A alone (4 of 10 done). 4–10: half speed each (A 7, B 3 = done). 10–13: A alone.
        assert_eq!(run(1, None, &[(0, 10 * MS), (4 * MS, 3 * MS)]).0, [13 * MS, 10 * MS]);
    }

    #[test]
    fn n_equal_requests_leave_together_after_n_over_k_demands() {
        let jobs = vec![(0, 8 * MS); 6];
        assert_eq!(run(2, None, &jobs).0, vec![24 * MS; 6]);
        let few = vec![(0, 8 * MS); 2];
        assert_eq!(run(2, None, &few).0, vec![8 * MS; 2]);
    }

    #[test]
    fn unequal_requests_by_hand_on_two_cpus() {
        // Three at once, at rate 2/3: the 2 ms request leaves at 3 ms. Then the other two have one CPU
        // each, with 4 − 2 and 6 − 2 left.
        assert_eq!(run(2, None, &[(0, 2 * MS), (0, 4 * MS), (0, 6 * MS)]).0, [3 * MS, 5 * MS, 7 * MS]);
    }

    #[test]
    fn a_slow_node_takes_longer_and_a_stalled_one_waits() {
        let mut processor = Processor::new(0, 1, None);
        let mut left = Vec::new();
        processor.enter('a', 10 * MS);
        processor.advance(4 * MS, &mut left);
        processor.set_speed(0.0);
        assert_eq!(processor.next_departure(), None);
        processor.advance(100 * MS, &mut left);
        processor.set_speed(0.5);
        processor.advance(200 * MS, &mut left);
        assert_eq!(left, [('a', 112 * MS)]);
    }

    #[test]
    fn thrashing_costs_speed_beyond_its_bound_only() {
        let thrashing = Some(Thrashing { beyond: 2, penalty: 0.5 });
        assert_eq!(run(1, thrashing, &[(0, 4 * MS), (0, 4 * MS)]).0, [8 * MS, 8 * MS]);
        // Four: 1 / (1 + 0.5 · 2) = half speed, so 16 ms of work take 32 ms.
        assert_eq!(run(1, thrashing, &[(0, 4 * MS); 4]).0, [32 * MS; 4]);
    }

    #[test]
    fn those_beside_the_cpus_count_for_thrashing_only() {
        let mut processor = Processor::new(0, 2, Some(Thrashing { beyond: 2, penalty: 0.5 }));
        processor.enter('a', 4 * MS);
        processor.enter('b', 4 * MS);
        processor.set_beside(2);
        assert_eq!(processor.next_departure(), Some(8 * MS));
        processor.set_beside(0);
        assert_eq!(processor.next_departure(), Some(4 * MS));
    }

    #[test]
    fn what_leaves_early_makes_room_for_the_others() {
        let mut processor = Processor::new(0, 1, None);
        processor.enter('a', 10 * MS);
        processor.enter('b', 10 * MS);
        let mut left = Vec::new();
        processor.advance(8 * MS, &mut left);
        assert!(processor.remove(|what| *what == 'a') && !processor.remove(|what| *what == 'a'));
        processor.advance(100 * MS, &mut left);
        assert_eq!(left, [('b', 14 * MS)]);
        assert_eq!((processor.busy(), processor.done()), (14e6, 14e6));
    }

    #[test]
    fn what_is_done_is_less_than_busy_time_at_a_low_speed() {
        let mut processor = Processor::new(0, 2, None);
        processor.enter('a', 100 * MS);
        processor.set_speed(0.25);
        processor.advance(8 * MS, &mut Vec::new());
        assert_eq!((processor.busy(), processor.done()), (8e6, 2e6));
    }

    /// The mean number in service is ρ / (1 − ρ) for M/D/1-PS and M/M/1-PS alike. The response time depends
    /// on the distribution of demands only through its mean.
    #[test]
    fn mean_response_time_is_that_of_processor_sharing_whatever_the_demands() {
        use crate::random::Random;
        // Squared coefficient of variation 4, by balanced means: each of the two exponentials carries half of
        // the total.
        let hyper = |random: &mut Random| {
            let first = f64::midpoint(1.0, 0.6_f64.sqrt());
            let share = if random.unit() < first { first } else { 1.0 - first };
            random.exponential() / (2.0 * share)
        };
        let demands: [fn(&mut Random) -> f64; 3] = [|_| 1.0, Random::exponential, hyper];
        for (name, demand) in ["fixed", "exponential", "hyper-exponential"].into_iter().zip(demands) {
            let mut random = Random::new(3);
            let (rho, mut at) = (0.7, 0.0);
            let jobs: Vec<(u64, u64)> = (0..200_000)
                .map(|_| {
                    at += random.exponential() * 10e6 / rho;
                    (at as u64, (demand(&mut random) * 10e6) as u64)
                })
                .collect();
            let (ends, _) = run(1, None, &jobs);
            let total: u64 = ends.iter().zip(&jobs).map(|(end, job)| end - job.0).sum();
            let ratio = total as f64 / jobs.len() as f64 / (10e6 / (1.0 - rho));
            assert!((ratio - 1.0).abs() < 0.05, "{name}: {ratio} of the expected mean");
        }
    }

    proptest! {
        /// No request leaves before its demand is met. CPUs work at full capacity while there is work for
        /// them. All the requested work is done. The last departure is that of a work-conserving server.
        #[test]
        fn work_is_conserved(
            cpus in 1u32..5,
            gaps in prop::collection::vec((0u64..20_000_000, 0u64..40_000_000), 1..120),
        ) {
            let mut at = 0;
            let jobs: Vec<(u64, u64)> = gaps.iter().map(|&(gap, demand)| { at += gap; (at, demand) }).collect();
            let (ends, processor) = run(cpus, None, &jobs);
            let n = jobs.len() as f64;
            for (end, (arrival, demand)) in ends.iter().zip(&jobs) {
                prop_assert!(end - arrival >= *demand, "left after {} of {demand} ns", end - arrival);
            }
            let asked: f64 = jobs.iter().map(|&(_, demand)| demand as f64).sum();
            // Every departure is rounded up by less than 1 ns, which all requests in service may use.
            prop_assert!(processor.busy() >= asked - 1.0);
            prop_assert!(processor.busy() <= asked + n * f64::from(cpus));
            let occupied: f64 = jobs.iter().zip(&ends).map(|(job, end)| (end - job.0) as f64).sum();
            prop_assert!(processor.busy() <= occupied + n, "more work than requests inside");
        }

        /// Under saturation, the service handed out is exactly k times the time that passes.
        #[test]
        fn saturated_it_serves_at_capacity(
            cpus in 1u32..4,
            demands in prop::collection::vec(50_000_000u64..80_000_000, 8..40),
            horizon in 1u64..100_000_000,
        ) {
            let mut processor = Processor::new(0, cpus, None);
            for (i, &demand) in demands.iter().enumerate() {
                processor.enter(i, demand);
            }
            let mut left = Vec::new();
            processor.advance(horizon, &mut left);
            // At most horizon · k / n ≤ 100 · 3 / 8 = 37.5 ms of service each, so no request has left.
            prop_assert!(left.is_empty());
            prop_assert!((processor.busy() - horizon as f64 * f64::from(cpus)).abs() < 1.0);
        }

        /// Many small steps and one large step give the same departures.
        #[test]
        fn steps_do_not_matter(
            demands in prop::collection::vec(1u64..40_000_000, 1..30),
            cuts in prop::collection::vec(0u64..600_000_000, 0..30),
        ) {
            let fresh = || {
                let mut processor = Processor::new(0, 2, None);
                for (i, &demand) in demands.iter().enumerate() {
                    processor.enter(i, demand);
                }
                processor
            };
            let (mut leap, mut steps) = (Vec::new(), Vec::new());
            fresh().advance(10_000_000_000, &mut leap);
            let mut processor = fresh();
            let mut cuts = cuts;
            cuts.sort_unstable();
            for cut in cuts {
                processor.advance(cut, &mut steps);
            }
            processor.advance(10_000_000_000, &mut steps);
            prop_assert_eq!(leap.len(), steps.len());
            for (a, b) in leap.iter().zip(&steps) {
                prop_assert!(a.0 == b.0 && a.1.abs_diff(b.1) <= 1, "{:?} against {:?}", a, b);
            }
        }
    }
}
