//! [`crate::Admit::Thresholds`]: a queue that is harder to enter the longer it is, depending on the
//! request's SEDA priority.
//!
//! Source: Le Baron and Elkan, *A New Architecture for Differentiated Quality of Services in Web
//! Applications*, Sec. 4.2. A request is admitted while fewer requests wait than its priority's multiple of
//! the threshold: i, 3i/2 and 2i for the three published priorities. Here any number of priorities is
//! possible. The paper's other options are available as well: a *numerus clausus* (maximum number of waiting
//! requests of a priority), and a probability of admission beyond the threshold. The greatest threshold
//! bounds the queue for all.
//!
//! Departures: only waiting requests count. The paper's stage takes its whole queue out as a batch, and the
//! requests of the batch must still be counted, because otherwise premium requests are refused far too
//! early. There is no batch here: a request leaves the queue when a node has room for it, and every request
//! that is not in flight waits. A request that finds room on a node does not wait at all.
//!
//! Sources: thresholds count the requests of all sources. A request beyond its threshold takes the place of
//! another one of its class and priority, if a source has more of them waiting. So the queue is as long as
//! published, and the greedy source of a class is refused instead of the polite one. The backlog of another class
//! still counts for both, as published.

use super::{AdmissionView, Offer};
use crate::discipline::PriorityLevel;
use crate::random::Random;
use crate::request::ShedReason;

/// The threshold of each pool's queue, in waiting requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    pub(super) queue: u32,
}

impl Thresholds {
    /// Returns the reason if the thresholds of its pool refuse a request. A request that already waits there
    /// does not count itself.
    pub(super) fn decide(&self, view: &AdmissionView<'_>, offer: &Offer, random: &mut Random) -> Option<ShedReason> {
        let counts = view.queues.by_priority(view.classes[offer.class].partition);
        let own = offer.itself.map(|index| view.tickets[index].code);
        let waiting = Waiting {
            all: counts.iter().sum::<u32>() - u32::from(own.is_some()),
            alike: counts[offer.code as usize] - u32::from(own == Some(offer.code)),
        };
        let admitted = admits(&view.policy.discipline.priorities, offer.code, self.queue, waiting, random);
        (!admitted).then_some(ShedReason::Threshold)
    }
}

/// Number of requests waiting in a pool's queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// With any priority.
    all: u32,
    /// With the priority in question.
    alike: u32,
}

/// Whether a request with priority `code` may enter. `queue` is the threshold.
fn admits(priorities: &[PriorityLevel], code: u32, queue: u32, waiting: Waiting, random: &mut Random) -> bool {
    let Some(priority) = priorities.get(code as usize) else { return true };
    let below = |priority: &PriorityLevel| f64::from(waiting.all) < priority.threshold * f64::from(queue);
    if priority.quota.is_some_and(|max| waiting.alike >= max) {
        return false;
    }
    below(priority) || (priority.beyond > 0.0 && priorities.iter().any(below) && random.unit() < priority.beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(priorities: &[PriorityLevel], code: u32, all: u32, alike: u32) -> bool {
        admits(priorities, code, 50, Waiting { all, alike }, &mut Random::new(1))
    }

    #[test]
    fn each_priority_has_its_own_threshold() {
        let priorities = PriorityLevel::seda();
        for (code, max) in [(0, 50), (1, 75), (2, 100)] {
            assert!(admitted(&priorities, code, max - 1, 0) && !admitted(&priorities, code, max, 0), "code {code}");
        }
    }

    #[test]
    fn a_quota_counts_its_own_priority_alone() {
        let mut priorities = PriorityLevel::seda();
        priorities[0].quota = Some(10);
        assert!(admitted(&priorities, 0, 40, 9) && !admitted(&priorities, 0, 40, 10));
        assert!(admitted(&priorities, 2, 40, 10));
    }

    #[test]
    fn chance_opens_a_queue_up_to_the_greatest_threshold() {
        let mut priorities = PriorityLevel::seda();
        priorities[0].beyond = 0.25;
        let mut random = Random::new(7);
        let mut share = |all: u32| {
            let entered =
                (0..10_000).filter(|_| admits(&priorities, 0, 50, Waiting { all, alike: 0 }, &mut random)).count();
            entered as f64 / 10_000.0
        };
        assert!(share(49) >= 1.0);
        // Four standard deviations of 10,000 draws are 1.7 %.
        assert!((share(60) - 0.25).abs() < 0.018 && (share(99) - 0.25).abs() < 0.018);
        assert!(share(100) <= 0.0);
    }
}
