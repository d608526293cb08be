//! Model of the computers of a node and of the node's faults. It receives the time as an argument.
//!
//! The computers receive requests in turn, regardless of their load. A computer refuses a request if all
//! its workers are busy and its queue is full. The faults of a node apply to all of its computers.

use std::collections::VecDeque;

use crate::computer::{Computer, Usage, Work};
use crate::node::{Health, NodeSpec};
use crate::random::Random;

/// Nanoseconds after which a failing node answers a request with an error: short enough to make it look
/// like the fastest node.
const FAILS_AFTER: u64 = 1_000_000;

/// Outcome of handing a request to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// The request will be finished.
    Taken,
    /// The request will be finished after a millisecond, and must be answered with 500.
    Failed,
    /// The request must be answered with 503, because the queue is full.
    Full,
}

/// Computers and faults of one node.
#[derive(Debug)]
pub struct Machine {
    computers: Vec<Computer>,
    /// CPUs of each computer.
    cpus: u32,
    /// Index of the computer that receives the next request.
    turn: usize,
    /// Maximum number of requests in a computer, including its queue.
    max: usize,
    nominal: f64,
    health: Health,
    random: Random,
    /// Failing requests with the instant at which each fails, in order.
    failing: VecDeque<(u64, u64)>,
    now: u64,
}

impl Machine {
    /// The machine described by `spec`, idle at instant `now`. `random` selects the requests that it fails.
    pub fn new(now: u64, spec: &NodeSpec, random: Random) -> Machine {
        let computer = || {
            let mut computer = Computer::new(now, spec.cpus, spec.concurrency, spec.thrashing);
            if let Some(disk) = spec.disk {
                computer = computer.with_disk(now, disk);
            }
            if let Some(bytes_per_s) = spec.bandwidth {
                computer = computer.with_link(now, bytes_per_s);
            }
            computer.set_speed(spec.speed);
            computer
        };
        Machine {
            computers: (0..spec.servers.max(1)).map(|_| computer()).collect(),
            cpus: spec.cpus,
            turn: 0,
            max: spec.concurrency.zip(spec.backlog).map_or(usize::MAX, |(c, b)| c as usize + b as usize),
            nominal: spec.speed,
            health: Health::WELL,
            random,
            failing: VecDeque::new(),
            now,
        }
    }

    /// Current faults of the machine.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Receives request `id`, which is of `class` if it states one. Call [`Machine::advance`] to the present first.
    pub fn receive(&mut self, id: u64, class: Option<&str>, work: Work) -> Reception {
        let next = (self.turn + 1) % self.computers.len();
        let computer = &mut self.computers[std::mem::replace(&mut self.turn, next)];
        let (stalled, fails) = (self.health.stalled, self.health.fails(class));
        if !stalled && fails > 0.0 && self.random.unit() < fails {
            self.failing.push_back((id, self.now + FAILS_AFTER));
            return Reception::Failed;
        }
        // A stalled node answers nothing, not even that it is full: requests pile up in its kernel.
        if !stalled && computer.in_flight() + computer.waiting() >= self.max {
            return Reception::Full;
        }
        computer.arrive(id, work);
        Reception::Taken
    }

    /// Instant of the next event that needs no input.
    pub fn next_event(&self) -> Option<u64> {
        let failing = self.failing.front().map(|(_, at)| *at);
        self.computers.iter().filter_map(Computer::next_event).chain(failing).min()
    }

    /// Advances to `to` and appends the finished requests with their instants, in order for each computer.
    pub fn advance(&mut self, to: u64, finished: &mut Vec<(u64, u64)>) {
        self.now = self.now.max(to);
        for computer in &mut self.computers {
            computer.advance(to, finished);
        }
        while let Some((_, at)) = self.failing.front()
            && *at <= to
        {
            finished.extend(self.failing.pop_front());
        }
    }

    /// Takes the ids of replies that have sent their first byte, or a keep-alive byte, since the last call.
    pub fn begun(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.computers.iter_mut().flat_map(|computer| computer.begun().map(|(id, _)| id))
    }

    /// Whether [`Machine::begun`] would return any id.
    pub fn has_begun(&self) -> bool {
        self.computers.iter().any(Computer::has_begun)
    }

    /// Sets the faults of the machine. Call [`Machine::advance`] to the present first.
    pub fn set_health(&mut self, health: Health) {
        let speed = if health.stalled { 0.0 } else { self.nominal * health.speed };
        for computer in &mut self.computers {
            computer.set_speed(speed);
            if health.crashed {
                computer.clear();
            }
        }
        if health.crashed {
            self.failing.clear();
        }
        self.health = health;
    }

    /// Removes request `id`, which has been abandoned. Call [`Machine::advance`] to the present first. Costs O(n).
    pub fn remove(&mut self, id: u64) {
        if !self.computers.iter_mut().any(|computer| computer.remove(id)) {
            self.failing.retain(|(other, _)| *other != id);
        }
    }

    /// Requests in service in all its computers.
    pub fn in_flight(&self) -> usize {
        self.computers.iter().map(Computer::in_flight).sum()
    }

    /// Requests that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.computers.iter().map(Computer::waiting).sum()
    }

    /// CPUs, disks and links of all its computers together, as the number of units that can be busy at once.
    pub fn capacity(&self) -> [u32; 3] {
        let computers = self.computers.len() as u32;
        [self.cpus * computers, computers, computers]
    }

    /// Resource usage, summed over all its computers. Call [`Machine::advance`] to the present first.
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for computer in &self.computers {
            sum += computer.usage();
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::station::Demand;

    const MS: u64 = 1_000_000;

    /// Two servers with one CPU of speed 2. Each has room for one request in service and one that waits.
    fn machine() -> Machine {
        let mut spec = NodeSpec::new("a", 1);
        (spec.servers, spec.speed, spec.concurrency, spec.backlog) = (2, 2.0, Some(1), Some(1));
        Machine::new(0, &spec, Random::new(1))
    }

    fn work() -> Work {
        Work { demand: Demand { cpu: 10 * MS, ..Demand::default() }, ..Work::default() }
    }

    fn finish(machine: &mut Machine) -> Vec<(u64, u64)> {
        let mut finished = Vec::new();
        while let Some(at) = machine.next_event() {
            machine.advance(at, &mut finished);
        }
        finished
    }

    #[test]
    fn computers_take_turns_and_are_full_one_by_one() {
        let mut machine = machine();
        let receptions: Vec<Reception> = (0..5).map(|id| machine.receive(id, None, work())).collect();
        assert_eq!(receptions, [[Reception::Taken; 4].as_slice(), &[Reception::Full]].concat());
        assert_eq!((machine.in_flight(), machine.waiting()), (2, 2));
        // Speed 2: 10 ms of work take 5 ms.
        assert_eq!(finish(&mut machine), [(0, 5 * MS), (1, 5 * MS), (2, 10 * MS), (3, 10 * MS)]);
        assert_eq!((machine.usage().busy, machine.usage().done), (20e6, 40e6));
    }

    #[test]
    fn a_stalled_machine_takes_everything_and_answers_it_afterwards() {
        let mut machine = machine();
        machine.set_health(Health { fails: 1.0, stalled: true, ..Health::WELL });
        for id in 0..9 {
            assert_eq!(machine.receive(id, None, work()), Reception::Taken);
        }
        assert_eq!(machine.next_event(), None);
        let mut finished = Vec::new();
        machine.advance(100 * MS, &mut finished);
        assert!(finished.is_empty());
        machine.set_health(Health { fails: 1.0, ..Health::WELL });
        assert_eq!(machine.receive(9, None, work()), Reception::Failed);
        let finished = finish(&mut machine);
        assert_eq!((finished.len(), finished[0]), (10, (9, 101 * MS)));
    }

    #[test]
    fn slowness_multiplies_the_nominal_speed_and_ends() {
        let mut machine = machine();
        machine.receive(0, None, work());
        machine.set_health(Health { speed: 0.25, ..Health::WELL });
        machine.advance(10 * MS, &mut Vec::new());
        machine.set_health(Health::WELL);
        // 10 ms at half the nominal speed completed 5 ms of work out of 10. The rest takes 2.5 ms at speed 2.
        assert_eq!(finish(&mut machine), [(0, 12_500_000)]);
    }

    #[test]
    fn a_share_of_requests_fails() {
        let mut machine = machine();
        machine.set_health(Health { fails: 0.3, ..Health::WELL });
        let failed = (0..10_000).filter(|id| machine.receive(*id, None, work()) == Reception::Failed).count();
        // Four standard deviations of a binomial count are 183.
        assert!(failed.abs_diff(3000) < 183, "{failed}");
    }

    #[test]
    fn a_share_of_the_requests_of_a_class_fails_and_no_others() {
        let mut machine = machine();
        let fails_of = vec![("gold".to_owned(), 0.3), ("none".to_owned(), 1.0)];
        machine.set_health(Health { fails_of, ..Health::WELL });
        let mut failed =
            |class| (0..10_000).filter(|id| machine.receive(*id, class, work()) == Reception::Failed).count();
        assert!(failed(Some("gold")).abs_diff(3000) < 183);
        assert_eq!([failed(Some("silver")), failed(None), failed(Some("none"))], [0, 0, 10_000]);
    }

    #[test]
    fn a_crash_forgets_all_and_leaves_the_account() {
        let mut machine = machine();
        machine.receive(0, None, work());
        machine.advance(2 * MS, &mut Vec::new());
        machine.set_health(Health { crashed: true, ..Health::WELL });
        assert_eq!((machine.in_flight(), machine.next_event(), machine.usage().done), (0, None, 4e6));
        machine.set_health(Health::WELL);
        machine.receive(1, None, work());
        machine.remove(1);
        assert_eq!((machine.in_flight(), machine.next_event()), (0, None));
    }
}
