//! [`crate::Precedence::Reenqueue`]: a request that is not to be handled yet goes back to the end of the
//! queue.
//!
//! Source: Le Baron and Elkan, Secs. 3.3 and 4.3. A stage goes through its queue in the order of arrival.
//! The priority of a request decides whether the request is handled or put back. Putting it back may change
//! its priority, by the table (priority, put back) → priority, and the request asks for admission again
//! under its new priority. The published table puts basic requests back once. The paper's strict policy puts
//! back while a greater rank waits, and its random policy by chance. Both are available: see [`Handle`].
//!
//! A queue in which no request is to be handled would rotate for ever while a node is idle. So a request is
//! passed over at most once per release. After that the next one is handled. Under the published table no
//! request is ever passed over twice, and putting back costs each basic request O(log classes) once. Under
//! the other two policies a release costs up to as many steps as requests wait, which the thresholds bound.
//!
//! The other action of the paper's table, handling, needs no new priority here, because a handled request
//! leaves the only queue. See `docs/adr/0007-priorities-do-not-order-replies.md`. The order is that of arrival
//! ([`super::fifo`]): a request that was put back counts as a new arrival.

use super::SchedulerView;
use crate::discipline::Handle;
use crate::random::Random;

/// The new SEDA priority of the next request if it is put back. `None` if it is handled.
pub(super) fn puts_back(view: &SchedulerView<'_>, head: u32, random: &mut Random) -> Option<u32> {
    let entry = &view.tickets[head];
    let priorities = &view.policy.discipline.priorities;
    let priority = priorities.get(entry.code as usize)?;
    let put_back = match priority.handle {
        Handle::Always => false,
        Handle::Never => true,
        Handle::Highest => {
            let partition = view.classes[entry.class].partition;
            let waiting = view.queues.by_priority(partition).iter().zip(priorities);
            waiting.filter(|(count, _)| **count > 0).any(|(_, other)| other.rank > priority.rank)
        }
        Handle::Chance(chance) => random.unit() >= chance,
    };
    put_back.then_some(priority.reenqueued)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use crate::discipline::{Admit, Discipline, Handle, PriorityLevel};
    use crate::engine::Engine;
    use crate::index::PartitionId;
    use crate::policy::{Class, Node, Policy, Pool};
    use crate::request::{Action, Arrival, ClassId, Decision, Outcome, ShedReason, Ticket};
    use crate::ticket::State;
    use crate::time::Time;

    fn policy(priorities: Vec<PriorityLevel>) -> Policy {
        let class = |name: &str, priority| Class { priority, ..Class::best_effort(name, 0) };
        let discipline = Discipline { admit: Admit::Thresholds { queue: 6 }, priorities, ..Discipline::seda() };
        let classes = vec![class("basic", 0), class("premium", 2)];
        Policy::of_one_pool(discipline, Pool::new("p"), vec![Node::new("n", 0)], classes)
    }

    /// Random arrivals and completions under the three ways to put requests back: priorities change only by
    /// the table, a basic request is admitted only below the threshold, and the counts per priority match
    /// the requests.
    #[test]
    fn priorities_move_along_the_table_and_thresholds_hold() {
        for (seed, handle) in [Handle::Never, Handle::Highest, Handle::Chance(0.4)].into_iter().enumerate() {
            let mut priorities = PriorityLevel::seda();
            priorities[0].handle = handle;
            let mut engine = Engine::new(Time::ZERO, policy(priorities), seed as u64).expect("a valid policy");
            let mut source = crate::random::Random::new(40 + seed as u64);
            let mut codes: BTreeMap<(usize, u32), u32> = BTreeMap::new();
            let mut in_flight: Vec<Ticket> = Vec::new();
            let (mut moved, mut refused) = (0, 0);
            for step in 0..20_000u64 {
                let now = Time::from_millis(step);
                if source.below(5) < 3 {
                    let class = ClassId(source.below(2) as u32);
                    let before = engine.queues.waiting;
                    match engine.arrive(
                        now,
                        Arrival { class, flow: step, demand: None, locality_key: None, position: 0, token: step },
                    ) {
                        Decision::Wait { .. } => assert!(before < [6, 12][class.0 as usize], "{class:?} at {before}"),
                        Decision::Release { ticket, .. } => in_flight.push(ticket),
                        Decision::Shed(shed) => {
                            assert_eq!(shed.reason, ShedReason::Threshold);
                            assert!(before >= [6, 12][class.0 as usize], "{class:?} at {before}");
                            refused += 1;
                        }
                    }
                } else if let Some(ticket) = in_flight.pop() {
                    engine.observe(now, ticket, Outcome::LastByte { status: 200 });
                }
                while let Some(action) = engine.poll(now) {
                    if let Action::Release { ticket, .. } = action {
                        in_flight.push(ticket);
                    }
                }
                let mut counts = [0; 3];
                for (index, entry) in engine.tickets.entries.iter().enumerate() {
                    let ticket = (index, entry.generation);
                    if entry.state != State::Waiting {
                        codes.remove(&ticket);
                        continue;
                    }
                    counts[entry.code as usize] += 1;
                    let Some(code) = codes.insert(ticket, entry.code) else { continue };
                    assert!(code == entry.code || (code, entry.code) == (0, 1), "{code} became {}", entry.code);
                    moved += u32::from(code != entry.code);
                }
                assert_eq!(engine.queues.by_priority(PartitionId(0)), counts);
            }
            assert!(moved > 100 && refused > 1000, "{handle:?}: {moved} moved, {refused} refused");
        }
    }

    /// No request waits for an absent premium request, whatever the table says.
    #[test]
    fn a_node_is_never_idle_while_a_request_waits() {
        for handle in [Handle::Never, Handle::Highest, Handle::Chance(0.0)] {
            let mut priorities = PriorityLevel::seda();
            // Put back without a change, and for ever without the bound on a round.
            (priorities[0].handle, priorities[0].reenqueued) = (handle, u32::from(handle == Handle::Never));
            let mut engine = Engine::new(Time::ZERO, policy(priorities), 1).expect("a valid policy");
            let arrival =
                |token| Arrival { class: ClassId(0), flow: 0, demand: None, locality_key: None, position: 0, token };
            let Decision::Release { ticket, .. } = engine.arrive(Time::ZERO, arrival(0)) else { panic!("it is idle") };
            for token in 1..=3 {
                assert!(matches!(engine.arrive(Time::ZERO, arrival(token)), Decision::Wait { .. }));
            }
            let end = Time::ZERO + Duration::from_millis(20);
            engine.observe(end, ticket, Outcome::LastByte { status: 200 });
            assert!(matches!(engine.poll(end), Some(Action::Release { token: 1, .. })), "{handle:?}");
        }
    }
}
