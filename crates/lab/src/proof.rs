//! The account of every request by its id, from the client through the gateway to the nodes and back.
//!
//! A gateway may refuse and nodes may fail. But no request may be answered without a node's work, be served
//! twice, be lost, or reach a node without having been sent. The client gives every attempt a unique id.
//! The nodes log the ids that they received and the ids that they answered with 200 to the end. The proof
//! compares the two.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use weirgate_emulator::IdLog;
use weirgate_experiment::Fate;

/// One attempt of one request, from its client's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt<'a> {
    /// Its id, unique among all attempts, including those of the same request.
    pub id: &'a str,
    /// Time from the start of the run to its sending.
    pub sent: Duration,
    /// Its outcome.
    pub fate: Fate,
    /// Whether its reply names the node that sent it.
    pub from_node: bool,
}

/// How long the client listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Time from the start of the run to its end.
    pub ended: Duration,
    /// Time after which an attempt without an end counts as lost.
    pub patience: Duration,
}

/// The account of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Number of attempts.
    pub sent: u64,
    /// Number of attempts that a node answered to the end.
    pub answered: u64,
    /// Attempts that were served although no node answered them, that have a reply of a node which never
    /// received them, or that never ended although the client waited long enough.
    pub lost: Found,
    /// Ids that nodes answered to the end more than once.
    pub doubled: Found,
    /// Ids that nodes received but no client sent.
    pub phantom: Found,
}

/// Ids that violate an invariant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Number of such ids.
    pub count: u64,
    /// The first of them, at most five.
    pub first: Vec<String>,
}

/// Maximum number of ids to name: enough to search the logs for, and few enough to print.
const NAMED: usize = 5;

/// Number of entries of an id in the nodes' logs.
#[derive(Clone, Copy, Debug, Default)]
struct Traces {
    received: u32,
    answered: u32,
}

impl Proof {
    /// Compares the clients' attempts with the nodes' logs.
    ///
    /// # Errors
    /// Two attempts have the same id, or a log was too short for its node's ids. Then nothing can be proved.
    pub fn of<'a>(
        attempts: impl IntoIterator<Item = Attempt<'a>>,
        watch: Watch,
        logs: &[&IdLog],
    ) -> Result<Proof, String> {
        let mut traces: HashMap<&str, Traces> = HashMap::new();
        for (node, log) in logs.iter().enumerate() {
            if log.unlogged > 0 {
                return Err(format!(
                    "{} ids of node {node} did not fit into its log: make the run shorter or the log longer",
                    log.unlogged
                ));
            }
            log.received.iter().for_each(|id| traces.entry(id).or_default().received += 1);
            log.answered.iter().for_each(|id| traces.entry(id).or_default().answered += 1);
        }
        let mut ids: HashSet<&str> = HashSet::new();
        let mut proof = Proof {
            sent: 0,
            answered: 0,
            lost: Found::default(),
            doubled: Found::default(),
            phantom: Found::default(),
        };
        for attempt in attempts {
            if !ids.insert(attempt.id) {
                return Err(format!("two attempts were sent with the id {}, but ids must be unique", attempt.id));
            }
            let Traces { received, answered } = traces.get(attempt.id).copied().unwrap_or_default();
            let is_invented = attempt.fate == Fate::Served && answered == 0 || attempt.from_node && received == 0;
            let waited = watch.ended.saturating_sub(attempt.sent);
            if is_invented || attempt.fate == Fate::Cut && waited >= watch.patience {
                proof.lost.add(attempt.id);
            }
            proof.sent += 1;
            proof.answered += u64::from(answered > 0);
        }
        // Sorted by id, because the order of a hash map differs in every run.
        let mut of_nodes: Vec<(&str, Traces)> = traces.into_iter().collect();
        of_nodes.sort_unstable_by_key(|(id, _)| *id);
        for (id, traces) in of_nodes {
            if traces.answered > 1 {
                proof.doubled.add(id);
            }
            if !ids.contains(id) {
                proof.phantom.add(id);
            }
        }
        Ok(proof)
    }

    /// Returns whether every request is accounted for.
    pub fn holds(&self) -> bool {
        [&self.lost, &self.doubled, &self.phantom].iter().all(|found| found.count == 0)
    }
}

impl Found {
    fn add(&mut self, id: &str) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(id.to_owned());
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        if self.count > 0 {
            let more = if self.count > self.first.len() as u64 { ", …" } else { "" };
            write!(f, " ({}{more})", self.first.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Proof { sent, answered, lost, doubled, phantom } = self;
        write!(f, "{sent} sent, {answered} answered by nodes; lost {lost}, doubled {doubled}, never sent {phantom}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCH: Watch = Watch { ended: Duration::from_secs(60), patience: Duration::from_secs(10) };

    fn attempt(id: &str, fate: Fate) -> Attempt<'_> {
        Attempt { id, sent: Duration::from_secs(1), fate, from_node: fate == Fate::Served }
    }

    fn log(received: &[&str], answered: &[&str]) -> IdLog {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).into()).collect();
        IdLog { received: ids(received), answered: ids(answered), unlogged: 0 }
    }

    fn prove(attempts: &[Attempt<'_>], logs: &[IdLog]) -> Proof {
        Proof::of(attempts.iter().copied(), WATCH, &logs.iter().collect::<Vec<_>>()).expect("it can be proved")
    }

    fn found(ids: &[&str]) -> Found {
        Found { count: ids.len() as u64, first: ids.iter().map(|id| (*id).to_owned()).collect() }
    }

    #[test]
    fn refusals_failures_retries_and_departures_are_no_offence() {
        let late = Attempt { sent: Duration::from_secs(51), ..attempt("late", Fate::Cut) };
        let refused = Attempt { from_node: true, ..attempt("refused", Fate::Failed) };
        let attempts = [
            attempt("served", Fate::Served),
            attempt("retried", Fate::Served),
            attempt("shed", Fate::Shed),
            attempt("failed", Fate::Failed),
            attempt("left", Fate::Left),
            refused,
            late,
        ];
        // One node failed the retried request and the other served it. The request that left was answered in vain.
        let logs = [
            log(&["served", "retried", "refused"], &["served"]),
            log(&["retried", "left", "late"], &["retried", "left"]),
        ];
        let proof = prove(&attempts, &logs);
        assert!(proof.holds(), "{proof}");
        assert_eq!((proof.sent, proof.answered), (7, 3));
    }

    #[test]
    fn an_unanswered_request_was_not_served() {
        let invented = Attempt { from_node: false, ..attempt("invented", Fate::Served) };
        let foreign = Attempt { from_node: true, ..attempt("foreign", Fate::Failed) };
        let attempts = [attempt("worked on", Fate::Served), attempt("nowhere", Fate::Served), invented, foreign];
        let proof = prove(&attempts, &[log(&["worked on"], &[])]);
        assert_eq!(proof.lost, found(&["worked on", "nowhere", "invented", "foreign"]));
        assert!(!proof.holds() && proof.doubled.count + proof.phantom.count == 0);
    }

    #[test]
    fn what_has_no_end_is_lost_if_the_client_waited_for_it() {
        let cut = |id, sent| Attempt { sent: Duration::from_secs(sent), ..attempt(id, Fate::Cut) };
        let proof = prove(&[cut("hung", 50), cut("recent", 51)], &[log(&["hung", "recent"], &[])]);
        assert_eq!(proof.lost, found(&["hung"]));
    }

    #[test]
    fn work_that_was_done_twice_is_found_within_and_between_nodes() {
        let attempts = ["one", "two", "three"].map(|id| attempt(id, Fate::Served));
        let logs =
            [log(&["one", "one", "two", "three"], &["one", "one", "two", "three"]), log(&["two", "three"], &["two"])];
        let proof = prove(&attempts, &logs);
        assert_eq!(proof.doubled, found(&["one", "two"]));
        assert!(!proof.holds() && proof.lost.count + proof.phantom.count == 0);
    }

    #[test]
    fn a_request_that_was_not_sent_is_a_phantom_and_the_first_few_are_named() {
        let ids: Vec<String> = (0..9).map(|n| format!("ghost-{n}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let proof = prove(&[attempt("real", Fate::Served)], &[log(&ids, &[]), log(&["real", "ghost-0"], &["real"])]);
        assert_eq!((proof.phantom.count, proof.phantom.first.len()), (9, NAMED));
        assert_eq!(
            proof.to_string(),
            "1 sent, 1 answered by nodes; lost 0, doubled 0, \
             never sent 9 (ghost-0, ghost-1, ghost-2, ghost-3, ghost-4, …)"
        );
    }

    #[test]
    fn nothing_is_proved_from_incomplete_books() {
        let twice = [attempt("a", Fate::Served), attempt("a", Fate::Served)];
        let error = Proof::of(twice, WATCH, &[&log(&["a"], &["a"])]).expect_err("which of them was it?");
        assert!(error.contains("the id a"), "{error}");
        let short = IdLog { unlogged: 3, ..log(&["a"], &["a"]) };
        let error = Proof::of([attempt("a", Fate::Served)], WATCH, &[&short]).expect_err("three are unknown");
        assert!(error.contains("3 ids of node 0"), "{error}");
    }
}
