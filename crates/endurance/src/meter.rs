//! The requests of a class, from one look at the load generator to the next.

use hdrhistogram::Histogram;
use weirgate_lab::load::{Counts, Running};

/// The requests of a class between two looks.
#[derive(Clone, Debug)]
pub(crate) struct Spell {
    /// Requests that were sent, and those that ended, in this time.
    pub(crate) counts: Counts,
    /// Response times in microseconds of those that were served.
    pub(crate) times: Histogram<u32>,
}

/// Looks at the requests of one traffic source.
pub(crate) struct Meter {
    traffic: usize,
    last: Counts,
}

impl Meter {
    /// A meter of traffic source number `traffic`, which has sent nothing yet.
    pub(crate) fn new(traffic: usize) -> Meter {
        Meter { traffic, last: Counts::default() }
    }

    /// Returns the requests since the last call.
    pub(crate) fn take(&mut self, load: &Running) -> Spell {
        let times = load.take_responses().swap_remove(self.traffic);
        let (now, last) = (load.progress().traffic[self.traffic], self.last);
        self.last = now;
        let counts = Counts {
            sent: now.sent - last.sent,
            served: now.served - last.served,
            shed: now.shed - last.shed,
            failed: now.failed - last.failed,
            left: now.left - last.left,
        };
        Spell { counts, times }
    }

    /// Returns all requests up to the last look.
    pub(crate) fn total(&self) -> Counts {
        self.last
    }
}

/// Returns the number of requests that have ended and were not served.
pub(crate) fn lost(counts: &Counts) -> u64 {
    counts.shed + counts.failed + counts.left
}
