//! The mode of a class: enforced, only observed, or enforced for a share of its sources.
//!
//! Source: our own. A share is a fixed part of an order of all sources. So a source is on the same side for every
//! request, on every gateway, and after a restart. A larger share keeps the sources of a smaller one.

use crate::policy::Policy;

/// Number of positions in the order of sources. A share has the precision of a hundredth of a percent.
const POSITIONS: u16 = 10_000;

/// Whether the decisions about a class are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Its requests wait, and are refused, by the discipline.
    #[default]
    Enforce,
    /// All its requests pass at once. The engine counts what would have happened to them.
    Observe,
    /// Sources with a position below this number are enforced, from 1 to 9,999. The others are observed.
    Share(u16),
}

impl Mode {
    /// The mode that enforces this share of all sources, from 0 to 1.
    pub fn of_share(share: f64) -> Mode {
        // The cast saturates.
        match (share * f64::from(POSITIONS)).round() as u16 {
            0 => Mode::Observe,
            POSITIONS.. => Mode::Enforce,
            share => Mode::Share(share),
        }
    }

    /// Share of the sources that are enforced, from 0 to 1.
    pub fn share(self) -> f64 {
        match self {
            Mode::Enforce => 1.0,
            Mode::Observe => 0.0,
            Mode::Share(share) => f64::from(share) / f64::from(POSITIONS),
        }
    }

    /// Whether requests of a source with this position are enforced.
    #[inline]
    pub fn enforces(self, position: u16) -> bool {
        match self {
            Mode::Enforce => true,
            Mode::Observe => false,
            Mode::Share(share) => position < share,
        }
    }

    pub(crate) fn is_valid(self) -> bool {
        !matches!(self, Mode::Share(0 | POSITIONS..))
    }
}

/// Position of a source in the order of all sources, from 0 to 9,999. `hash` must be a hash of the source that is
/// spread evenly and never changes.
pub fn position(hash: u64) -> u16 {
    (((hash >> 32) * u64::from(POSITIONS)) >> 32) as u16
}

impl Policy {
    /// Whether a class or template is not enforced for all its sources.
    pub fn observes(&self) -> bool {
        self.all_classes().any(|class| class.mode != Mode::Enforce)
    }

    /// Whether a class or template is enforced for a share of its sources.
    pub fn divides_sources(&self) -> bool {
        self.all_classes().any(|class| matches!(class.mode, Mode::Share(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_share_is_a_part_of_all_sources_that_grows_with_it() {
        let mut random = Random::new(1);
        let all: Vec<u16> = (0..100_000).map(|_| position(random.below(u64::MAX))).collect();
        assert!(all.iter().all(|position| *position < POSITIONS));
        let enforced = |share: f64| all.iter().filter(|at| Mode::of_share(share).enforces(**at)).count();
        assert_eq!((enforced(0.0), enforced(1.0)), (0, all.len()));
        // Four standard deviations of 100,000 draws are 0.4 % of them.
        assert!(enforced(0.1).abs_diff(10_000) < 400, "{}", enforced(0.1));
        assert!(all.iter().all(|at| !Mode::of_share(0.1).enforces(*at) || Mode::of_share(0.25).enforces(*at)));
    }

    #[test]
    fn shares_at_the_ends_are_the_whole_modes() {
        assert_eq!((Mode::of_share(0.0), Mode::of_share(1.0)), (Mode::Observe, Mode::Enforce));
        assert_eq!(Mode::of_share(0.1), Mode::Share(1_000));
        assert_eq!((position(0), position(u64::MAX)), (0, POSITIONS - 1));
        assert!(Mode::Share(1).is_valid() && !Mode::Share(0).is_valid() && !Mode::Share(POSITIONS).is_valid());
        assert!((Mode::Share(1_000).share() - 0.1).abs() < 1e-9);
    }
}
