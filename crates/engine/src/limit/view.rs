//! The state that load control sees in a step.

use core::time::Duration;

use crate::classify::Classes;
use crate::dispatch::Nodes;
use crate::request::ClassId;
use crate::scheduler::Scheduler;
use crate::time::Time;

/// The state that load control sees. Reading estimates brings them up to date, and nodes get learned speeds
/// and bounds.
pub(crate) struct LimitView<'a> {
    pub(crate) now: Time,
    pub(crate) classes: &'a mut Classes,
    pub(crate) nodes: &'a mut Nodes,
    pub(crate) scheduler: &'a Scheduler,
}

/// The load of a class.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "for load control that limits a class's surplus")]
pub(crate) struct ClassLoad {
    pub(crate) waiting: u32,
    pub(crate) in_flight: u32,
    /// Mean seconds in flight, if there was a completion, and their guaranteed statistic.
    pub(crate) holding: Option<f64>,
    pub(crate) holding_guaranteed: Option<f64>,
    /// Seconds in flight on an unloaded node, declared or learned.
    pub(crate) service: Option<f64>,
    /// Arrivals per second over the sliding window of stage *observe*.
    pub(crate) arrivals_per_s: f64,
    /// Remaining tokens of its guaranteed rate, in requests, if the scheduler counts them.
    pub(crate) tokens: Option<f64>,
    /// Guaranteed requests per second, and the limit of their response time.
    pub(crate) throughput: Option<f64>,
    pub(crate) limit: Option<Duration>,
}

#[allow(dead_code, reason = "for load control that limits a class's surplus")]
impl LimitView<'_> {
    /// Returns the present load of a class.
    pub(crate) fn load(&mut self, class: ClassId) -> ClassLoad {
        self.classes.roll(self.now, class);
        let (state, guarantee) = (&self.classes[class], self.classes.spec(class).guarantee);
        ClassLoad {
            waiting: state.queue.len,
            in_flight: state.in_flight,
            holding: state.expected.seconds(),
            holding_guaranteed: state.expected.guaranteed(),
            service: self.classes.service_time(class),
            arrivals_per_s: state.observed.offered_per_s(self.now),
            tokens: self.scheduler.tokens(self.now, self.classes, class),
            throughput: guarantee.throughput,
            limit: guarantee.response_time.map(|rt| rt.limit),
        }
    }
}
