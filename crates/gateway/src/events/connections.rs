//! New connections that are closed at once, because one of the limits of their peer is reached.

use std::net::IpAddr;

use weirgate_config::client_text;
use weirgate_engine::Time;
use weirgate_spanned_yaml::unit::span_text;
use weirgate_wire::admin::EventKind;

use super::QUIET;

/// Connections that were closed because of one limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refused {
    /// Number of them since the start.
    pub(super) total: u64,
    /// Peer of the latest one.
    pub(super) latest: Option<IpAddr>,
}

/// The limits by their names, each with the reason in words.
const LIMITS: [(&str, &str); 2] =
    [("connections_per_source", "it has too many at once"), ("new_connections_per_source", "it opens them too fast")];

/// Connections closed because of each of the limits.
pub(super) type Look = [Refused; LIMITS.len()];

/// What is known of each limit.
#[derive(Debug, Default)]
pub(super) struct Connections([State; LIMITS.len()]);

#[derive(Debug, Default)]
struct State {
    total: u64,
    closing: Option<Closing>,
}

/// A span of time in which connections were closed.
#[derive(Debug)]
struct Closing {
    /// Number of connections closed before it.
    before: u64,
    from: Time,
    /// Time of the latest look that found more.
    to: Time,
}

impl Connections {
    /// Compares a look with the one before, and passes the changes to `tell`.
    pub(super) fn compare(&mut self, now: Time, look: Look, tell: &mut impl FnMut(EventKind, String)) {
        for ((state, refused), (limit, why)) in self.0.iter_mut().zip(look).zip(LIMITS) {
            let before = std::mem::replace(&mut state.total, refused.total);
            match &mut state.closing {
                Some(closing) if refused.total > before => closing.to = now,
                Some(closing) if now.since(closing.to) >= QUIET => {
                    let closed = refused.total - closing.before;
                    let text = format!(
                        "no new connection was closed because of `limits.{limit}` for {}. Before that, {closed} were \
                         closed within {} s",
                        span_text(QUIET),
                        closing.to.since(closing.from).as_secs().max(1)
                    );
                    state.closing = None;
                    tell(EventKind::ConnectionsAccepted, text);
                }
                Some(_) => {}
                None if refused.total > before => {
                    let peer = refused.latest.map_or_else(|| "a peer".to_owned(), client_text);
                    let text = format!("new connections of {peer} are closed at once: {why} (`limits.{limit}`)");
                    state.closing = Some(Closing { before, from: now, to: now });
                    tell(EventKind::ConnectionsRefused, text);
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn closed_connections_are_told_when_they_begin_and_after_a_quiet_while() {
        let mut connections = Connections::default();
        let mut look = |now: u64, many: u64, fast: u64| {
            let mut told = Vec::new();
            let latest = Some("192.0.2.7".parse().expect("an address"));
            let look = [many, fast].map(|total| Refused { total, latest });
            let now = Time::ZERO + Duration::from_secs(now);
            connections.compare(now, look, &mut |kind, text| told.push((kind, text)));
            told
        };
        assert_eq!(look(1, 0, 0), []);
        let text = "new connections of 192.0.2.7 are closed at once: it opens them too fast (`limits.new_connections_per_source`)";
        assert_eq!(look(2, 0, 5), [(EventKind::ConnectionsRefused, text.to_owned())]);
        let text = "new connections of 192.0.2.7 are closed at once: it has too many at once (`limits.connections_per_source`)";
        assert_eq!(look(3, 1, 9), [(EventKind::ConnectionsRefused, text.to_owned())]);
        assert_eq!([look(9, 2, 9), look(12, 2, 9)], [vec![], vec![]]);
        let text = "no new connection was closed because of `limits.new_connections_per_source` for 10 s. Before that, 9 \
                    were closed within 1 s";
        assert_eq!(look(13, 2, 9), [(EventKind::ConnectionsAccepted, text.to_owned())]);
        let text = "no new connection was closed because of `limits.connections_per_source` for 10 s. Before that, 2 were \
                    closed within 6 s";
        assert_eq!(look(19, 2, 9), [(EventKind::ConnectionsAccepted, text.to_owned())]);
        assert_eq!(look(40, 2, 9), []);
        assert_eq!(look(41, 2, 10).len(), 1, "it begins anew");
    }
}
