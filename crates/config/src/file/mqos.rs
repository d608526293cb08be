//! mQoS (Feng and Lin) and its baseline with one resource.

use weirgate_spanned_yaml::decode::Defaulted;
use weirgate_spanned_yaml::unit::Span;
use weirgate_spanned_yaml::{record, words};

record! {
    /// mQoS: every class its weight's part of every resource of the nodes, and no resource idle that a request waits
    /// for.
    pub(crate) struct Mqos {
        /// Whose turn it is.
        precedence: Defaulted<MqosPrecedence> = "mdrr",
        /// A node may have as much work inside as it does in this time, of every resource. 1 s by default: the paper's
        /// percentages are of a second.
        horizon: Defaulted<Span> = "1s",
    }
}

words! {
    /// Whose turn it is.
    pub(crate) enum MqosPrecedence {
        /// Deficit round robin over several resources, as published.
        Mdrr = "mdrr",
        /// Dominant-resource fair queueing: the same shares in shorter turns.
        Drfq = "drfq",
    }
}

record! {
    /// The paper's baseline: deficit round robin by one resource, blind to the others.
    pub(crate) struct Sqos {
        /// The resource that is managed.
        resource: Defaulted<ResourceWord> = "cpu",
        /// A node may have as much work for that resource inside as it does in this time.
        horizon: Defaulted<Span> = "1s",
    }
}

words! {
    /// A resource of a node.
    pub(crate) enum ResourceWord {
        /// Its processors.
        Cpu = "cpu",
        /// Its disks.
        Disk = "disk",
        /// Its network.
        Bandwidth = "bandwidth",
    }
}
