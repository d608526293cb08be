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

use super::{AdmissionView, Offer};
use crate::discipline::Tag;
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
        let counts = view.queues.tagged(view.classes[offer.class].pool);
        let own = offer.itself.map(|index| view.tickets[index].code);
        let waiting = Waiting {
            all: counts.iter().sum::<u32>() - u32::from(own.is_some()),
            alike: counts[offer.code as usize] - u32::from(own == Some(offer.code)),
        };
        let admitted = admits(&view.policy.discipline.tags, offer.code, self.queue, waiting, random);
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
fn admits(tags: &[Tag], code: u32, queue: u32, waiting: Waiting, random: &mut Random) -> bool {
    let Some(tag) = tags.get(code as usize) else { return true };
    let below = |tag: &Tag| f64::from(waiting.all) < tag.threshold * f64::from(queue);
    if tag.quota.is_some_and(|most| waiting.alike >= most) {
        return false;
    }
    below(tag) || (tag.beyond > 0.0 && tags.iter().any(below) && random.unit() < tag.beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(tags: &[Tag], code: u32, all: u32, alike: u32) -> bool {
        admits(tags, code, 50, Waiting { all, alike }, &mut Random::new(1))
    }

    #[test]
    fn each_tag_has_its_own_threshold() {
        let tags = Tag::seda();
        for (code, most) in [(0, 50), (1, 75), (2, 100)] {
            assert!(admitted(&tags, code, most - 1, 0) && !admitted(&tags, code, most, 0), "code {code}");
        }
    }

    #[test]
    fn a_quota_counts_its_own_tag_alone() {
        let mut tags = Tag::seda();
        tags[0].quota = Some(10);
        assert!(admitted(&tags, 0, 40, 9) && !admitted(&tags, 0, 40, 10));
        assert!(admitted(&tags, 2, 40, 10));
    }

    #[test]
    fn chance_opens_a_queue_up_to_the_greatest_threshold() {
        let mut tags = Tag::seda();
        tags[0].beyond = 0.25;
        let mut random = Random::new(7);
        let mut share = |all: u32| {
            let entered = (0..10_000).filter(|_| admits(&tags, 0, 50, Waiting { all, alike: 0 }, &mut random)).count();
            entered as f64 / 10_000.0
        };
        assert!(share(49) >= 1.0);
        // Four standard deviations of 10,000 draws are 1.7 %.
        assert!((share(60) - 0.25).abs() < 0.018 && (share(99) - 0.25).abs() < 0.018);
        assert!(share(100) <= 0.0);
    }
}
