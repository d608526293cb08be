//! The web switch (Andreolini et al.): refusal by load, and the figures of nodes divided over sets of services.

use weirgate_spanned_yaml::decode::{Defaulted, Optional};
use weirgate_spanned_yaml::unit::{Amount, Share, Span};
use weirgate_spanned_yaml::{record, words};

record! {
    /// Refusal by load: while the nodes' load per CPU exceeds a threshold, classes without a guarantee are refused.
    pub(crate) struct ServerLoad {
        /// Load per CPU beyond which they are refused, in static requests inside. By default that at which a top class
        /// of average demand reaches its limit: the least limit over the service time of static requests, and over
        /// 3 for a 95th percentile.
        threshold: Optional<Amount>,
        /// Static requests that a dynamic one counts as. By default the ratio of the classes' mean service times, or
        /// 10 if either is not agreed.
        omega: Optional<Amount>,
        /// Where the load comes from. `live` by default: what is ten seconds old is mostly wrong.
        load: Defaulted<LoadWord> = "live",
        /// With `load: reports`, how often collectors are asked; 1 s to 1 h. 10 s by default, as published.
        every: Defaulted<Span> = "10s",
    }
}

words! {
    /// Where the load of a node comes from.
    pub(crate) enum LoadWord {
        /// What the gateway sent there and has no answer to.
        Live = "live",
        /// What the node's collector counts: other clients too, but as it was at the last report.
        Reports = "reports",
    }
}

record! {
    /// Refusal by load, and nodes divided anew as the demand moves.
    pub(crate) struct DynamicPart {
        /// Load per CPU beyond which classes without a guarantee are refused, in static requests inside. By default
        /// that at which a top class of average demand reaches its limit.
        threshold: Optional<Amount>,
        /// Static requests that a dynamic one counts as. By default the ratio of the classes' mean service times, or
        /// 10 if either is not agreed.
        omega: Optional<Amount>,
        /// Where the load comes from.
        load: Defaulted<LoadWord> = "live",
        /// How often the division is looked at and, with `load: reports`, collectors are asked; 1 s to 1 h. 10 s by
        /// default, as published.
        every: Defaulted<Span> = "10s",
        /// Largest share of its CPUs that a set of top classes may keep busy. At 80 % requests take five times as long
        /// as on an idle node, and beyond it times grow fast.
        busy: Defaulted<Share> = "80%",
    }
}

record! {
    /// Relative sizes of the sets, one for each that the upstream's classes make up: classes with a guarantee are top
    /// ones, others normal; `content` says the rest. Without any the guarantees decide: throughput × service time for
    /// top sets, what is left for normal ones.
    pub(crate) struct SetSizes {
        /// Static content of classes with a guarantee.
        top_static: Optional<Amount>,
        /// Dynamic content of classes with a guarantee.
        top_dynamic: Optional<Amount>,
        /// Static content of classes without.
        normal_static: Optional<Amount>,
        /// Dynamic content of classes without.
        normal_dynamic: Optional<Amount>,
    }
}

record! {
    /// Figures of a division that moves.
    pub(crate) struct PartitionDynamic {
        /// How large the sets are at first.
        sizes: Defaulted<SetSizes> = {},
        /// How often the division is looked at; 1 s to 1 h. 10 s by default, as published.
        every: Defaulted<Span> = "10s",
        /// Largest share of its CPUs that a set of top classes may keep busy.
        busy: Defaulted<Share> = "80%",
    }
}
