//! The requests of a log in memory.
//!
//! A simulation needs all requests in order of arrival, and a log is in order of their ends. So they are kept, each in
//! a few dozen bytes, and their number is bounded.

use std::collections::HashMap;
use std::time::Duration;

use weirgate_clock::since_1970;
use weirgate_engine::ShedReason;
use weirgate_wire::access_log::LoggedRequest;

/// Maximum number of requests in one replay. With two policies they take about 500 bytes each at the peak, so this is
/// 1 GB.
pub const MAX_REQUESTS: usize = 2_000_000;

/// Maximum number of kinds of requests for which service times are drawn separately. A kind is a class, a method and
/// the first segment of a path. Requests of further kinds are drawn from their class.
const MAX_KINDS: usize = 10_000;

/// Maximum number of endings that are counted by name. The gateway has eight.
const MAX_ENDINGS: usize = 16;

/// How a logged request ended, as far as a replay can play it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A node answered it.
    Served,
    /// The gateway refused it, for this reason. `None` if a newer version has another reason.
    Shed(Option<ShedReason>),
    /// The nodes failed to serve it.
    Failed,
    /// The client left first.
    Left,
}

/// A logged request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logged {
    /// Arrival in nanoseconds since 1970.
    pub at: u64,
    /// Microseconds from arrival to release or refusal.
    pub wait: u32,
    /// Microseconds from release to the node's last byte.
    pub service: u32,
    /// Microseconds from arrival to the end.
    pub total: u32,
    /// Index into [`Requests::nodes`], or `u32::MAX` if it was not at a node.
    pub node: u32,
    /// Index into [`Requests::classes`].
    pub class: u32,
    /// Number of its kind, for drawing service times.
    pub kind: u32,
    /// How it ended.
    pub ending: Ending,
    /// Requests for which it stands: more than 1 if the log is a sample.
    pub copies: f32,
}

/// Mark of a request that was not at a node.
pub const NO_NODE: u32 = u32::MAX;

/// The part of a log to replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selection {
    /// Earliest arrival, since 1970.
    pub from: Option<Duration>,
    /// Arrivals before this, since 1970.
    pub to: Option<Duration>,
    /// Share of the requests, other than sheds and errors, that the gateway logged: above 0, at most 1.
    pub sample: f64,
}

impl Default for Selection {
    fn default() -> Self {
        Selection { from: None, to: None, sample: 1.0 }
    }
}

/// Names with their numbers.
#[derive(Clone, Debug, Default)]
struct Names {
    all: Vec<String>,
    index: HashMap<String, u32>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.index.get(name) {
            return *number;
        }
        let number = self.all.len() as u32;
        self.all.push(name.to_owned());
        self.index.insert(name.to_owned(), number);
        number
    }
}

/// The requests of a log that can be replayed.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    selection: Selection,
    /// The requests, in order of the log.
    pub all: Vec<Logged>,
    /// Lines that are left out because the gateway answered them itself or handed them over: refusals of invalid
    /// requests, redirects, challenges and tunnels, by their ending.
    pub left_out: Vec<(String, u64)>,
    /// Lines outside the selected time.
    pub outside: u64,
    classes: Names,
    nodes: Names,
    kinds: HashMap<(u32, String), u32>,
}

impl Requests {
    /// Creates an empty collection for this part of a log.
    pub fn new(selection: Selection) -> Requests {
        Requests { selection, ..Requests::default() }
    }

    /// Names of the classes in the log.
    pub fn classes(&self) -> &[String] {
        &self.classes.all
    }

    /// Names of the nodes in the log.
    pub fn nodes(&self) -> &[String] {
        &self.nodes.all
    }

    /// Number of kinds of requests. Kinds are numbered from 0.
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// Share of the requests, other than sheds and errors, that were logged.
    pub fn sample(&self) -> f64 {
        self.selection.sample
    }

    /// Keeps a request. Returns its number, or `None` if it cannot be replayed, which is counted.
    ///
    /// # Errors
    /// The log has too many requests, or one whose time is no date.
    pub fn add(&mut self, request: &LoggedRequest<'_>) -> Result<Option<usize>, String> {
        let ending = match &*request.ending {
            "served" => Ending::Served,
            "failed" => Ending::Failed,
            "left" => Ending::Left,
            "shed" => {
                let reason = request.reason.as_deref();
                Ending::Shed(ShedReason::ALL.into_iter().find(|known| Some(known.as_str()) == reason))
            }
            other => {
                match self.left_out.iter().position(|(word, _)| word == other) {
                    Some(place) => self.left_out[place].1 += 1,
                    None if self.left_out.len() < MAX_ENDINGS => self.left_out.push((other.to_owned(), 1)),
                    None => {}
                }
                return Ok(None);
            }
        };
        let end = since_1970(&request.time)
            .ok_or_else(|| format!("{:?} is no time of an access log; write 2026-11-26T10:00:00.000Z", request.time))?;
        let total = micros(request.total_ms.unwrap_or_default());
        // The log cuts the end to whole milliseconds, so on average it was half a millisecond later.
        let at = nanos(end).saturating_add(500_000).saturating_sub(u64::from(total) * 1000);
        let Selection { from, to, sample } = self.selection;
        if from.is_some_and(|from| at < nanos(from)) || to.is_some_and(|to| at >= nanos(to)) {
            self.outside += 1;
            return Ok(None);
        }
        if self.all.len() >= MAX_REQUESTS {
            return Err(format!(
                "the log has more than {MAX_REQUESTS} requests up to {}; choose a part of it with --from and --to",
                request.time
            ));
        }
        let is_sampled = matches!(ending, Ending::Served | Ending::Left);
        let class = self.classes.number(request.class.as_deref().unwrap_or_default());
        let kind = self.kind(class, request);
        let node = request.node.as_deref().map_or(NO_NODE, |node| self.nodes.number(node));
        self.all.push(Logged {
            at,
            wait: micros(request.queue_wait_ms.unwrap_or_default()),
            service: micros(request.service_time_ms.unwrap_or_default()),
            total,
            node,
            class,
            kind,
            ending,
            copies: if is_sampled { (1.0 / sample) as f32 } else { 1.0 },
        });
        Ok(Some(self.all.len() - 1))
    }

    fn kind(&mut self, class: u32, request: &LoggedRequest<'_>) -> u32 {
        let path = request.path.as_deref().unwrap_or_default();
        let path = path.strip_prefix('/').unwrap_or(path);
        let segment = path.split(['/', '?']).next().unwrap_or_default();
        let next = self.kinds.len() as u32;
        let mut key = (class, format!("{} {segment}", request.method.as_deref().unwrap_or_default()));
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(&key) {
            key.1.clear();
        }
        *self.kinds.entry(key).or_insert(next)
    }

    /// Returns the earliest arrival and the latest, in nanoseconds since 1970.
    pub fn span(&self) -> Option<(u64, u64)> {
        let first = self.all.iter().map(|request| request.at).min()?;
        let last = self.all.iter().map(|request| request.at).max()?;
        Some((first, last))
    }
}

/// Returns milliseconds as whole microseconds. Nonsense becomes 0, and more than 71 minutes become 71 minutes.
fn micros(milliseconds: f64) -> u32 {
    // The cast saturates, and makes NaN zero.
    (milliseconds * 1e3).round() as u32
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ending: &str, time: &str) -> LoggedRequest<'static> {
        LoggedRequest {
            time: time.to_owned().into(),
            class: Some("gold".into()),
            ending: ending.to_owned().into(),
            method: Some("GET".into()),
            path: Some("/shop/1?x=2".into()),
            node: Some("n1".into()),
            queue_wait_ms: Some(2.0),
            service_time_ms: Some(7.5),
            total_ms: Some(10.0),
            ..LoggedRequest::default()
        }
    }

    #[test]
    fn arrivals_are_ends_minus_totals() {
        let mut requests = Requests::new(Selection { sample: 0.25, ..Selection::default() });
        requests.add(&line("served", "1970-01-01T00:00:01.000Z")).unwrap();
        requests
            .add(&LoggedRequest { reason: Some("overload".into()), ..line("shed", "1970-01-01T00:00:02.000Z") })
            .unwrap();
        assert_eq!(requests.add(&line("redirected", "1970-01-01T00:00:02.000Z")).unwrap(), None);
        let [served, shed] = requests.all.as_slice() else { panic!("two") };
        assert_eq!((served.at, served.wait, served.service, served.copies), (990_500_000, 2000, 7500, 4.0));
        assert_eq!((shed.ending, shed.copies), (Ending::Shed(Some(ShedReason::Overload)), 1.0));
        assert_eq!((served.kind, shed.kind, requests.kinds()), (0, 0, 1));
        assert_eq!(requests.left_out, [("redirected".to_owned(), 1)]);
        assert!(requests.add(&line("served", "yesterday")).unwrap_err().contains("is no time"));
    }

    #[test]
    fn a_part_of_the_log_is_selected_by_arrival() {
        let second = Duration::from_secs;
        let mut requests = Requests::new(Selection { from: Some(second(5)), to: Some(second(6)), sample: 1.0 });
        for (time, kept) in
            [("04.900", false), ("05.005", false), ("05.011", true), ("06.005", true), ("06.011", false)]
        {
            let found = requests.add(&line("served", &format!("1970-01-01T00:00:{time}Z"))).unwrap();
            assert_eq!(found.is_some(), kept, "{time}");
        }
        assert_eq!((requests.all.len(), requests.outside), (2, 3));
    }

    #[test]
    fn nonsense_times_are_bounded() {
        assert_eq!([f64::NAN, -1.0, 1e300, 1.0].map(micros), [0, 0, u32::MAX, 1000]);
    }
}
