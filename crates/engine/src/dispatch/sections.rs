//! Sections: a pool as a whole, or its part for one set of services.
//!
//! Source: Andreolini et al., Sec. 2 (StaticPart): servers are partitioned in as many sets as there are classes of
//! services. With two classes of users, *top* (those that are promised anything) and *normal*, and two of content that
//! makes four; a pool has those that its classes belong to. Inside the engine every set of such a pool is a section
//! with nodes of its own, and everything that is kept per pool is kept per section; a pool that is not divided is
//! one section.

use core::fmt;
use core::ops::Range;

use crate::policy::{Class, Content, Dispatch, Policy};

/// Who asks, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceSet {
    /// Files, for a class that is promised something.
    TopStatic,
    /// Pages that are computed, for such a class.
    TopDynamic,
    /// Files, for a class that is promised nothing.
    NormalStatic,
    /// Pages that are computed, for such a class.
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

    /// Is it one of top users?
    #[must_use]
    pub const fn is_top(self) -> bool {
        matches!(self, ServiceSet::TopStatic | ServiceSet::TopDynamic)
    }

    /// Its place in [`ServiceSet::ALL`].
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

/// The sections of a policy.
#[derive(Clone, Debug)]
pub(crate) struct Sections {
    /// Per section its set; `None` is a pool as a whole.
    pub(crate) sets: Vec<Option<ServiceSet>>,
    /// Per section its pool.
    pub(crate) pools: Vec<usize>,
    /// Per pool its first section, and at last their number.
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

    /// The sections of a pool; at least one.
    pub(crate) fn of_pool(&self, pool: usize) -> Range<usize> {
        self.first[pool]..self.first[pool + 1]
    }

    /// Where a class's requests go.
    pub(crate) fn of_class(&self, class: &Class) -> usize {
        let mut all = self.of_pool(class.pool);
        let whole = all.start;
        all.find(|section| self.sets[*section] == Some(ServiceSet::of(class))).unwrap_or(whole)
    }
}
