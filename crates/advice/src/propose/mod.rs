//! Proposes a policy from observations.
//!
//! `choose` finds classes in the counts of a log, `observed` has what is known of a class wherever it comes from,
//! `figures` derives the promises, and `table` prints them for people.

mod choose;
mod figures;
pub(crate) mod observed;
mod table;

use crate::log::calendar_text;
use crate::numbers::{count, long, percent};
use crate::policy::Policy;
use crate::tally::{SITE, Tally};
pub(crate) use figures::propose;

/// Where clients connect if nothing is known: a port that needs no rights, on this machine only.
pub(crate) const LISTEN: &str = "127.0.0.1:8080";

/// Address of a server if nothing is known. Applications under development often listen there.
pub(crate) const NODE: &str = "127.0.0.1:8000";

/// A proposal.
#[derive(Clone, Debug)]
pub struct Proposal {
    policy: Policy,
    table: String,
    notes: Vec<String>,
}

impl Proposal {
    /// Returns the policy, with a comment on each figure.
    pub fn yaml(&self) -> String {
        self.policy.yaml()
    }

    /// Returns a table of the classes, for people.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Returns remarks: facts that cannot be known, and parts of the proposal to check first.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Proposes a policy from the counts of logs. `sources` names them, and `nodes` are the addresses of the servers, if
/// the operator gave them.
///
/// # Errors
/// There is no request, or an address is wrong.
pub fn from_logs(mut tally: Tally, sources: &str, nodes: &[String]) -> Result<Proposal, String> {
    if tally.requests() == 0 {
        return Err("there is no request in it, so there is nothing to propose".into());
    }
    let mut notes = Vec::new();
    let mut seen = choose::observed(&mut tally, &mut notes);
    choose::nodes(&mut seen, &tally, nodes, &mut notes)?;
    let (from, to) = tally.span_ms.unwrap_or_default();
    let requests = count(tally.requests());
    let what = format!("{requests} requests, {} to {} ({sources})", calendar_text(from), calendar_text(to));
    seen.about.insert(0, format!("Proposed by `weirgate recommend` from {what}."));
    let failed = tally.requests() - tally.rows[SITE].served;
    if failed * 100 > tally.requests() {
        let share = percent(failed as f64 / tally.requests() as f64);
        notes.push(format!(
            "{share} of the requests failed or were refused. Their rate counts, their times do not. If that was an \
             overload, use the log of a quiet day, too"
        ));
    }
    let covered = (to - from) as f64 / 1e3;
    if covered < 86_400.0 {
        notes.push(format!(
            "the log covers {}. Busy hours that are not in it are not in the figures: a week is better",
            long(covered)
        ));
    }
    Ok(propose(seen, notes))
}

#[cfg(test)]
mod tests;
