//! Events about certificates of listeners that expire soon.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use weirgate_wire::admin::EventKind;

/// Remaining times below which a certificate is reported, with the maximum share of its lifetime that is left then. A
/// certificate for a few days is renewed later than one for a year. Certificates for 90 days are renewed 30 days before
/// they expire, so many attempts have failed by the time of the first line.
const NEAR: [(Duration, u32); 2] = [(days(7), 3), (days(2), 10)];

const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 86_400)
}

/// A certificate in force.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// Its file, for messages.
    pub(crate) name: String,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

impl Certificate {
    /// Returns the number of limits that the remaining time is below, one more after the end.
    fn stage(&self, now: SystemTime) -> usize {
        let Ok(left) = self.not_after.duration_since(now) else { return NEAR.len() + 1 };
        let lifetime = self.not_after.duration_since(self.not_before).unwrap_or_default();
        NEAR.iter().take_while(|(limit, share)| left < *limit && left < lifetime / *share).count()
    }
}

/// Number of limits that have been reported, by certificate.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    told: BTreeMap<String, usize>,
}

impl Certificates {
    /// Passes the changes at `now` to `tell`. Certificates that expire soon are changes at the first call, too.
    pub(super) fn compare(
        &mut self,
        now: SystemTime,
        certificates: &[Certificate],
        tell: &mut impl FnMut(EventKind, String),
    ) {
        self.told.retain(|name, _| certificates.iter().any(|one| one.name == *name));
        for one in certificates {
            let stage = one.stage(now);
            let told = self.told.insert(one.name.clone(), stage).unwrap_or(0);
            let (name, end) = (&one.name, weirgate_clock::rfc3339(one.not_after));
            if stage > NEAR.len() && stage > told {
                tell(
                    EventKind::CertificateEnded,
                    format!("certificate {name} has ended on {end}: clients refuse it. Renew it"),
                );
            } else if stage > told {
                let left = one.not_after.duration_since(now).unwrap_or_default().as_secs();
                let left = match left / 86_400 {
                    0 => format!("{} h", left / 3600),
                    days => format!("{days} d"),
                };
                tell(
                    EventKind::CertificateEnding,
                    format!("certificate {name} ends in {left}, on {end}. Renew it, or look why it is not renewed"),
                );
            } else if stage == 0 && told > 0 {
                tell(EventKind::CertificateRenewed, format!("certificate {name} has been renewed and ends on {end}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn one(from: u64, to: u64) -> Certificate {
        let at = |day| UNIX_EPOCH + days(day);
        Certificate { name: "shop.pem".into(), not_before: at(from), not_after: at(to) }
    }

    fn told(known: &mut Certificates, hour: u64, all: &[Certificate]) -> Vec<(EventKind, String)> {
        let mut told = Vec::new();
        let now = UNIX_EPOCH + Duration::from_secs(hour * 3600);
        known.compare(now, all, &mut |kind, text| told.push((kind, text)));
        told
    }

    #[test]
    fn a_certificate_is_told_at_a_week_at_two_days_and_at_its_end() {
        let (mut known, all) = (Certificates::default(), [one(0, 90)]);
        let mut lines = Vec::new();
        for hour in 0..92 * 24 {
            lines.extend(told(&mut known, hour, &all).into_iter().map(|(kind, text)| (hour, kind, text)));
        }
        let kinds: Vec<_> = lines.iter().map(|(hour, kind, _)| (*hour, *kind)).collect();
        let ending = EventKind::CertificateEnding;
        let ended = (90 * 24 + 1, EventKind::CertificateEnded);
        assert_eq!(kinds, [(83 * 24 + 1, ending), (88 * 24 + 1, ending), ended]);
        assert!(lines[0].2.starts_with("certificate shop.pem ends in 6 d, on 1970-04-01T00:00:00.000Z."), "{lines:?}");
    }

    #[test]
    fn a_certificate_for_six_days_is_told_two_days_before_its_end() {
        let (mut known, all) = (Certificates::default(), [one(0, 6)]);
        let first = (0..7 * 24).find(|hour| !told(&mut known, *hour, &all).is_empty());
        assert_eq!(first, Some(4 * 24 + 1));
    }

    #[test]
    fn a_start_near_the_end_tells_it_once_and_a_renewal_ends_it() {
        let mut known = Certificates::default();
        let near = told(&mut known, 89 * 24, &[one(0, 90)]);
        assert!(near[0].1.contains("ends in 1 d"), "{near:?}");
        assert_eq!(told(&mut known, 89 * 24 + 1, &[one(0, 90)]), []);
        let renewed = told(&mut known, 89 * 24 + 2, &[one(89, 179)]);
        assert_eq!(renewed.len(), 1);
        assert_eq!(renewed[0].0, EventKind::CertificateRenewed);
        assert_eq!(told(&mut known, 89 * 24 + 3, &[]), []);
    }
}
