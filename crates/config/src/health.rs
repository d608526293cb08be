//! Active health checks, and the rule of `fall` and `rise` by which every driver takes a node out and brings it back.

use std::time::Duration;

/// An active health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The question.
    pub probe: HealthProbe,
    /// The `Host` header. `None` means the node's address.
    pub host: Option<String>,
    /// Time between two checks of a node.
    pub interval: Duration,
    /// Timeout of a check, after which it has failed.
    pub timeout: Duration,
    /// Consecutive failures that take a node out.
    pub fall: u32,
    /// Consecutive successes that bring a node back.
    pub rise: u32,
}

/// The question of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthProbe {
    /// A GET for this path. Any status from 200 to 399 is healthy.
    Path(String),
    /// A call of `grpc.health.v1.Health/Check` for this service. Without a name it is the whole server.
    Grpc(String),
}

/// Counts answers until they change the state of a node.
#[derive(Clone, Debug, Default)]
pub struct HealthVerdict {
    /// `None` until the first change, because the engine assumes that a new node is up.
    up: Option<bool>,
    run: u32,
    last: bool,
}

impl HealthVerdict {
    /// Adds an answer. If it changes the state of the node, returns whether the node is up.
    #[must_use]
    pub fn hear(&mut self, healthy: bool, check: &HealthCheck) -> Option<bool> {
        self.run = if self.last == healthy { self.run.saturating_add(1) } else { 1 };
        self.last = healthy;
        let needed = if healthy { check.rise } else { check.fall };
        // A first good answer counts at once, because an earlier node of that name may have been down.
        let enough = self.run >= needed || (self.up.is_none() && healthy);
        if !enough || self.up == Some(healthy) {
            return None;
        }
        self.up = Some(healthy);
        Some(healthy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_several_answers_to_change_sides() {
        let check = HealthCheck {
            probe: HealthProbe::Path("/".into()),
            host: None,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            fall: 3,
            rise: 2,
        };
        let mut verdict = HealthVerdict::default();
        let heard: Vec<_> = [true, false, false, true, false, false, false, false, true, true, true]
            .map(|healthy| verdict.hear(healthy, &check))
            .to_vec();
        assert_eq!(heard, [Some(true), None, None, None, None, None, Some(false), None, None, Some(true), None]);
        let mut verdict = HealthVerdict::default();
        assert_eq!([false, false, false].map(|h| verdict.hear(h, &check)), [None, None, Some(false)]);
    }
}
