//! mQoS (Feng and Lin) and its baseline with one resource.

use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::Defaulted;
use weirgate_spanned_yaml::unit::Span;
use weirgate_spanned_yaml::{record, words};

record! {
    /// mQoS: every class gets its weight's share of every resource of the nodes, and no resource is idle
    /// while a request waits for it.
    pub(crate) struct Mqos {
        /// The order in which waiting requests are released.
        precedence: Defaulted<MqosPrecedence> = "mdrr",
        /// A node's work in flight may be as much as it completes in this time, for every resource. 1 s by
        /// default, because the paper's percentages refer to a second.
        horizon: Defaulted<Span> = "1s",
    }
}

words! {
    /// The order in which waiting requests are released.
    pub(crate) struct MqosPrecedence(engine::Precedence) {
        /// Deficit round robin over several resources, as published.
        "mdrr" => engine::Precedence::Mdrr,
        /// Dominant-resource fair queueing: the same shares, with classes alternating more often.
        "drfq" => engine::Precedence::Drfq,
    }
}

record! {
    /// The paper's baseline: deficit round robin over one resource, which ignores the others.
    pub(crate) struct Sqos {
        /// The resource to manage.
        resource: Defaulted<ResourceWord> = "cpu",
        /// A node's work in flight may be as much as it completes in this time, for that resource.
        horizon: Defaulted<Span> = "1s",
    }
}

words! {
    /// A resource of a node.
    pub(crate) struct ResourceWord(usize) {
        // The values are indices of `engine::Policy::resources`.
        /// The CPUs.
        "cpu" => 0,
        /// The disks.
        "disk" => 1,
        /// The network.
        "bandwidth" => 2,
    }
}
