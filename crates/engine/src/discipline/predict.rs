//! The default figures of prediction at arrival, each with its reason.

use core::time::Duration;

use super::Predict;

impl Default for Predict {
    fn default() -> Self {
        Predict {
            // A longer queue of requests beyond the guarantee does not increase throughput.
            soft_share: 0.1,
            // Keeps nodes busy between two arrivals at any rate that needs a gateway.
            soft_min: Duration::from_millis(20),
            // Expected compute times err by a few percent. Without a margin, p95 of an expensive class was up to 1.1 %
            // above its limit in 20 of 24 seeds of Fig. 13.
            margin: 0.95,
            // A class that computes longer is in trouble in any case. The rest is left for waiting, so that
            // some of its requests are admitted and the estimate can recover.
            max_compute: 0.8,
            // Two periods of the rate. A younger rate says nothing about a class that has sent less until
            // now.
            young: Duration::from_millis(200),
            // About three tenths of a second count.
            fresh: 0.3,
        }
    }
}
