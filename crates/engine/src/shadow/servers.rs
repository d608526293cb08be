//! The nodes of the shadow: machines that work as fast as the real ones could.
//!
//! Source: processor sharing (Kleinrock 1967): all requests on a machine get the same share of it, and a request alone
//! takes its service time. What the machine can do is an account, which requests of the shadow use up:
//! - If its capacity and the service times of all classes are declared, it earns the capacity, as long as the real
//!   machine has that many requests in flight.
//! - Otherwise it earns what the real machine has shown to do: each real answer is worth its service time. Servers
//!   that work on all requests at once finish fewer while they are overloaded, if all cost the same: down to 70 % at
//!   1.4 times their capacity. So declared figures are better.
//!
//! A real machine with nothing in flight is idle. Then requests of the shadow on it take their service times.

use crate::heap::Heaps;
use crate::index::{MachineId, Table};
use crate::time::Time;

/// Requests of which a machine may have saved the work. A machine whose requests end at random times has idle moments
/// in the account that a real one has not: with 32 places a queue at capacity (M/D/1) loses 1.6 % of its work. With
/// more, a shadow would work too fast for longer after a surge.
const SAVED: f64 = 32.0;

/// Nanoseconds in which a machine shows its speed. The mean of some hundred answers varies by a few percent.
const PERIOD: u64 = 2_000_000_000;

/// Part of the learned speed that is forgotten in a period without a better one: half of it in five minutes.
const FADING: f64 = 0.005;

/// Nanoseconds after which a request does not end by itself: thirty years.
const MAX_WAIT: f64 = 1e18;

/// The work of a real machine, as far as its answers show it.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Number of the present period, and nanoseconds of service of whole answers in it.
    period: u64,
    done: f64,
    /// The most service per time that a period has shown. Fades by [`FADING`] a period.
    learned: f64,
    /// Nanoseconds of service that it could have done at that speed and that were not earned, at `at`.
    room: f64,
    at: u64,
}

impl Pace {
    /// Returns the earnings of a request of `work`. The work done for one that ended early is unknown, so the speed
    /// bounds the sum of those.
    fn earns(&mut self, now: Time, work: f64, whole: bool) -> f64 {
        let (now, period) = (now.as_nanos(), now.as_nanos() / PERIOD);
        let passed = period.saturating_sub(self.period);
        if passed > 0 {
            let faded = self.learned * (1.0 - FADING).powi(passed.min(1_000) as i32);
            self.learned = faded.max(self.done / PERIOD as f64);
            (self.period, self.done) = (period, 0.0);
        }
        let most = self.learned * PERIOD as f64;
        self.room = (self.room + self.learned * now.saturating_sub(self.at) as f64).min(most);
        self.at = self.at.max(now);
        let earned = if whole { work } else { work.min(self.room).max(0.0) };
        self.done += if whole { work } else { 0.0 };
        self.room = (self.room - earned).max(-most);
        earned
    }
}

/// One machine. Work is in nanoseconds of service.
#[derive(Clone, Debug)]
struct Server {
    /// The state is that of this instant.
    at: Time,
    /// Work that a request would have received that was there from the start.
    attained: f64,
    /// Work that was earned and not used.
    saved: f64,
    /// Requests in flight on the real machine.
    in_flight: u32,
    capacity: Option<f64>,
    pace: Pace,
}

impl Server {
    /// Work that it earns per time without answers.
    fn earning(&self) -> f64 {
        self.capacity.map_or(0.0, |capacity| capacity.min(f64::from(self.in_flight)))
    }

    /// Time until a debt is paid. Nothing is served before.
    fn stalled(&self) -> f64 {
        if self.in_flight == 0 || self.saved >= 0.0 { 0.0 } else { -self.saved / self.earning() }
    }

    /// Time after that for which `requests` get all that they can use.
    fn unhindered(&self, requests: f64) -> f64 {
        let lacks = requests - self.earning();
        if self.in_flight == 0 || lacks <= 0.0 { f64::INFINITY } else { self.saved.max(0.0) / lacks }
    }

    /// Time until `requests` have received `work` each. Infinite or NaN if they never will.
    fn time_for(&self, work: f64, requests: f64) -> f64 {
        let first = self.unhindered(requests);
        let serving = if work <= first { work } else { first + (work - first) * requests / self.earning() };
        self.stalled() + serving
    }

    /// Brings it up to `now`, with this number of requests, none of which ends before.
    fn run(&mut self, now: Time, requests: f64) {
        let passed = now.as_nanos().saturating_sub(self.at.as_nanos()) as f64;
        self.at = self.at.max(now);
        let serving = passed - self.stalled().min(passed);
        let first = serving.min(self.unhindered(requests));
        let rest = if serving > first { (serving - first) * self.earning() / requests } else { 0.0 };
        let served = if requests > 0.0 { first + rest } else { 0.0 };
        self.attained += served;
        if self.in_flight > 0 {
            self.saved += self.earning() * passed - served * requests;
        }
        if self.capacity.is_some() {
            // A capacity that is not used at once is lost.
            self.saved = self.saved.min(0.0);
        }
    }
}

/// All machines of the shadow. Requests are named by small numbers.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    machines: Table<MachineId, Server>,
    /// Requests per machine by the attained work at which they end.
    ends: Heaps<f64>,
    /// Machines by the time at which their next request ends.
    due: Heaps<Time, MachineId>,
}

impl Servers {
    /// Machines with these declared capacities.
    pub(super) fn new(now: Time, capacities: impl Iterator<Item = Option<f64>>) -> Servers {
        let server =
            |capacity| Server { at: now, attained: 0.0, saved: 0.0, in_flight: 0, capacity, pace: Pace::default() };
        let machines: Table<MachineId, Server> = capacities.map(server).collect();
        let count = machines.len();
        Servers { machines, ends: Heaps::new(count, 0), due: Heaps::new(1, count) }
    }

    /// The machine with the next request that ends, and its time.
    pub(super) fn next(&self) -> Option<(Time, MachineId)> {
        self.due.peek(0)
    }

    /// A request of `work` begins.
    pub(super) fn enter(&mut self, now: Time, machine: MachineId, request: u32, work: f64) {
        self.run(now, machine);
        self.ends.grow(request as usize + 1);
        self.ends.set(machine.0 as usize, request, self.machines[machine].attained + work);
        self.plan(machine);
    }

    /// The first request of a machine ends.
    pub(super) fn finish(&mut self, now: Time, machine: MachineId) -> Option<u32> {
        self.run(now, machine);
        let (_, request) = self.ends.peek(machine.0 as usize)?;
        self.ends.remove(machine.0 as usize, request);
        self.plan(machine);
        Some(request)
    }

    /// A request ends early. If it is `served`, it uses its whole work.
    pub(super) fn remove(&mut self, now: Time, machine: MachineId, request: u32, served: bool) {
        let left = self.left(now, machine, request);
        self.ends.remove(machine.0 as usize, request);
        let server = &mut self.machines[machine];
        if served && server.in_flight > 0 {
            server.saved = (server.saved - left).max(server.saved.min(-left * SAVED));
        }
        self.plan(machine);
    }

    /// Work that a request still needs.
    pub(super) fn left(&mut self, now: Time, machine: MachineId, request: u32) -> f64 {
        self.run(now, machine);
        let end = self.ends.key(machine.0 as usize, request);
        end.map_or(0.0, |end| (end - self.machines[machine].attained).max(0.0))
    }

    /// A real request of `work` has ended on the machine, `whole` or early.
    pub(super) fn answered(&mut self, now: Time, machine: MachineId, work: f64, whole: bool) {
        self.run(now, machine);
        let server = &mut self.machines[machine];
        if server.capacity.is_none() {
            let earned = server.pace.earns(now, work, whole);
            server.saved = (server.saved + earned).min(server.saved.max(work * SAVED));
            self.plan(machine);
        }
    }

    /// Notes the number of requests in flight on the real machine.
    pub(super) fn carries(&mut self, now: Time, machine: MachineId, in_flight: u32) {
        self.run(now, machine);
        let server = &mut self.machines[machine];
        if in_flight == 0 || server.in_flight == 0 {
            server.saved = server.saved.max(0.0);
        }
        server.in_flight = in_flight;
        self.plan(machine);
    }

    /// Notes the capacity of a machine.
    pub(super) fn set_capacity(&mut self, now: Time, machine: MachineId, capacity: Option<f64>) {
        self.run(now, machine);
        self.machines[machine].capacity = capacity;
        self.plan(machine);
    }

    /// Brings a machine up to `now`.
    fn run(&mut self, now: Time, machine: MachineId) {
        let requests = self.ends.items(machine.0 as usize).len() as f64;
        self.machines[machine].run(now, requests);
    }

    /// Updates the time at which the next request of a machine ends.
    fn plan(&mut self, machine: MachineId) {
        let server = &self.machines[machine];
        let requests = self.ends.items(machine.0 as usize).len() as f64;
        let Some((end, _)) = self.ends.peek(machine.0 as usize) else { return self.due.remove(0, machine) };
        let wait = server.time_for((end - server.attained).max(0.0), requests);
        if wait < MAX_WAIT {
            let at = server.at.as_nanos().saturating_add(wait.ceil() as u64);
            self.due.set(0, machine, Time::from_nanos(at));
        } else {
            self.due.remove(0, machine);
        }
    }
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
