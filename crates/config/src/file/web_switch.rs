//! The web switch (Andreolini et al.): refusal by load, and the parameters of nodes partitioned over service sets.

use weirgate_spanned_yaml::decode::{Defaulted, Optional};
use weirgate_spanned_yaml::unit::{Amount, Share, Span};
use weirgate_spanned_yaml::{record, words};

record! {
    /// Refusal by load: while the load per CPU of the nodes exceeds a threshold, classes without a guarantee
    /// are refused.
    pub(crate) struct ServerLoad {
        /// Load per CPU above which they are refused, in static requests in flight. By default the load at
        /// which a top class of average demand reaches its limit: the smallest limit divided by the service
        /// time of static requests, and by 3 for a 95th percentile.
        threshold: Optional<Amount>,
        /// Number of static requests that one dynamic request counts as. By default the ratio of the classes'
        /// mean service times, or 10 if either is not declared.
        omega: Optional<Amount>,
        /// Source of the load. `live` by default, because a load that is ten seconds old is usually wrong.
        load: Defaulted<LoadWord> = "live",
        /// With `load: reports`, time between two queries of the collectors, 1 s to 1 h. 10 s by default, as
        /// published.
        every: Defaulted<Span> = "10s",
    }
}

words! {
    /// Source of a node's load.
    pub(crate) enum LoadWord {
        /// Requests that the gateway sent to the node and that are not answered yet.
        Live = "live",
        /// Requests that the node's collector counts. They include those of other clients, but are as old as
        /// the last report.
        Reports = "reports",
    }
}

record! {
    /// Refusal by load, with nodes partitioned again as the demand changes.
    pub(crate) struct DynamicPart {
        /// Load per CPU above which classes without a guarantee are refused, in static requests in flight. By
        /// default the load at which a top class of average demand reaches its limit.
        threshold: Optional<Amount>,
        /// Number of static requests that one dynamic request counts as. By default the ratio of the classes'
        /// mean service times, or 10 if either is not declared.
        omega: Optional<Amount>,
        /// Source of the load.
        load: Defaulted<LoadWord> = "live",
        /// Time between two reviews of the partitions and, with `load: reports`, between two queries of the
        /// collectors, 1 s to 1 h. 10 s by default, as published.
        every: Defaulted<Span> = "10s",
        /// Largest share of its CPUs that a set of top classes may keep busy. At 80 % requests take five
        /// times as long as on an idle node, and above it response times grow fast.
        busy: Defaulted<Share> = "80%",
    }
}

record! {
    /// Relative sizes of the service sets. Every set that the upstream's classes form has one: classes with a
    /// guarantee are top, the others normal, and `content` decides between static and dynamic. Without sizes
    /// the guarantees decide: throughput × service time for top sets, the remainder for normal ones.
    pub(crate) struct SetSizes {
        /// Static content of classes with a guarantee.
        top_static: Optional<Amount>,
        /// Dynamic content of classes with a guarantee.
        top_dynamic: Optional<Amount>,
        /// Static content of classes without a guarantee.
        normal_static: Optional<Amount>,
        /// Dynamic content of classes without a guarantee.
        normal_dynamic: Optional<Amount>,
    }
}

record! {
    /// Parameters of partitions that change with the demand.
    pub(crate) struct PartitionDynamic {
        /// Initial sizes of the sets.
        sizes: Defaulted<SetSizes> = {},
        /// Time between two reviews of the partitions, 1 s to 1 h. 10 s by default, as published.
        every: Defaulted<Span> = "10s",
        /// Largest share of its CPUs that a set of top classes may keep busy.
        busy: Defaulted<Share> = "80%",
    }
}
