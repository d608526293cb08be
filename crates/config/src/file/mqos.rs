//! mQoS (Feng and Lin) and its baseline with one resource.

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
    pub(crate) enum MqosPrecedence {
        /// Deficit round robin over several resources, as published.
        Mdrr = "mdrr",
        /// Dominant-resource fair queueing: the same shares, with classes alternating more often.
        Drfq = "drfq",
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
    pub(crate) enum ResourceWord {
        /// The CPUs.
        Cpu = "cpu",
        /// The disks.
        Disk = "disk",
        /// The network.
        Bandwidth = "bandwidth",
    }
}
