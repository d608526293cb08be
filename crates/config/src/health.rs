//! The rule of `fall` and `rise` by which health checks take a node out and bring it back, for every driver.

use crate::site::HealthCheck;

/// Counts answers until they change the state of a node.
#[derive(Clone, Debug, Default)]
pub struct HealthVerdict {
    /// `None` until the first change, because the engine assumes that a new node is up.
    up: Option<bool>,
    run: u32,
    last: bool,
}

impl HealthVerdict {
    /// Adds an answer. Returns whether the node is up, if its state has changed.
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
    use std::time::Duration;

    use super::*;
    use crate::site::HealthProbe;

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
