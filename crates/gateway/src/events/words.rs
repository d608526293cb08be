//! The reasons of refusals and missed guarantees in words, for readers who do not know Weirgate.

use std::time::Duration;

use weirgate_engine::{ClassSnapshot, ShedReason};
use weirgate_spanned_yaml::unit::span_text as span;

/// Returns the reason for refusing requests of `class`, as the second half of a sentence.
pub(super) fn refused(reason: ShedReason, class: &ClassSnapshot) -> String {
    let sends = rate(class.achieved.offered_per_s);
    match reason {
        ShedReason::Deadline => match class.guarantee.response_time {
            Some(limit) => format!("they would have been answered later than the limit of {}", span(limit.limit)),
            None => "they would have been answered too late".to_owned(),
        },
        ShedReason::QueueFull => format!("the queue of the class is full ({} requests wait)", class.waiting),
        ShedReason::FlowFull => "a single source already had too many requests waiting".to_owned(),
        ShedReason::TotalFull => "all queues together are full".to_owned(),
        ShedReason::QueueTimeout => "the queue of the class allows no longer wait".to_owned(),
        ShedReason::NoNode => "no node of the upstream is usable".to_owned(),
        ShedReason::Overload => match class.guarantee.throughput {
            // The rate is a mean over ten seconds, and the guarantee allows for bursts of one second.
            Some(guaranteed) if class.achieved.offered_per_s <= guaranteed => format!(
                "the class sends {sends}, for moments more than its guarantee of {}, and the nodes have no capacity left",
                rate(guaranteed)
            ),
            Some(guaranteed) => format!(
                "the class sends {sends}, more than its guarantee of {}, and the nodes have no capacity left",
                rate(guaranteed)
            ),
            None => "the class has no guarantee, and the nodes have no capacity left".to_owned(),
        },
        ShedReason::Threshold => "the queue is too long for requests of this priority".to_owned(),
        ShedReason::ServerLoad => "the load of the nodes is too high for a class without a guarantee".to_owned(),
        ShedReason::TooLarge => "they need more of a resource than any node has".to_owned(),
        ShedReason::NodesSlow => {
            format!("the nodes are too slow or too few for this class, which sends only {sends}")
        }
        ShedReason::SourceRate => "a single source sends more than its rate allows".to_owned(),
        ShedReason::ClassRate => format!("the class sends {sends}, more than its limit"),
    }
}

/// Returns how `class` misses its guaranteed throughput.
pub(super) fn throughput(class: &ClassSnapshot) -> String {
    format!(
        "{} served of {} sent, guaranteed {}",
        rate(class.achieved.served_per_s),
        rate(class.achieved.offered_per_s),
        rate(class.guarantee.throughput.unwrap_or(0.0))
    )
}

/// Returns how `class` misses its response-time limit.
pub(super) fn response_time(class: &ClassSnapshot) -> String {
    let limit = class.guarantee.response_time.map_or(Duration::ZERO, |limit| limit.limit);
    match class.achieved.limited {
        Some((statistic, got)) => format!("{statistic} is {}, its limit {}", span(got), span(limit)),
        None => format!("its limit is {}", span(limit)),
    }
}

/// Returns a rate with as many digits as its reader needs.
pub(super) fn rate(per_second: f64) -> String {
    let digits = if per_second < 10.0 && per_second.fract() != 0.0 { 1 } else { 0 };
    format!("{per_second:.digits$}/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_within_the_guarantee_is_not_called_more_than_it() {
        let mut class = crate::examples::class();
        class.guarantee.throughput = Some(100.0);
        for (sends, words) in [(120.0, "sends 120/s, more than"), (90.0, "sends 90/s, for moments more than")] {
            class.achieved.offered_per_s = sends;
            let why = refused(ShedReason::Overload, &class);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn rates_have_the_digits_that_a_reader_needs() {
        assert_eq!([rate(0.5), rate(2.0), rate(812.34)], ["0.5/s", "2/s", "812/s"]);
    }
}
