//! How requests are spread over the nodes of an upstream.

use weirgate_spanned_yaml::decode::Defaulted;
use weirgate_spanned_yaml::unit::{Amount, Answer, Count};
use weirgate_spanned_yaml::{choice, record};

use super::web_switch::{PartitionDynamic, SetSizes};

choice! {
    /// How requests are spread over the nodes of an upstream.
    pub(crate) enum Dispatch
    expects "`least_outstanding`, `least_loaded`, `weighted_round_robin`, `power_of_two`, `lard`, a partition or a map" {
        /// To the node with the fewest requests in flight, relative to its weight.
        LeastOutstanding = "least_outstanding",
        /// To the least loaded node. Equally loaded nodes take turns.
        LeastLoaded(LeastLoaded) = "least_loaded",
        /// Weighted round robin: in turns, in proportion to the weights, whatever is in flight.
        WeightedRoundRobin = "weighted_round_robin",
        /// Two nodes are drawn by weight, and the less loaded one gets the request.
        PowerOfTwo = "power_of_two",
        /// To the node that has the requested document in memory, unless that node is too busy.
        Lard(Lard) = "lard",
        /// The nodes are partitioned over the service sets once.
        PartitionStatic(SetSizes) = "partition_static",
        /// The nodes are partitioned again as the demand changes.
        PartitionDynamic(PartitionDynamic) = "partition_dynamic",
    }
}

record! {
    /// Parameters of least-loaded dispatch.
    pub(crate) struct LeastLoaded {
        /// Whether a request avoids the node that got the class's last request, if another node can take it:
        /// `true` or `false`.
        avoid_last: Defaulted<Answer> = false,
    }
}

record! {
    /// Parameters of locality-aware request distribution. The first three defaults are those of the paper's
    /// prototype.
    pub(crate) struct Lard {
        /// Requests in flight below which a node of mean weight has spare capacity.
        idle: Defaulted<Amount> = 30,
        /// Requests in flight above which a node is too slow for any request.
        overload: Defaulted<Amount> = 130,
        /// Cost of reading a document that is not in memory, in requests in flight. At least 1, the cost of a hit.
        miss_cost: Defaulted<Amount> = 50,
        /// Maximum number of documents for which the node is remembered. The least recently requested one is
        /// forgotten first. 100000 are three times the documents of the paper's trace and take about 6 MB.
        max_keys: Defaulted<Count> = 100000,
        /// Whether the query identifies the document, in addition to host and path: `true` or `false`. `false` by
        /// default, because most queries select a computation on the same data.
        query: Defaulted<Answer> = false,
    }
}
