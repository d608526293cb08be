//! The words that pass between a driver and the engine about one request.

use core::fmt;
use core::time::Duration;

use crate::demand::Demand;
use crate::time::Time;

/// A live class: below `policy.classes.len()` the class of that index, above it an overflow class or
/// one made from a template by [`crate::Engine::class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// Index into `policy.templates`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateId(pub u32);

/// Index into `policy.nodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A request that the engine has accepted. Stale tickets are recognised and ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A request at the door.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Its class.
    pub class: ClassId,
    /// Whom it comes from, as a keyed hash (the engine trusts it to be spread evenly).
    pub flow: u64,
    /// What it takes of a node, as the page table says; `None` if its route is not there: then it counts as its class's
    /// [`crate::Class::demand`]. Of no account in a policy without [`crate::Policy::resources`].
    pub demand: Option<Demand>,
    /// What it asks for (host and path, say), as a keyed hash, if the driver knows: [`crate::Dispatch::Lard`] looks at
    /// it.
    pub target: Option<u64>,
    /// Returned with every action about this request, so that the driver finds it again.
    pub tag: u64,
}

/// The answer to an arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Forward it to `node` now.
    Release {
        /// For everything that is said about the request later.
        ticket: Ticket,
        /// Where to.
        node: NodeId,
    },
    /// It waits; [`crate::Engine::poll`] will release or shed it.
    Wait {
        /// For everything that is said about the request later.
        ticket: Ticket,
    },
    /// It is turned away.
    Shed(Shed),
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// Why.
    pub reason: ShedReason,
    /// When trying again makes sense; whole seconds, at least one.
    pub retry_after: Duration,
    /// Degraded service: let it arrive once more, as one of this class, before it is answered. Should that be refused
    /// as well, this refusal stands.
    pub fallback: Option<ClassId>,
}

/// Why a request was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShedReason {
    /// It could not have met its class's response-time limit any more.
    Deadline,
    /// The class's queue is full.
    QueueFull,
    /// Its source already has as many waiting as one source may.
    FlowFull,
    /// All queues together are full.
    TotalFull,
    /// It waited longer than its queue allows.
    QueueTimeout,
    /// No node of the pool is usable.
    NoNode,
    /// Its class asks for more than it is guaranteed, gets what can be spared, and has a queue already.
    Overload,
    /// The queue is too long for a request of its tag.
    Threshold,
    /// The nodes are loaded beyond the threshold of [`crate::Admit::ServerLoad`], and its class is promised nothing.
    ServerLoad,
    /// It takes more of a resource than any node of its pool has: see [`crate::LoadControl::ResourceAvailability`].
    TooLarge,
    /// The nodes are the cause: they answer nothing of its class, or they are too slow or too few for a class that
    /// sends no more than it is guaranteed.
    NodesSlow,
}

impl ShedReason {
    /// Every reason, in a fixed order: counters are arrays in this order.
    pub const ALL: [ShedReason; 11] = [
        ShedReason::Deadline,
        ShedReason::QueueFull,
        ShedReason::FlowFull,
        ShedReason::TotalFull,
        ShedReason::QueueTimeout,
        ShedReason::NoNode,
        ShedReason::Overload,
        ShedReason::Threshold,
        ShedReason::ServerLoad,
        ShedReason::TooLarge,
        ShedReason::NodesSlow,
    ];

    /// Its place in [`ShedReason::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word used in replies, logs, metrics and snapshots.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ShedReason::Deadline => "deadline",
            ShedReason::QueueFull => "queue_full",
            ShedReason::FlowFull => "source_full",
            ShedReason::TotalFull => "all_queues_full",
            ShedReason::QueueTimeout => "queue_timeout",
            ShedReason::NoNode => "no_node",
            ShedReason::Overload => "overload",
            ShedReason::Threshold => "threshold",
            ShedReason::ServerLoad => "server_load",
            ShedReason::TooLarge => "too_large",
            ShedReason::NodesSlow => "nodes_slow",
        }
    }
}

impl fmt::Display for ShedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happened to a released request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response head arrived. The slot stays taken.
    FirstByte,
    /// The node sent its last byte; frees the slot. A status from 500 on counts as a failure of the
    /// node, and its time is no evidence of the node's speed.
    LastByte {
        /// HTTP status.
        status: u16,
    },
    /// The node refused, broke off or timed out.
    Failed {
        /// The request is idempotent, its body can be sent again and nothing went downstream.
        retryable: bool,
    },
    /// The client left and the exchange with the node was cut; frees the slot, says nothing about the
    /// node.
    Reset,
    /// The connection became a tunnel (101); frees the slot.
    Upgraded,
}

/// What the driver learned about a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NodeEvent {
    /// It answers its health checks.
    Up(NodeId),
    /// It does not.
    Down(NodeId),
    /// It finishes what it has and gets nothing new, whatever its health checks say.
    Draining(NodeId),
    /// It is no longer drained.
    Resumed(NodeId),
    /// Its measured or configured capacity in slot-seconds per second; finite and > 0, else ignored.
    Capacity(NodeId, f64),
    /// What its collector counted: requests being worked on.
    Load {
        /// Which node.
        node: NodeId,
        /// For static content.
        static_content: u32,
        /// For dynamic content.
        dynamic_content: u32,
    },
}

/// Something the engine wants done about a waiting request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Forward it now.
    Release {
        /// Which request.
        ticket: Ticket,
        /// Its [`Arrival::tag`].
        tag: u64,
        /// Where to.
        node: NodeId,
        /// How long it waited.
        waited: Duration,
    },
    /// Turn it away.
    Shed {
        /// Which request; stale from now on.
        ticket: Ticket,
        /// Its [`Arrival::tag`].
        tag: u64,
        /// Why, and when to try again.
        shed: Shed,
        /// How long it waited.
        waited: Duration,
    },
}

/// Whether requests have been seen to wait for one another in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contention {
    /// They have not: nothing that is owed is held back.
    Unseen,
    /// They had been, but times in flight have changed since: nothing that is owed is held back, on trial.
    Trial,
    /// They have, or it is being found out: the window bounds what is owed as well.
    Seen,
}

impl Contention {
    /// Every state.
    pub const ALL: [Contention; 3] = [Contention::Unseen, Contention::Trial, Contention::Seen];

    /// The word used in metrics and snapshots.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Contention::Unseen => "unseen",
            Contention::Trial => "trial",
            Contention::Seen => "seen",
        }
    }
}

/// When something happened last, for [`crate::Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// When.
    pub at: Time,
    /// From how many. A window that swings is taken at its height.
    pub from: u32,
    /// To how many.
    pub to: u32,
    /// Why.
    pub why: Why,
}

/// Why the window moved, or stayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// It is at its first size.
    First,
    /// A fixed window follows the number of usable nodes.
    Nodes {
        /// Usable nodes.
        usable: u32,
        /// All nodes.
        all: u32,
    },
    /// The most restrictive class computed within half its limit.
    BelowHalf {
        /// That class.
        class: ClassId,
        /// Its compute time.
        compute: Duration,
        /// Its limit.
        limit: Duration,
    },
    /// The most restrictive class computed longer than half its limit.
    AboveHalf {
        /// That class.
        class: ClassId,
        /// Its compute time.
        compute: Duration,
        /// Its limit.
        limit: Duration,
    },
    /// No class has a response-time limit: nothing asks for a smaller window.
    NoLimit,
    /// A new policy set it.
    Reconfigured,
    /// Compute times would allow a step up, but the window held nothing back since the last step.
    NotFull,
    /// Response times at two sizes of the window were compared.
    Elasticity {
        /// Change of response time per change of the window, both as logarithms: 0 if requests do not
        /// wait for one another inside, 1 if they only do.
        elasticity: f64,
        /// Is the window still searching for the knee in large steps.
        searching: bool,
    },
    /// The window follows the ratio of long-term to short-term response times.
    Gradient {
        /// What the window was multiplied by before the allowance for a queue; 0.5 to 1.
        gradient: f64,
    },
    /// An answer came in time while the window was in use.
    InTime,
    /// An answer was late, or a request failed.
    Late,
    /// Requests were answered without a sign that they wait for one another: the knee is no lower than what was in
    /// flight.
    Answered,
    /// Requests have been seen to wait for one another: the window begins at what was in flight then, and bounds what
    /// is owed as well.
    Contention,
    /// A class computed so long that its limit is missed, although nothing owed was held back: the window bounds what
    /// is owed for a while, to see whether times fall.
    Doubted {
        /// That class.
        class: ClassId,
        /// The guaranteed statistic of its compute time.
        compute: Duration,
        /// Its limit.
        limit: Duration,
    },
    /// A class computed so long that its limit is in danger.
    Endangered {
        /// That class.
        class: ClassId,
        /// The guaranteed statistic of its compute time.
        compute: Duration,
        /// Its limit.
        limit: Duration,
    },
}
