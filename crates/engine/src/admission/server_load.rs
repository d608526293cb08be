//! SwitchAdm: refusal by the load of the nodes.
//!
//! Source: Andreolini, Casalicchio, Colajanni, Mambelli, *QoS-aware switching policies for a locally
//! distributed Web system*, Sec. 2: the switch admits no request while the sum of the servers' loads exceeds
//! a threshold. A server reports its active connections every ten seconds, separately for static and for
//! dynamic pages.
//!
//! Points that the paper leaves open, and their reading here:
//! - The *load* of a node is `(static + ω·dynamic) / CPUs`, where ω is the cost of a dynamic request
//!   relative to a static one. The load of several nodes is that of one node with all their CPUs, so that
//!   one threshold fits clusters of every size.
//! - The paper rejects by load alone, but reports that *normal* requests are rejected and top ones served.
//!   Here only classes without a guarantee are refused.
//! - The paper names no threshold. [`ServerLoad::derived`] computes it from the guarantees.
//!
//! Sources: the load is that of nodes, and knows no source. A greedy source of a class without a guarantee can
//! have all of them refused. Limit its rate, or give its network a class of its own.
//!
//! Departure: the loads are the gateway's own counts unless the operator asks for reports. A count that is
//! ten seconds old admits too much for ten seconds and refuses too much for the next ten.

use core::time::Duration;

use super::AdmissionView;
use crate::discipline::Admit;
use crate::policy::{Class, Content, InvalidPolicy, Policy, Statistic};
use crate::request::{ClassId, ShedReason};

/// Figures of [`Admit::ServerLoad`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerLoad {
    /// Load per CPU above which classes without a guarantee are refused, in static requests in flight, > 0.
    pub threshold: f64,
    /// Number of static requests that a dynamic one counts as (ω), > 0.
    pub omega: f64,
    /// Source of the counts.
    pub source: LoadSource,
}

/// Source of the load of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSource {
    /// Requests that the driver sent to the node and that have not ended: exact, except for other clients of
    /// the node.
    Live,
    /// Latest counts of the node's collector ([`crate::NodeEvent::Load`]). The load is 0 before its first
    /// report.
    Reports {
        /// Time between two requests for a report, > 0.
        every: Duration,
    },
}

/// ω while no class of either content has a declared service time. Computed pages are one to two orders of
/// magnitude more expensive than files in memory. The smaller figure is used, because the threshold is then
/// reached later for files.
const ASSUMED_OMEGA: f64 = 10.0;

/// Service time of a static request in seconds if no class has a declared one: that of an ordinary page, as
/// elsewhere in the engine.
const ASSUMED_STATIC: f64 = 0.010;

/// Limit in seconds assumed if no class has one: the paper's T_S, as its 95th percentile.
const ASSUMED_LIMIT: f64 = 0.6;

impl ServerLoad {
    /// Threshold and ω from the declared service times and limits of classes (and templates), with live
    /// counts.
    ///
    /// ω is the mean service time of dynamic classes divided by that of static ones. The threshold is the
    /// load at which the top class with the tightest limit reaches it. A CPU shared by requests worth T
    /// static ones is busy with them for T service times. A request of average size takes that long if it
    /// shares the CPU with similar ones. With exponential sizes, a percentile p belongs to a request −ln(1 −
    /// p) times as large. So T = limit / (that factor × static service time), at least 1: one request in
    /// flight on a CPU is not an overload.
    #[must_use]
    pub fn derived(policy_classes: &[&Class]) -> ServerLoad {
        let mean = |content| {
            let of = policy_classes.iter().filter(|class| class.content == content);
            let (sum, count) = of
                .filter_map(|class| class.service_time)
                .fold((0.0, 0u32), |(sum, count), time| (sum + time.as_secs_f64(), count + 1));
            (count > 0).then(|| sum / f64::from(count))
        };
        let (static_time, dynamic_time) = (mean(Content::Static), mean(Content::Dynamic));
        let omega = match (static_time, dynamic_time) {
            (Some(cheap), Some(expensive)) => (expensive / cheap).clamp(1e-3, 1e6),
            _ => ASSUMED_OMEGA,
        };
        let cheap = static_time.or(dynamic_time.map(|expensive| expensive / omega)).unwrap_or(ASSUMED_STATIC);
        let factor = |statistic| match statistic {
            Statistic::Average => 1.0,
            Statistic::Percentile(p) => -(1.0 - p / 100.0).ln(),
        };
        let limits = policy_classes.iter().filter_map(|class| class.guarantee.response_time);
        let min = limits.map(|rt| rt.limit.as_secs_f64() / factor(rt.statistic)).reduce(f64::min);
        let limit = min.unwrap_or(ASSUMED_LIMIT / factor(Statistic::Percentile(95.0)));
        ServerLoad { threshold: (limit / cheap).max(1.0), omega, source: LoadSource::Live }
    }

    /// Returns the reason if a request of the class is refused because of the load of its nodes.
    pub(super) fn decide(&self, view: &AdmissionView<'_>, class: ClassId) -> Option<ShedReason> {
        let partition = view.classes[class].partition;
        let refused = !view.classes.spec(class).is_top() && view.nodes.partition_load(partition) > self.threshold;
        refused.then_some(ShedReason::ServerLoad)
    }

    pub(crate) fn validate(&self) -> Result<(), InvalidPolicy> {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        if !positive(self.threshold) || !positive(self.omega) {
            return Err(InvalidPolicy("server_load needs a threshold and an omega > 0".into()));
        }
        if matches!(self.source, LoadSource::Reports { every } if every.is_zero()) {
            return Err(InvalidPolicy("reports of server loads need a time > 0 between them".into()));
        }
        Ok(())
    }
}

impl Policy {
    /// ω and the source of loads: the values of the admit method, or its defaults under another method.
    pub(crate) fn server_load(&self) -> ServerLoad {
        match self.discipline.admit {
            Admit::ServerLoad(figures) => figures,
            _ => ServerLoad::derived(&self.all_classes().collect::<Vec<_>>()),
        }
    }
}

impl Class {
    /// Whether the class has any guarantee. The paper's top users have one, and normal users get best
    /// effort.
    pub fn is_top(&self) -> bool {
        self.guarantee.throughput.is_some() || self.guarantee.response_time.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Guarantee, ResponseTime};

    fn class(content: Content, service_ms: Option<u64>, limit: Option<(Statistic, u64)>) -> Class {
        Class {
            guarantee: Guarantee {
                throughput: None,
                response_time: limit
                    .map(|(statistic, limit)| ResponseTime { statistic, limit: Duration::from_millis(limit) }),
            },
            content,
            service_time: service_ms.map(Duration::from_millis),
            ..Class::best_effort("A", 0)
        }
    }

    #[test]
    fn the_defaults_follow_from_the_guarantees() {
        let p95 = |limit| Some((Statistic::Percentile(95.0), limit));
        let all = [
            class(Content::Static, Some(5), p95(600)),
            class(Content::Dynamic, Some(50), p95(1000)),
            class(Content::Dynamic, Some(70), None),
            class(Content::Dynamic, None, None),
        ];
        let figures = ServerLoad::derived(&all.each_ref());
        assert!((figures.omega - 12.0).abs() < 1e-9, "{figures:?}");
        // 600 ms / ln 20 / 5 ms.
        assert!((figures.threshold - 40.06).abs() < 0.01, "{figures:?}");
        let average = [class(Content::Static, Some(10), Some((Statistic::Average, 500)))];
        assert!((ServerLoad::derived(&average.each_ref()).threshold - 50.0).abs() < 1e-9);
        // A limit close to the service time still admits one request.
        let tight = [class(Content::Dynamic, Some(100), Some((Statistic::Average, 5)))];
        assert!((ServerLoad::derived(&tight.each_ref()).threshold - 1.0).abs() < 1e-9);
        let nothing = ServerLoad::derived(&[]);
        assert!((nothing.omega - 10.0).abs() < 1e-9 && (nothing.threshold - 20.03).abs() < 0.01, "{nothing:?}");
    }
}
