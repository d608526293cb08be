//! CPUs of a node, shared by classes in proportion to their shares.
//!
//! Source: resource containers and their equivalents (Aron, Druschel and Zwaenepoel, *Cluster Reserves*,
//! SIGMETRICS 2000, Sec. 2.2; cgroups). A class that asks for CPU time gets at least its share of the node.
//! CPU time that other classes leave unused is divided in proportion to the shares. Here the sharing is
//! exact at every instant (generalised processor sharing, Parekh and Gallager 1993), without quanta or
//! lotteries. A class uses at most as many CPUs as it has requests. Within a class all requests are equal,
//! as in [`Processor`].
//!
//! With one class this is one [`Processor`] and costs no more. With several classes nothing thrashes,
//! because the shares do not cover memory.

use crate::processor::{Processor, Thrashing};

/// Share that stands in for a share of zero, so that such a class still runs on left-over CPU time.
const NEXT_TO_NOTHING: f64 = 1e-6;

/// k CPUs shared by classes of requests. `T` identifies a request.
#[derive(Debug)]
pub(crate) struct Cpus<T> {
    cpus: u32,
    speed: f64,
    shares: Vec<f64>,
    /// One processor per share.
    classes: Vec<Processor<T>>,
}

impl<T> Cpus<T> {
    /// Idle CPUs at instant `now`, without classes.
    pub(crate) fn new(now: u64, cpus: u32, thrashing: Option<Thrashing>) -> Cpus<T> {
        Cpus { cpus, speed: 1.0, shares: vec![1.0], classes: vec![Processor::new(now, cpus, thrashing)] }
    }

    /// Idle CPUs at instant `now`, with one class per share.
    pub(crate) fn shared(now: u64, cpus: u32, shares: &[f64]) -> Cpus<T> {
        let classes = shares.iter().map(|_| Processor::new(now, cpus, None)).collect();
        Cpus { cpus, speed: 1.0, shares: shares.to_vec(), classes }
    }

    /// CPU-nanoseconds during which CPUs were occupied.
    pub(crate) fn busy(&self) -> f64 {
        match self.classes.as_slice() {
            [one] => one.busy(),
            // Counts the work done at nominal speed, because the number of CPUs of each class is not recorded.
            all => all.iter().map(Processor::done).sum(),
        }
    }

    /// The value of [`Cpus::busy`] at instant `at`, if nothing enters or leaves before it.
    pub(crate) fn busy_at(&self, at: u64) -> f64 {
        match self.classes.as_slice() {
            [one] => one.busy_at(at),
            all => all.iter().map(|class| class.done_at(at)).sum(),
        }
    }

    /// Nanoseconds of nominal CPU time handed out.
    pub(crate) fn done(&self) -> f64 {
        self.classes.iter().map(Processor::done).sum()
    }

    /// Nanoseconds of nominal CPU time handed out to each class.
    pub(crate) fn done_of(&self) -> impl Iterator<Item = f64> + '_ {
        self.classes.iter().map(Processor::done)
    }

    pub(crate) fn set_beside(&mut self, count: usize) {
        if let [one] = self.classes.as_mut_slice() {
            one.set_beside(count);
        }
    }

    pub(crate) fn set_speed(&mut self, speed: f64) {
        self.speed = speed.max(0.0);
        self.divide();
    }

    pub(crate) fn set_shares(&mut self, shares: &[f64]) {
        self.shares.copy_from_slice(shares);
        self.divide();
    }

    /// Adds a request of a class. A class number out of range means the last class.
    pub(crate) fn enter(&mut self, class: u32, what: T, demand: u64) {
        let class = (class as usize).min(self.classes.len() - 1);
        self.classes[class].enter(what, demand);
        self.divide();
    }

    pub(crate) fn next_departure(&self) -> Option<u64> {
        self.classes.iter().filter_map(Processor::next_departure).min()
    }

    pub(crate) fn coast(&mut self, to: u64) {
        for class in &mut self.classes {
            class.coast(to);
        }
    }

    pub(crate) fn advance(&mut self, to: u64, left: &mut Vec<(T, u64)>) {
        if let [one] = self.classes.as_mut_slice() {
            return one.advance(to, left);
        }
        // Advances one departure at a time, because a departure from one class speeds up the others.
        while let Some(at) = self.next_departure()
            && at <= to
        {
            for class in &mut self.classes {
                class.advance(at, left);
            }
            self.divide();
        }
        for class in &mut self.classes {
            class.advance(to, left);
        }
    }

    pub(crate) fn remove(&mut self, mut is_it: impl FnMut(&T) -> bool) -> bool {
        let found = self.classes.iter_mut().any(|class| class.remove(&mut is_it));
        self.divide();
        found
    }

    pub(crate) fn clear(&mut self) {
        for class in &mut self.classes {
            class.clear();
        }
    }

    /// Gives each class its part of the CPUs by its share, but no more CPUs than it has requests. CPUs that
    /// a class cannot use go to the other classes by their shares.
    fn divide(&mut self) {
        if let [one] = self.classes.as_mut_slice() {
            return one.set_speed(self.speed);
        }
        let max = |class: &Processor<T>| class.len().min(self.cpus as usize) as f64;
        let mut left = f64::from(self.cpus);
        let mut open: f64 = self
            .classes
            .iter()
            .zip(&self.shares)
            .filter(|(c, _)| !c.is_empty())
            .map(|(_, s)| s.max(NEXT_TO_NOTHING))
            .sum();
        let mut given = vec![None; self.classes.len()];
        // A class that can use less than its part gets as much as it can use. The parts of the others then grow.
        loop {
            let mut all_fit = true;
            for (index, (class, share)) in self.classes.iter().zip(&self.shares).enumerate() {
                let share = share.max(NEXT_TO_NOTHING);
                let max = max(class);
                if given[index].is_none() && max > 0.0 && left * share / open > max {
                    given[index] = Some(max);
                    left -= max;
                    open -= share;
                    all_fit = false;
                }
            }
            if all_fit {
                break;
            }
        }
        for (index, class) in self.classes.iter_mut().enumerate() {
            let max = class.len().min(self.cpus as usize) as f64;
            let part = given[index].unwrap_or(left * self.shares[index].max(NEXT_TO_NOTHING) / open);
            class.set_speed(if max > 0.0 { self.speed * (part / max).min(1.0) } else { 0.0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn classes_get_their_shares_and_what_others_leave() {
        let mut cpus = Cpus::shared(0, 1, &[1.0, 3.0]);
        let mut left = Vec::new();
        cpus.enter(0, 'a', 10 * MS);
        cpus.advance(2 * MS, &mut left);
        // Alone, it had the whole CPU: 8 ms are left. Then it has a quarter, next to 6 ms of class 1, until 10 ms.
        cpus.enter(1, 'b', 6 * MS);
        cpus.advance(100 * MS, &mut left);
        assert_eq!(left, [('b', 10 * MS), ('a', 16 * MS)]);
        assert_eq!(cpus.done_of().collect::<Vec<_>>(), [10e6, 6e6]);
    }

    #[test]
    fn one_request_uses_one_cpu_whatever_its_share() {
        let mut cpus = Cpus::shared(0, 2, &[9.0, 1.0]);
        let mut left = Vec::new();
        cpus.enter(0, 0, 10 * MS);
        for request in 1..=2 {
            cpus.enter(1, request, 10 * MS);
        }
        cpus.advance(100 * MS, &mut left);
        // The two requests of class 1 share the other CPU until 10 ms, and then have both CPUs.
        assert_eq!(left, [(0, 10 * MS), (1, 15 * MS), (2, 15 * MS)]);
    }

    #[test]
    fn new_shares_hold_from_then_on() {
        let mut cpus = Cpus::shared(0, 1, &[1.0, 1.0]);
        let mut left = Vec::new();
        cpus.enter(0, 0, 100 * MS);
        cpus.enter(1, 1, 100 * MS);
        cpus.advance(20 * MS, &mut left);
        cpus.set_shares(&[9.0, 1.0]);
        cpus.advance(30 * MS, &mut left);
        let done: Vec<u64> = cpus.done_of().map(|done| done.round() as u64).collect();
        assert_eq!(done, [19 * MS, 11 * MS]);
    }

    proptest! {
        /// No CPU is idle while there is work for it, and no class with enough work has less than its share.
        #[test]
        fn work_is_conserved_and_shares_are_kept(
            cpus in 1u32..4,
            classes in prop::collection::vec((1u32..10, 0usize..5), 1..5),
        ) {
            let shares: Vec<f64> = classes.iter().map(|(share, _)| f64::from(*share)).collect();
            let mut node = Cpus::shared(0, cpus, &shares);
            for (class, (_, requests)) in classes.iter().enumerate() {
                for request in 0..*requests {
                    node.enter(class as u32, request, 1000 * MS);
                }
            }
            node.coast(10 * MS);
            let done: Vec<f64> = node.done_of().map(|done| done / (10.0 * MS as f64)).collect();
            let wanted: f64 = classes.iter().map(|(_, requests)| *requests as f64).sum();
            let whole: f64 = done.iter().sum();
            prop_assert!((whole - wanted.min(f64::from(cpus))).abs() < 1e-6, "{:?}", done);
            let active: f64 = classes.iter().filter(|(_, n)| *n > 0).map(|(share, _)| f64::from(*share)).sum();
            for ((share, requests), done) in classes.iter().zip(&done) {
                let due = (f64::from(cpus) * f64::from(*share) / active).min(*requests as f64);
                prop_assert!(*requests == 0 || *done >= due - 1e-6, "{} of {}", done, due);
            }
        }
    }
}
