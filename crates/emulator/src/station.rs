//! Service of requests at an emulated node, with the time passed in.
//!
//! While the node is at its concurrency limit, a request waits in the node's own queue (as in the backlog
//! of an Apache with all its workers busy). It then shares the CPUs, and then waits for I/O, a pure delay
//! (a database or a disk that is never the bottleneck). It counts as in service, and keeps its worker,
//! until its I/O is done. A streaming reply begins then. It sends keep-alive bytes and keeps the worker
//! until it ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::cpus::Cpus;
use crate::processor::Thrashing;

/// Demand of a request, in nanoseconds. A station serves only CPU time, delay and stream. Disk and link
/// belong to the [`crate::computer::Computer`] around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Demand {
    /// CPU time.
    pub cpu: u64,
    /// Delay after the CPU time.
    pub io: u64,
    /// Time of an otherwise idle disk, before the CPU time.
    pub disk: u64,
    /// Time of an otherwise idle link, after everything else.
    pub link: u64,
    /// Time for which the reply streams after the delay. Its first byte is sent at once.
    pub stream: u64,
}

/// Nanoseconds between two keep-alive bytes of a streaming reply. This is the interval that the HTML
/// Standard advises for event streams (Sec. 9.2.7: "a comment line every 15 seconds or so"), so that no
/// intermediary takes the connection for dead.
pub const BEAT: u64 = 15_000_000_000;

/// Workers, CPUs and queue of a node.
#[derive(Debug)]
pub struct Station {
    limit: usize,
    waiting: VecDeque<(u64, u32, Demand)>,
    /// CPUs, with the id and the delays of each request.
    cpus: Cpus<(u64, Beside)>,
    /// Instant at which the delay of a request ends or its stream sends a keep-alive byte, its id, and the
    /// rest of its stream.
    io: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Replies that have begun or sent a keep-alive byte, with the instant.
    begun: Vec<(u64, u64)>,
    in_flight: usize,
    /// Nanoseconds for which requests have held workers, up to `now`.
    held: f64,
    now: u64,
    stalled: bool,
    left_cpus: Vec<((u64, Beside), u64)>,
}

/// Times during which a request needs no CPU, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Beside {
    io: u64,
    stream: u64,
}

impl Station {
    /// An empty station at instant `now` that serves at most `limit` requests at once. `None` means no limit.
    pub fn new(now: u64, cpus: u32, limit: Option<u32>, thrashing: Option<Thrashing>) -> Station {
        Station {
            limit: limit.map_or(usize::MAX, |l| l as usize),
            waiting: VecDeque::new(),
            cpus: Cpus::new(now, cpus, thrashing),
            io: BinaryHeap::new(),
            begun: Vec::new(),
            in_flight: 0,
            held: 0.0,
            now,
            stalled: false,
            left_cpus: Vec::new(),
        }
    }

    /// An empty station with CPUs shared by classes, one class for each share. It does not thrash.
    pub fn shared(now: u64, cpus: u32, limit: Option<u32>, shares: &[f64]) -> Station {
        Station { cpus: Cpus::shared(now, cpus, shares), ..Station::new(now, cpus, limit, None) }
    }

    /// Sets the shares of the classes. Call [`Station::advance`] to the present first.
    ///
    /// # Panics
    /// If the number of shares changes.
    pub fn set_shares(&mut self, shares: &[f64]) {
        self.cpus.set_shares(shares);
    }

    /// Completed part of the demands by class. See [`Station::done`].
    pub fn done_of(&self) -> impl Iterator<Item = f64> + '_ {
        self.cpus.done_of()
    }

    /// Requests that have a worker.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Requests that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// CPU-nanoseconds during which CPUs were occupied.
    pub fn busy(&self) -> f64 {
        self.cpus.busy()
    }

    /// Nanoseconds of nominal CPU time handed out, which is the completed part of the demands.
    pub fn done(&self) -> f64 {
        self.cpus.done()
    }

    /// The value of [`Station::busy`] at instant `at`, if nothing happens here before it. The station
    /// itself does not advance.
    pub fn busy_at(&self, at: u64) -> f64 {
        self.cpus.busy_at(at)
    }

    /// Nanoseconds for which requests have held workers until `at`, under the same condition.
    pub fn held_at(&self, at: u64) -> f64 {
        self.held + at.saturating_sub(self.now) as f64 * self.in_flight as f64
    }

    /// Adds request `id`. Call [`Station::advance`] to the present first.
    pub fn arrive(&mut self, id: u64, demand: Demand) {
        self.arrive_of(0, id, demand);
    }

    /// Adds request `id` of a class. Call [`Station::advance`] to the present first.
    pub fn arrive_of(&mut self, class: u32, id: u64, demand: Demand) {
        match self.in_flight < self.limit {
            true => self.start(id, class, demand),
            false => self.waiting.push_back((id, class, demand)),
        }
    }

    /// Instant of the next event that needs no input.
    pub fn next_event(&self) -> Option<u64> {
        if self.stalled {
            return None;
        }
        let io = self.io.peek().map(|Reverse((at, ..))| (*at).max(self.now));
        self.cpus.next_departure().into_iter().chain(io).min()
    }

    /// Advances to `to` and appends the finished requests with their instants, in order.
    pub fn advance(&mut self, to: u64, finished: &mut Vec<(u64, u64)>) {
        while let Some(at) = self.next_event()
            && at <= to
        {
            self.pass(at);
            let before = finished.len();
            self.cpus.advance(at, &mut self.left_cpus);
            for ((id, Beside { io, stream }), _) in self.left_cpus.drain(..) {
                self.io.push(Reverse((at + io, id, stream)));
            }
            while let Some(&Reverse((end, id, left))) = self.io.peek()
                && end <= at
            {
                self.io.pop();
                if left == 0 {
                    finished.push((id, at));
                } else {
                    self.begun.push((id, at));
                    let next = left.min(BEAT);
                    self.io.push(Reverse((at + next, id, left - next)));
                }
            }
            self.in_flight -= finished.len() - before;
            self.cpus.set_beside(self.io.len());
            self.fill();
        }
        self.pass(to);
        // Nothing leaves in this last interval. It only hands out service.
        self.cpus.coast(to);
    }

    /// Takes the ids of replies that have sent their first byte, or a keep-alive byte, since the last call,
    /// with the instants.
    pub fn begun(&mut self) -> std::vec::Drain<'_, (u64, u64)> {
        self.begun.drain(..)
    }

    /// Whether [`Station::begun`] would return any id.
    pub fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Sets the speed. 1 is nominal. 0 stalls the CPUs and holds back requests that have finished their I/O.
    pub fn set_speed(&mut self, speed: f64) {
        self.stalled = speed <= 0.0;
        self.cpus.set_speed(speed);
    }

    /// Removes request `id`, which has been abandoned, at whatever stage it is. Returns `false` if it is
    /// not here. Call [`Station::advance`] to the present first. Costs O(n).
    pub fn remove(&mut self, id: u64) -> bool {
        if let Some(place) = self.waiting.iter().position(|(waiting, ..)| *waiting == id) {
            self.waiting.remove(place);
            return true;
        }
        let in_io = self.io.len();
        self.io.retain(|Reverse((_, other, _))| *other != id);
        if self.io.len() == in_io && !self.cpus.remove(|(other, _)| *other == id) {
            return false;
        }
        self.in_flight -= 1;
        self.cpus.set_beside(self.io.len());
        self.fill();
        true
    }

    /// Removes all requests, in service and waiting.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.cpus.clear();
        self.io.clear();
        self.begun.clear();
        self.cpus.set_beside(0);
        self.in_flight = 0;
    }

    /// Advances the time to `to`. No worker may be taken or returned before it.
    fn pass(&mut self, to: u64) {
        self.held = self.held_at(to);
        self.now = self.now.max(to);
    }

    /// Gives free workers to waiting requests.
    fn fill(&mut self) {
        while self.in_flight < self.limit
            && let Some((id, class, demand)) = self.waiting.pop_front()
        {
            self.start(id, class, demand);
        }
    }

    fn start(&mut self, id: u64, class: u32, demand: Demand) {
        self.in_flight += 1;
        self.cpus.enter(class, (id, Beside { io: demand.io, stream: demand.stream }), demand.cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MS: u64 = 1_000_000;

    fn finish(station: &mut Station) -> Vec<(u64, u64)> {
        let mut finished = Vec::new();
        while let Some(at) = station.next_event() {
            station.advance(at, &mut finished);
        }
        finished
    }

    fn demand(cpu: u64, io: u64) -> Demand {
        Demand { cpu: cpu * MS, io: io * MS, ..Demand::default() }
    }

    #[test]
    fn io_takes_no_cpu() {
        let mut station = Station::new(0, 1, None, None);
        station.arrive(1, demand(4, 20));
        station.arrive(2, demand(4, 0));
        // Both share the CPU until 8 ms. Then request 1 only waits.
        assert_eq!(finish(&mut station), [(2, 8 * MS), (1, 28 * MS)]);
        assert_eq!(station.busy(), 8e6);
    }

    #[test]
    fn a_limit_makes_a_queue_in_order_of_arrival() {
        let mut station = Station::new(0, 2, Some(1), None);
        for id in 1..=3 {
            station.arrive(id, demand(5, 1));
        }
        assert_eq!((station.in_flight(), station.waiting()), (1, 2));
        // The worker is held during I/O, so each takes 6 ms although a CPU is free.
        assert_eq!(finish(&mut station), [(1, 6 * MS), (2, 12 * MS), (3, 18 * MS)]);
        assert_eq!((station.in_flight(), station.waiting()), (0, 0));
    }

    #[test]
    fn the_queue_moves_at_the_instant_of_the_departure_even_if_not_polled() {
        let mut station = Station::new(0, 1, Some(1), None);
        station.arrive(1, demand(5, 0));
        station.arrive(2, demand(5, 0));
        let mut finished = Vec::new();
        station.advance(100 * MS, &mut finished);
        assert_eq!(finished, [(1, 5 * MS), (2, 10 * MS)]);
    }

    #[test]
    fn a_stall_holds_everything_and_loses_nothing() {
        let mut station = Station::new(0, 1, None, None);
        station.arrive(1, demand(0, 5));
        station.arrive(2, demand(10, 0));
        let mut finished = Vec::new();
        station.advance(4 * MS, &mut finished);
        station.set_speed(0.0);
        assert_eq!(station.next_event(), None);
        station.advance(50 * MS, &mut finished);
        assert!(finished.is_empty());
        station.set_speed(1.0);
        assert_eq!(finish(&mut station), [(1, 50 * MS), (2, 56 * MS)]);
    }

    #[test]
    fn a_request_in_io_counts_for_thrashing() {
        let mut station = Station::new(0, 2, None, Some(Thrashing { beyond: 1, penalty: 1.0 }));
        station.arrive(1, demand(4, 100));
        let mut finished = Vec::new();
        station.advance(4 * MS, &mut finished);
        // Request 1 waits for I/O. Because it counts as in service, request 2 runs at half speed.
        station.arrive(2, demand(4, 0));
        assert_eq!(finish(&mut station), [(2, 12 * MS), (1, 104 * MS)]);
    }

    #[test]
    fn one_that_is_given_up_makes_room_wherever_it_is() {
        let mut station = Station::new(0, 1, Some(2), None);
        station.arrive(1, demand(2, 50));
        for id in 2..=5 {
            station.arrive(id, demand(4, 0));
        }
        let mut finished = Vec::new();
        // 1 and 2 share the CPU until 4 ms. Then 1 is in I/O, and 2 alone has 2 ms left.
        station.advance(5 * MS, &mut finished);
        assert!(station.remove(4) && !station.remove(4), "waiting");
        assert!(station.remove(2), "at the CPU: 3 takes its worker");
        assert!(station.remove(1), "in I/O: 5 takes its worker");
        assert_eq!((station.in_flight(), station.waiting()), (2, 0));
        assert_eq!(finish(&mut station), [(3, 13 * MS), (5, 13 * MS)]);
    }

    #[test]
    fn a_crash_forgets() {
        let mut station = Station::new(0, 1, Some(1), None);
        station.arrive(1, demand(5, 0));
        station.arrive(2, demand(5, 0));
        station.clear();
        assert_eq!((station.in_flight(), station.waiting(), station.next_event()), (0, 0, None));
    }

    #[test]
    fn a_stream_shows_its_first_byte_and_signs_of_life_and_keeps_its_worker() {
        let mut station = Station::new(0, 1, Some(1), None);
        let second = clock::SECOND;
        station.arrive(1, Demand { stream: 40 * second, ..demand(4, 6) });
        station.arrive(2, demand(5, 0));
        let mut finished = Vec::new();
        station.advance(10 * MS, &mut finished);
        assert_eq!(station.begun().collect::<Vec<_>>(), [(1, 10 * MS)]);
        assert_eq!((station.in_flight(), station.waiting()), (1, 1));
        station.advance(39 * second, &mut finished);
        let beats = [15, 30].map(|at| (1, 10 * MS + at * second));
        assert_eq!((station.begun().collect::<Vec<_>>(), finished.len()), (beats.to_vec(), 0));
        let end = 10 * MS + 40 * second;
        assert_eq!(finish(&mut station), [(1, end), (2, end + 5 * MS)]);
        assert!(!station.has_begun() && station.busy() == 9e6);
        station.arrive(3, Demand { stream: second, ..demand(0, 0) });
        station.advance(end + 6 * MS, &mut finished);
        assert!(station.remove(3), "amid its stream");
        assert_eq!((station.in_flight(), station.next_event()), (0, None));
    }
}
