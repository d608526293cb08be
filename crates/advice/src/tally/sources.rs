//! The busiest client of each window.
//!
//! Only the current window is kept, so a line that is late by more than a window does not count.

use std::collections::HashMap;

use super::WINDOW;

/// Maximum number of clients of a window. Beyond it new ones are not counted: the busiest was probably seen before.
const MAX_CLIENTS: usize = 4096;

/// Maximum number of windows of which the busiest client is kept: eleven days. The last ones are as good as the others.
const MAX_WINDOWS: usize = 100_000;

/// The busiest clients.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    window: i64,
    current: HashMap<String, u32>,
    total: u32,
    /// Requests of the busiest client in each past window.
    busiest: Vec<u32>,
    /// Requests of the busiest clients, and of all, in windows with more than [`MANY`] requests.
    shares: (u64, u64),
}

/// Requests of a window from which the share of its busiest client tells something.
const MANY: u32 = 20;

impl Sources {
    pub(super) fn add(&mut self, client: &str, at_ms: i64) {
        let window = at_ms.div_euclid(WINDOW.as_millis() as i64);
        if window > self.window || self.window - window > 2 {
            self.turn();
            self.window = window;
        }
        if window < self.window {
            return;
        }
        self.total = self.total.saturating_add(1);
        if let Some(count) = self.current.get_mut(client) {
            *count = count.saturating_add(1);
        } else if self.current.len() < MAX_CLIENTS {
            self.current.insert(client.to_owned(), 1);
        }
    }

    /// Ends the current window.
    fn turn(&mut self) {
        let most = self.current.drain().map(|(_, count)| count).max();
        if let Some(most) = most {
            if self.busiest.len() < MAX_WINDOWS {
                self.busiest.push(most);
            }
            if self.total >= MANY {
                self.shares.0 += u64::from(most);
                self.shares.1 += u64::from(self.total);
            }
        }
        self.total = 0;
    }

    /// Ends the last window. Returns the requests of the busiest client in each window, and the share that it has of
    /// busy windows.
    pub(crate) fn finish(&mut self) -> (&mut [u32], Option<f64>) {
        self.turn();
        let (most, all) = self.shares;
        (&mut self.busiest, (all > 0).then(|| most as f64 / all as f64))
    }
}
