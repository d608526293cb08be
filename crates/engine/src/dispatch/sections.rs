//! Partitions of pools: a pool as a whole, or its part for one set of services.
//!
//! Source: Andreolini et al., Sec. 2 (StaticPart): servers are partitioned in as many sets as there are
//! classes of services. There are two classes of users, *top* (with any guarantee) and *normal*, and two of
//! content, which makes four sets. A pool has the sets of its classes. In the engine every set of such a
//! pool has a partition with its own nodes, and all state per pool is kept per partition. A pool that is not
//! divided is one partition.

use core::fmt;
use core::ops::Range;

use crate::policy::{Class, Content, Dispatch, Policy};

/// A set of services: a class of users and a kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceSet {
    /// Files, for classes with a guarantee.
    TopStatic,
    /// Computed pages, for classes with a guarantee.
    TopDynamic,
    /// Files, for classes without a guarantee.
    NormalStatic,
    /// Computed pages, for classes without a guarantee.
    NormalDynamic,
}

impl ServiceSet {
    /// All four, in a fixed order.
    pub const ALL: [ServiceSet; 4] =
        [ServiceSet::TopStatic, ServiceSet::TopDynamic, ServiceSet::NormalStatic, ServiceSet::NormalDynamic];

    /// The set that a class belongs to.
    #[must_use]
    pub fn of(class: &Class) -> ServiceSet {
        match (class.is_top(), class.content) {
            (true, Content::Static) => ServiceSet::TopStatic,
            (true, Content::Dynamic) => ServiceSet::TopDynamic,
            (false, Content::Static) => ServiceSet::NormalStatic,
            (false, Content::Dynamic) => ServiceSet::NormalDynamic,
        }
    }

    /// Whether it is a set of top users.
    #[must_use]
    pub const fn is_top(self) -> bool {
        matches!(self, ServiceSet::TopStatic | ServiceSet::TopDynamic)
    }

    /// Its index in [`ServiceSet::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word used in policies, snapshots and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ServiceSet::TopStatic => "top_static",
            ServiceSet::TopDynamic => "top_dynamic",
            ServiceSet::NormalStatic => "normal_static",
            ServiceSet::NormalDynamic => "normal_dynamic",
        }
    }
}

impl fmt::Display for ServiceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The partitions of a policy.
#[derive(Clone, Debug)]
pub(crate) struct Sections {
    /// Set of each partition. `None` is a pool as a whole.
    pub(crate) sets: Vec<Option<ServiceSet>>,
    /// Pool of each partition.
    pub(crate) pools: Vec<usize>,
    /// First partition of each pool, followed by the number of all partitions.
    first: Vec<usize>,
}

impl Sections {
    pub(crate) fn new(policy: &Policy) -> Sections {
        let mut sections = Sections { sets: Vec::new(), pools: Vec::new(), first: Vec::new() };
        let services = policy.services();
        for (index, pool) in policy.pools.iter().enumerate() {
            sections.first.push(sections.sets.len());
            let divided = matches!(pool.dispatch, Dispatch::PartitionStatic { .. } | Dispatch::PartitionDynamic { .. });
            let has = |set: &&ServiceSet| services.iter().any(|c| c.pool == index && ServiceSet::of(c) == **set);
            if divided {
                sections.sets.extend(ServiceSet::ALL.iter().filter(has).copied().map(Some));
            }
            if sections.first[index] == sections.sets.len() {
                sections.sets.push(None);
            }
            sections.pools.resize(sections.sets.len(), index);
        }
        sections.first.push(sections.sets.len());
        sections
    }

    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    /// The partitions of a pool, at least one.
    pub(crate) fn of_pool(&self, pool: usize) -> Range<usize> {
        self.first[pool]..self.first[pool + 1]
    }

    /// The partition that serves a class.
    pub(crate) fn of_class(&self, class: &Class) -> usize {
        let mut all = self.of_pool(class.pool);
        let whole = all.start;
        all.find(|section| self.sets[*section] == Some(ServiceSet::of(class))).unwrap_or(whole)
    }
}
