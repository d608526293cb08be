//! The default figures of prediction at arrival, each with its reason.

use core::time::Duration;

use super::Predict;

impl Default for Predict {
    fn default() -> Self {
        Predict {
            // A longer queue of requests that are owed nothing serves nobody more.
            soft_share: 0.1,
            // It keeps nodes busy between two arrivals at any rate worth a gateway.
            soft_least: Duration::from_millis(20),
            // Predictions err by a few percent, and who is shed at the head has waited for nothing.
            margin: 0.95,
            // A class that computes longer is in trouble whatever happens here; the rest is left for waiting, so
            // that some of its requests get through and the estimate can recover.
            most_compute: 0.8,
            // Two periods of the rate: before that it says nothing about a class that asked for less until now.
            young: Duration::from_millis(200),
            // The grain in which phases are judged: then the guarantees do not fit, or the class is dear.
            old: Duration::from_secs(5),
            // About three tenths of a second count.
            fresh: 0.3,
        }
    }
}
