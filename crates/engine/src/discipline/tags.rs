//! SEDA's table of priorities (Le Baron and Elkan, Sec. 4.1), and the check of any such table.

use super::{Handle, Tag};
use crate::policy::InvalidPolicy;

impl Tag {
    /// The paper's table (Sec. 4.1): `basic`, `again`, `premium`, with codes 0, 1, 2.
    #[must_use]
    pub fn seda() -> Vec<Tag> {
        let tag = |name: &str, rank, threshold, handle, reenqueued| Tag {
            name: name.into(),
            rank,
            threshold,
            quota: None,
            beyond: 0.0,
            handle,
            reenqueued,
        };
        vec![
            tag("basic", 0, 1.0, Handle::Never, 1),
            tag("again", 1, 1.5, Handle::Always, 1),
            tag("premium", 2, 2.0, Handle::Always, 2),
        ]
    }

    /// Whether a request with this priority is handled in the end. If not, it is put back for ever, or its
    /// next priority is not in the table.
    #[must_use]
    pub fn is_handled(tags: &[Tag], code: usize) -> bool {
        let mut next = code;
        // A chain that is longer than the table is a cycle.
        for _ in 0..tags.len() {
            match tags.get(next) {
                Some(tag) if tag.handle == Handle::Never => next = tag.reenqueued as usize,
                found => return found.is_some(),
            }
        }
        false
    }

    /// Checks a table of priorities.
    pub(super) fn validate(tags: &[Tag]) -> Result<(), InvalidPolicy> {
        for (code, tag) in tags.iter().enumerate() {
            let fail = |what: &str| Err(InvalidPolicy(format!("tag {}: {what}", tag.name)));
            if !(tag.threshold.is_finite() && tag.threshold > 0.0) {
                return fail("threshold must be finite and > 0");
            }
            let chance = if let Handle::Chance(p) = tag.handle { p } else { 0.0 };
            if !(0.0..=1.0).contains(&tag.beyond) || !(0.0..=1.0).contains(&chance) {
                return fail("probabilities must lie between 0 and 1");
            }
            if tag.reenqueued as usize >= tags.len() {
                return fail("it turns into a tag that does not exist");
            }
            if !Tag::is_handled(tags, code) {
                return fail("its requests are put back for ever");
            }
        }
        Ok(())
    }
}
