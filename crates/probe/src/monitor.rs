//! Monitor of the node: an agent's counters, and the part of them not caused by requests.
//!
//! Source: Feng and Lin, Sec. 3.1. Their monitor observes each request. Here the counters are read before and
//! after many requests. An idle server and the readings themselves also use resources. Both are measured in
//! advance and subtracted.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weirgate_http_client::{Address, Answer, Error, Limits, Request, exchange};
use weirgate_wire::{MAX_REPORT_BYTES, RESOURCE_NAMES, Report, Usage};

use crate::client::AGENT;

/// Maximum fraction of the idle server in a use before the idle server is measured again. It is a fifth of
/// the tolerated error of a cost.
const MUCH: f64 = 0.03;

/// Weight of a new measurement in the idle server's use. Four measurements take one second.
const RENEWED: f64 = 0.25;

/// Use of CPU, disk and bandwidth, in the agent's units.
pub type Used = [f64; 3];

/// Address of an agent, and how to query it.
#[derive(Clone, Debug)]
pub struct Monitor {
    /// The agent.
    pub address: Address,
    /// Path of the report.
    pub path: String,
    /// Timeout of a report.
    pub timeout: Duration,
}

/// Counted use while no request is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// Use by each reading.
    pub question: Used,
    /// Use per second.
    pub second: Used,
}

impl Monitor {
    /// Returns the present counters.
    ///
    /// # Errors
    /// The agent does not provide them. The message includes a remedy.
    pub async fn read(&self) -> Result<Usage, String> {
        let report = self.ask().await.and_then(|answer| Report::parse(&answer.body));
        let report = report.map_err(|why| format!("the agent at {}{}: {why}", self.address, self.path))?;
        report.usage.filter(|usage| usage.used.iter().any(Option::is_some)).ok_or_else(|| {
            format!(
                "the agent at {} counts no `usage`: run `weirgate agent` of this version on the server's machine",
                self.address
            )
        })
    }

    async fn ask(&self) -> Result<Answer, String> {
        let request = Request::get(&self.address.to_string(), &self.path).field("user-agent", AGENT);
        let limits = Limits::new(self.timeout, MAX_REPORT_BYTES as u64);
        let answer = exchange(&self.address, request, &limits).await;
        answer.and_then(Answer::ok).map_err(|error| match error {
            Error::Late(limit) => format!("no whole report within {} s", limit.as_secs_f64()),
            Error::Status(status) => format!("status {status}"),
            error => error.to_string(),
        })
    }
}

/// Returns the use between two reports, or 0 for a resource that is not counted.
///
/// # Errors
/// A counter has decreased because the agent was restarted.
pub fn between(before: &Usage, after: &Usage) -> Result<Used, String> {
    let mut used = [0.0; 3];
    for (at, used) in used.iter_mut().enumerate() {
        let (Some(before), Some(after)) = (before.used[at], after.used[at]) else { continue };
        if after < before {
            return Err(format!(
                "the agent's counter of {} has fallen, so the agent has restarted",
                RESOURCE_NAMES[at]
            ));
        }
        *used = after - before;
    }
    Ok(used)
}

impl Idle {
    /// Computes the idle use from the use by some consecutive readings, and the use in the following
    /// `seconds` with one reading at their end.
    pub fn of(questions: u32, asked: Used, seconds: f64, waited: Used) -> Idle {
        let question = asked.map(|used| used / f64::from(questions.max(1)));
        let second = [0, 1, 2].map(|at| ((waited[at] - question[at]) / seconds.max(1e-9)).max(0.0));
        Idle { question, second }
    }

    /// Updates the idle use with a measurement of `seconds` with one reading at their end.
    pub fn watched_again(&mut self, seconds: f64, waited: Used) {
        let now = Idle::of(0, [0.0; 3], seconds, [0, 1, 2].map(|at| waited[at] - self.question[at]));
        self.second = [0, 1, 2].map(|at| self.second[at] + RENEWED * (now.second[at] - self.second[at]));
    }

    /// Returns for each resource whether the idle server's part of `used` in `seconds` is significant, so
    /// that the present value must be known.
    pub fn matters(&self, used: Used, seconds: f64) -> [bool; 3] {
        [0, 1, 2].map(|at| self.second[at] * seconds > MUCH * used[at].max(0.0))
    }

    /// Returns `used` in `seconds`, with one reading at the end, without the part not caused by requests.
    pub fn taken_from(&self, used: Used, seconds: f64) -> Used {
        [0, 1, 2].map(|at| used[at] - self.question[at] - self.second[at] * seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_a_difference() {
        let usage = |cpu: f64, disk: Option<f64>| Usage { used: [Some(cpu), disk, None], capacity: [None; 3] };
        assert_eq!(between(&usage(1.0, Some(5.0)), &usage(3.5, Some(5.0))), Ok([2.5, 0.0, 0.0]));
        assert_eq!(between(&usage(1.0, None), &usage(1.0, Some(5.0))), Ok([0.0; 3]));
        let error = between(&usage(1.0, Some(5.0)), &usage(3.5, Some(4.0))).expect_err("it fell");
        assert!(error.contains("counter of disk has fallen"), "{error}");
    }

    #[test]
    fn questions_and_idleness_are_taken_away() {
        let idle = Idle::of(10, [0.1, 0.0, 3000.0], 2.0, [0.41, 0.0, 300.0]);
        assert_eq!(idle.question, [0.01, 0.0, 300.0]);
        assert!((idle.second[0] - 0.2).abs() < 1e-12 && idle.second[1..] == [0.0, 0.0], "{idle:?}");
        let mut now = idle;
        for _ in 0..20 {
            now.watched_again(0.25, [0.11, 0.0, 300.0]);
        }
        assert!((now.second[0] - 0.4).abs() < 0.001 && now.question == idle.question, "{now:?}");
        assert_eq!(idle.matters([6.0, 1.0, 0.0], 1.0), [true, false, false]);
        assert_eq!(idle.matters([7.0, 0.0, 0.0], 1.0), [false; 3], "an idle disk takes nothing away");
        let rest = idle.taken_from([1.0, 7.0, 1300.0], 2.0);
        assert!((rest[0] - 0.59).abs() < 1e-12 && rest[1..] == [7.0, 1000.0], "{rest:?}");
    }
}
