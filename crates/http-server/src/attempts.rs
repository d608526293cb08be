//! Limit on wrong tries: wrong tokens, and certificates that are not accepted.
//!
//! A right token always passes. Each source has an allowance of wrong tokens that are answered 401 and
//! logged. Further ones are answered 429. Guessing a token of 128 bits is hopeless at any
//! rate. Locking out a whole address would let a broken script lock the operator out of the gateway.

use std::collections::HashMap;
use std::hash::RandomState;
use std::net::IpAddr;
use std::time::Duration;

use crate::source::Source;

/// Maximum number of wrong tokens in a burst that a source may send before it is answered 429.
const ALLOWANCE: f64 = 10.0;
/// Rate at which the allowance is restored, in tokens per second.
const PER_SECOND: f64 = 1.0;
/// Maximum number of sources remembered. Beyond it, all other sources share one allowance.
const MAX_SOURCES: usize = 1024;

/// Allowances for wrong tokens.
pub(super) struct Attempts {
    /// By source. `None` has all sources beyond the maximum.
    sources: HashMap<Option<Source>, Allowance, RandomState>,
}

#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: f64,
    at: Duration,
}

impl Allowance {
    fn now(self, now: Duration) -> f64 {
        (self.left + now.saturating_sub(self.at).as_secs_f64() * PER_SECOND).min(ALLOWANCE)
    }
}

impl Attempts {
    pub(super) fn new(hasher: RandomState) -> Attempts {
        Attempts { sources: HashMap::with_hasher(hasher) }
    }

    /// Counts a wrong token from `peer` (`None` on a Unix socket). Returns false if the allowance is
    /// exhausted.
    pub(super) fn wrong(&mut self, peer: Option<IpAddr>, now: Duration) -> bool {
        let mut source = Some(Source::of(peer));
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&source) {
            self.sources.retain(|_, allowance| allowance.now(now) < ALLOWANCE);
            if self.sources.len() >= MAX_SOURCES {
                source = None;
            }
        }
        let allowance = self.sources.entry(source).or_insert(Allowance { left: ALLOWANCE, at: now });
        let left = allowance.now(now);
        *allowance = Allowance { left: if left >= 1.0 { left - 1.0 } else { left }, at: now };
        left >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn a2_wrong_tries_are_allowed_ten_times_then_once_a_second_for_each_source() {
        let mut attempts = Attempts::new(weirgate_clock::keyed_hasher());
        let (one, two) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        let allowed = |attempts: &mut Attempts, who, at| (0..100).filter(|_| attempts.wrong(who, at)).count();
        assert_eq!(allowed(&mut attempts, one, Duration::ZERO), 10);
        assert_eq!(allowed(&mut attempts, two, Duration::ZERO), 10);
        assert_eq!(allowed(&mut attempts, None, Duration::ZERO), 10);
        assert_eq!(allowed(&mut attempts, one, Duration::from_millis(2_000)), 2);
        assert_eq!(allowed(&mut attempts, one, Duration::from_millis(60_000)), 10);
    }

    #[test]
    fn a2_the_table_of_sources_is_bounded() {
        let mut attempts = Attempts::new(weirgate_clock::keyed_hasher());
        let tries =
            (0..100_000u32).filter(|&i| attempts.wrong(Some(IpAddr::from(i.to_be_bytes())), Duration::ZERO)).count();
        assert_eq!((attempts.sources.len(), tries), (MAX_SOURCES + 1, MAX_SOURCES + 10));
        // The many addresses of one subscriber are one source.
        let mut attempts = Attempts::new(weirgate_clock::keyed_hasher());
        let v6 = |i: u128| Some(IpAddr::from(Ipv6Addr::from(0x2001_0db8_u128 << 96 | i)));
        assert_eq!((0..100).filter(|&i| attempts.wrong(v6(i), Duration::ZERO)).count(), 10);
    }
}
