//! The messages about one request between a driver and the engine.

use core::time::Duration;

use crate::demand::Demand;
use crate::time::Time;

/// A live class. An id below `policy.classes.len()` is the class of that index. A larger id is an overflow
/// class or a class made from a template by [`crate::Engine::class`].
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

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Its class.
    pub class: ClassId,
    /// The source of the request, as a keyed hash. The engine relies on an even spread.
    pub flow: u64,
    /// Its cost on a node, from the page table. `None` if the table does not list its route: then it counts
    /// as the [`crate::Class::demand`] of its class. Ignored unless the policy has
    /// [`crate::Policy::resources`].
    pub demand: Option<Demand>,
    /// Its target (host and path, for example), as a keyed hash, if the driver knows it.
    /// [`crate::Dispatch::Lard`] uses it.
    pub locality_key: Option<u64>,
    /// Position of its source in the order of all sources (see [`crate::position`]). Ignored unless a class has
    /// [`crate::Mode::Share`].
    pub position: u16,
    /// A token of the driver. Every action about this request returns it, so that the driver can find the
    /// request.
    pub token: u64,
}

/// The engine's decision about an arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Forward it to `node` now.
    Release {
        /// Identifies the request in all later calls.
        ticket: Ticket,
        /// The node to forward to.
        node: NodeId,
    },
    /// It waits. [`crate::Engine::poll`] will release or shed it.
    Wait {
        /// Identifies the request in all later calls.
        ticket: Ticket,
    },
    /// It is refused.
    Shed(Shed),
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// The reason.
    pub reason: ShedReason,
    /// Time after which a new try makes sense, in whole seconds, at least one.
    pub retry_after: Duration,
    /// Degraded service: before you answer, let the request arrive once more as one of this class. If that
    /// is refused as well, this refusal stands.
    pub fallback: Option<ClassId>,
}

named! {
    /// The reason for a refusal. Counters are arrays in the order of the variants.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ShedReason {
        /// It could no longer meet the response-time limit of its class.
        Deadline = "deadline",
        /// The queue of its class is full.
        QueueFull = "queue_full",
        /// Its source already has the maximum number of waiting requests per source, or it made room for a request of
        /// another source because its own had most waiting requests of a full queue.
        FlowFull = "source_full",
        /// All queues together are full.
        TotalFull = "all_queues_full",
        /// It waited longer than its queue allows.
        QueueTimeout = "queue_timeout",
        /// No node of the pool is usable.
        NoNode = "no_node",
        /// Its class sends more than its guarantee, gets the surplus that is available, and already has a queue.
        Overload = "overload",
        /// The queue is too long for a request of its priority.
        Threshold = "threshold",
        /// The load of the nodes exceeds the threshold of [`crate::Admit::ServerLoad`], and its class has no
        /// guarantee.
        ServerLoad = "server_load",
        /// It needs more of a resource than any node of its pool has. See
        /// [`crate::LoadControl::ResourceAvailability`].
        TooLarge = "too_large",
        /// The nodes are the cause: they answer no request of its class, or they are too slow or too few for a
        /// class that stays within its guarantee.
        NodesSlow = "nodes_slow",
        /// Its source sends more than the rate that one source of its class may send.
        SourceRate = "source_rate",
        /// Its class sends more than the rate that the class may send.
        ClassRate = "class_rate",
    }
}

impl ShedReason {
    /// Its index in [`ShedReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The outcome of a released request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response head arrived. The request keeps its slot.
    FirstByte,
    /// The node sent its last byte. Frees the slot. A status from 500 on counts as a failure of the node,
    /// and its time is not used to estimate the node's speed.
    LastByte {
        /// HTTP status.
        status: u16,
    },
    /// The node refused the request, broke off or timed out.
    Failed {
        /// Whether the request is idempotent, its body can be sent again and nothing was sent downstream.
        retryable: bool,
    },
    /// The client left and the exchange with the node was cut. Frees the slot and says nothing about the
    /// node.
    Reset,
    /// The connection became a tunnel (101). Frees the slot.
    Upgraded,
}

/// An event of a node that the driver reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NodeEvent {
    /// The node passes its health checks.
    Up(NodeId),
    /// The node fails its health checks.
    Down(NodeId),
    /// The node finishes its requests and gets no new ones, whatever its health checks say.
    Draining(NodeId),
    /// The node is no longer drained.
    Resumed(NodeId),
    /// The measured or configured capacity of the node in slot-seconds per second. It must be finite and
    /// greater than 0, otherwise it is ignored.
    Capacity(NodeId, f64),
    /// Numbers of requests being processed, as counted by the node's collector.
    Load {
        /// The node.
        node: NodeId,
        /// Requests for static content.
        static_content: u32,
        /// Requests for dynamic content.
        dynamic_content: u32,
    },
}

/// An action that the driver must take on a waiting request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Forward it now.
    Release {
        /// The request.
        ticket: Ticket,
        /// Its [`Arrival::token`].
        token: u64,
        /// The node to forward to.
        node: NodeId,
        /// Time that it waited.
        waited: Duration,
    },
    /// Refuse it.
    Shed {
        /// The request. The ticket is stale from now on.
        ticket: Ticket,
        /// Its [`Arrival::token`].
        token: u64,
        /// The reason, and the time for a new try.
        shed: Shed,
        /// Time that it waited.
        waited: Duration,
    },
}

named! {
    /// Whether the engine has seen requests wait for one another in flight.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Contention {
        /// No contention was seen. No owed request is held back.
        Unseen = "unseen",
        /// Contention was seen, but times in flight have changed since. On trial, no owed request is held back.
        Trial = "trial",
        /// Contention was seen, or is being tested. The window also bounds owed requests.
        Seen = "seen",
    }
}

/// The latest change of a window, for [`crate::Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// Time of the change.
    pub at: Time,
    /// Size before it, in requests. A window that swings counts at its high end.
    pub from: u32,
    /// Size after it, in requests.
    pub to: u32,
    /// Reason for it.
    pub why: Why,
}

/// The reason why the window moved or stayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// The window has its initial size.
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
    /// No class has a response-time limit, so nothing asks for a smaller window.
    NoLimit,
    /// A new policy set it.
    Reconfigured,
    /// It was taken over from another engine.
    Adopted,
    /// Compute times would allow a step up, but the window held no request back since the last step.
    NotFull,
    /// Response times at two sizes of the window were compared.
    Elasticity {
        /// Change of response time per change of the window, both as logarithms. 0 if requests in flight do
        /// not wait for one another, 1 if additional requests only wait.
        elasticity: f64,
        /// Whether the window still searches for the knee in large steps.
        searching: bool,
    },
    /// The window follows the ratio of long-term to short-term response times.
    Gradient {
        /// Factor applied to the window before the allowance for a queue, from 0.5 to 1.
        gradient: f64,
    },
    /// An answer came in time while the window was in use.
    InTime,
    /// An answer was late, or a request failed.
    Late,
    /// Requests were answered without a sign that they wait for one another: the knee is not below the
    /// number in flight.
    Answered,
    /// Requests have been seen to wait for one another. The window starts at the number then in flight, and
    /// also bounds owed requests.
    Contention,
    /// A class computed so long that it misses its limit, although no owed request was held back. The window
    /// bounds owed requests for a while, to see whether times fall.
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
