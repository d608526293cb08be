//! Partitions of pools: a pool as a whole, or its part for one set of services.
//!
//! Source: Andreolini et al., Sec. 2 (StaticPart): servers are partitioned in as many sets as there are
//! classes of services. There are two classes of users, *top* (with any guarantee) and *normal*, and two of
//! content, which makes four sets. A pool has the sets of its classes. In the engine every set of such a
//! pool has a partition with its own nodes, and all state per pool is kept per partition. A pool that is not
//! divided is one partition.

use crate::index::{PartitionId, Table};
use crate::policy::{Class, Content, Dispatch, Policy};

named! {
    /// A set of services: a class of users and a kind of content.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ServiceSet {
        /// Files, for classes with a guarantee.
        TopStatic = "top_static",
        /// Computed pages, for classes with a guarantee.
        TopDynamic = "top_dynamic",
        /// Files, for classes without a guarantee.
        NormalStatic = "normal_static",
        /// Computed pages, for classes without a guarantee.
        NormalDynamic = "normal_dynamic",
    }
}

impl ServiceSet {
    /// The set that a class belongs to.
    pub fn of(class: &Class) -> ServiceSet {
        match (class.is_top(), class.content) {
            (true, Content::Static) => ServiceSet::TopStatic,
            (true, Content::Dynamic) => ServiceSet::TopDynamic,
            (false, Content::Static) => ServiceSet::NormalStatic,
            (false, Content::Dynamic) => ServiceSet::NormalDynamic,
        }
    }

    /// Whether it is a set of top users.
    pub const fn is_top(self) -> bool {
        matches!(self, ServiceSet::TopStatic | ServiceSet::TopDynamic)
    }

    /// Its index in [`ServiceSet::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The partitions of a policy.
#[derive(Clone, Debug)]
pub(crate) struct Partitions {
    /// Set of each partition. `None` is a pool as a whole.
    pub(crate) sets: Table<PartitionId, Option<ServiceSet>>,
    /// Pool of each partition.
    pub(crate) pools: Table<PartitionId, usize>,
    /// First partition of each pool, followed by the number of all partitions.
    first: Vec<u32>,
}

impl Partitions {
    pub(crate) fn new(policy: &Policy) -> Partitions {
        let mut partitions = Partitions { sets: Table::new(), pools: Table::new(), first: vec![0] };
        for (pool, spec) in policy.pools.iter().enumerate() {
            let divided = matches!(spec.dispatch, Dispatch::PartitionStatic { .. } | Dispatch::PartitionDynamic { .. });
            let has = |set: &ServiceSet| policy.all_classes().any(|c| c.pool == pool && ServiceSet::of(c) == *set);
            let mut sets: Vec<_> = ServiceSet::ALL.into_iter().filter(|set| divided && has(set)).map(Some).collect();
            if sets.is_empty() {
                sets.push(None);
            }
            for set in sets {
                partitions.sets.push(set);
                partitions.pools.push(pool);
            }
            partitions.first.push(partitions.sets.len() as u32);
        }
        partitions
    }

    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        self.sets.ids()
    }

    /// The partitions of a pool, at least one.
    pub(crate) fn of_pool(&self, pool: usize) -> impl ExactSizeIterator<Item = PartitionId> + use<> {
        (self.first[pool]..self.first[pool + 1]).map(PartitionId)
    }

    /// The first partition of a pool.
    pub(crate) fn first_of(&self, pool: usize) -> PartitionId {
        PartitionId(self.first[pool])
    }

    /// The sets of a pool. None if it is not divided.
    pub(crate) fn sets_of(&self, pool: usize) -> impl Iterator<Item = ServiceSet> + '_ {
        self.of_pool(pool).filter_map(|partition| self.sets[partition])
    }

    /// The partition that serves a class.
    pub(crate) fn of_class(&self, class: &Class) -> PartitionId {
        let set = Some(ServiceSet::of(class));
        let mut all = self.of_pool(class.pool);
        all.find(|partition| self.sets[*partition] == set).unwrap_or(self.first_of(class.pool))
    }
}
