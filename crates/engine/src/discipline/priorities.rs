//! SEDA's table of priorities (Le Baron and Elkan, Sec. 4.1), and the check of any such table.

use super::{Handle, PriorityLevel};
use crate::policy::InvalidPolicy;

impl PriorityLevel {
    /// The paper's table (Sec. 4.1): `basic`, `again`, `premium`, with codes 0, 1, 2.
    pub fn seda() -> Vec<PriorityLevel> {
        let priority = |name: &str, rank, threshold, handle, reenqueued| PriorityLevel {
            name: name.into(),
            rank,
            threshold,
            quota: None,
            beyond: 0.0,
            handle,
            reenqueued,
        };
        vec![
            priority("basic", 0, 1.0, Handle::Never, 1),
            priority("again", 1, 1.5, Handle::Always, 1),
            priority("premium", 2, 2.0, Handle::Always, 2),
        ]
    }

    /// Whether a request with this priority is handled in the end. If not, it is put back for ever, or its
    /// next priority is not in the table.
    pub fn is_handled(priorities: &[PriorityLevel], code: usize) -> bool {
        let mut next = code;
        // A chain that is longer than the table is a cycle.
        for _ in 0..priorities.len() {
            match priorities.get(next) {
                Some(priority) if priority.handle == Handle::Never => next = priority.reenqueued as usize,
                found => return found.is_some(),
            }
        }
        false
    }

    /// Checks a table of priorities.
    pub(super) fn validate(priorities: &[PriorityLevel]) -> Result<(), InvalidPolicy> {
        for (code, priority) in priorities.iter().enumerate() {
            let fail = |what: &str| Err(InvalidPolicy(format!("priority {}: {what}", priority.name)));
            if !(priority.threshold.is_finite() && priority.threshold > 0.0) {
                return fail("threshold must be finite and > 0");
            }
            let chance = if let Handle::Chance(p) = priority.handle { p } else { 0.0 };
            if !(0.0..=1.0).contains(&priority.beyond) || !(0.0..=1.0).contains(&chance) {
                return fail("probabilities must lie between 0 and 1");
            }
            if priority.reenqueued as usize >= priorities.len() {
                return fail("it turns into a priority that does not exist");
            }
            if !PriorityLevel::is_handled(priorities, code) {
                return fail("its requests are put back for ever");
            }
        }
        Ok(())
    }
}
