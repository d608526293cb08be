//! The parts without sockets, in virtual time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Extension, State};
use http::StatusCode;
use weirgate_config::{Etcd, Sharing};
use weirgate_engine::{Beside, ClassId, Lease, Part, Time, WindowUse};
use weirgate_http_server::Peer;
use weirgate_site::{
    Coordinator, Grant, GroupShare, GroupUse, MAX_BUDGET, MAX_BUDGETS, MAX_EJECTED, Record, Report, Settings, Step,
};
use weirgate_tls::{ClientSettings, Party, Role};
use weirgate_wire::LearnedState;
use weirgate_wire::admin::EventKind;

use crate::learned;
use crate::member::Meter;
use crate::messages::{MAX_SITE_BYTES, SiteReport};
use crate::state::{Elected, Shared};
use crate::{Floors, Seen};

fn settings(classes: usize, floor: u64) -> Sharing {
    let tls = ClientSettings { ca: None, server_name: None, own: None, verify: true };
    let agreed = Settings::new(2, vec![floor; classes]).check().expect("sound settings");
    Sharing {
        members: [("a", "127.0.0.1:1"), ("b", "127.0.0.1:2")].map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec(),
        own: 0,
        electable: vec![0, 1],
        listen: weirgate_listening::Address::Tcp(([127, 0, 0, 1], 1).into()),
        etcd: Etcd { endpoints: Vec::new(), tls, user: None, prefix: "p".into() },
        rollouts: false,
        classes: (0..classes).map(|class| (format!("c{class}"), ClassId(class as u32))).collect(),
        agreed: Arc::new(agreed),
        checksum: "one".into(),
    }
}

/// One call of the engine: a lease, and parts that changed.
type Kept = (Lease, Vec<(usize, Part)>);

/// An engine that notes its calls.
#[derive(Default)]
struct Noted {
    nanos: AtomicU64,
    kept: Mutex<Vec<Kept>>,
    told: Mutex<Vec<EventKind>>,
    /// Whether another policy is in force.
    is_other: AtomicBool,
}

impl Floors for Noted {
    fn now(&self) -> Time {
        Time::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn arrivals(&self, counts: &mut Vec<u64>) {
        if !self.is_other.load(Ordering::Relaxed) {
            counts.push(0);
        }
    }

    fn keep(&self, lease: Lease, parts: &[(usize, Part)]) {
        self.kept.lock().expect("no panic").push((lease, parts.to_vec()));
    }

    fn windows(&self) -> Vec<WindowUse> {
        Vec::new()
    }

    fn beside(&self, _: Time, _: &[Beside]) {}

    fn ejected(&self) -> Vec<String> {
        Vec::new()
    }

    fn ejected_at_site(&self, _: &[String]) {}

    fn learned(&self) -> LearnedState {
        LearnedState::default()
    }

    fn take_over(&self, _: LearnedState, _: Duration) -> Option<String> {
        None
    }

    fn tell(&self, kind: EventKind, _: String) {
        self.told.lock().expect("no panic").push(kind);
    }

    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn put(&self, _: &str, _: &str, _: bool) -> Result<(), String> {
        Ok(())
    }

    fn put_back(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn seen(&self) -> Seen {
        Seen::default()
    }
}

fn shared(settings: Sharing) -> (Arc<Noted>, Shared) {
    let floors = Arc::new(Noted::default());
    let shared = Shared::new(settings, None, Arc::<Noted>::clone(&floors), None);
    (floors, shared)
}

fn largest_report() -> Report {
    Report {
        revision: u64::MAX,
        incarnation: u64::MAX,
        number: u64::MAX,
        applied: u64::MAX,
        held: Some(vec![MAX_BUDGET; MAX_BUDGETS]),
        demands: (0..MAX_BUDGETS as u32).map(|budget| (budget, MAX_BUDGET)).collect(),
        windows: vec![
            GroupUse {
                base: 1,
                least: 2,
                in_flight: 3,
                owed: 4,
                waiting: 5,
                claiming: 4,
                answers: 6,
                work: u32::MAX
            };
            64
        ],
        ejected: vec!["n".repeat(128); MAX_EJECTED],
        leaving: true,
    }
}

#[test]
fn nothing_is_counted_while_another_policy_is_in_force() {
    let (floors, shared) = shared(settings(1, 1_000_000));
    let mut meter = Meter::new(&shared);
    // Several looks, because the new policy's part may begin late on a busy machine.
    for (look, is_other) in [(1, false), (2, true), (3, true), (4, true), (5, false), (6, false)] {
        floors.is_other.store(is_other, Ordering::Relaxed);
        floors.nanos.store(look * 30_000_000, Ordering::Relaxed);
        meter.measure(&shared);
    }
}

#[test]
fn messages_survive_the_passage_and_the_largest_ones_fit() {
    let report = largest_report();
    let text = serde_json::to_vec(&SiteReport::new(&settings(1, 1_000_000), report.clone())).expect("JSON");
    assert!(text.len() as u64 <= MAX_SITE_BYTES, "{}", text.len());
    let read: SiteReport = serde_json::from_slice(&text).expect("its own text");
    assert_eq!((read.member.as_str(), read.checksum.as_str()), ("a", "one"));
    assert_eq!(read.report, report);
    let shares = report.demands;
    for step in [Step::State, Step::Goodbye, Step::Shares { base: u64::MAX, shares }] {
        let window = GroupShare { others: 1, answers: 2, work: 3, high: true, part: 4, factor: u32::MAX };
        let windows = vec![window; 64];
        let grant = Grant {
            revision: 1,
            incarnation: 2,
            report: 3,
            sequence: 4,
            step,
            windows,
            ejected: vec!["n".repeat(128); MAX_EJECTED],
        };
        let text = serde_json::to_vec(&grant).expect("JSON");
        assert!(text.len() as u64 <= MAX_SITE_BYTES, "{}", text.len());
        assert_eq!(serde_json::from_slice::<Grant>(&text).expect("its own text"), grant);
    }
}

#[tokio::test]
async fn reports_are_taken_from_the_gateway_that_they_name_alone() {
    let (_, shared) = shared(settings(1, 1_000_000));
    let report = |change: fn(&mut SiteReport)| {
        let mut other = settings(1, 1_000_000);
        other.own = 1;
        let mut report = SiteReport::new(&other, Report { demands: Vec::new(), held: None, ..largest_report() });
        (report.report.revision, report.report.applied, report.report.leaving) = (7, 0, false);
        change(&mut report);
        report
    };
    let party = |name: &str| Peer {
        address: None,
        party: Some(Party { site: "s".into(), role: Role::Gateway, name: name.into() }),
    };
    let status = |peer: &Peer, report| shared.take(peer, report).map_err(|(status, _)| status).map(drop);
    let right = party("b");
    assert_eq!(status(&right, report(|_| {})), Err(StatusCode::CONFLICT), "it is not elected");
    {
        let mut state = shared.lock();
        let agreed = Arc::clone(&shared.settings.agreed);
        state.coordinator = Some(Coordinator::new(Time::ZERO, agreed, 7, &[Record::Nothing; 2]));
    }
    assert_eq!(status(&party("a"), report(|_| {})), Err(StatusCode::FORBIDDEN));
    assert_eq!(status(&party("c"), report(|r| r.member = "c".into())), Err(StatusCode::NOT_FOUND));
    for change in [
        (|r| r.version = 9) as fn(&mut SiteReport),
        |r| r.checksum = "other".into(),
        |r| r.report.revision = 8,
        |r| r.report.demands = vec![(9, 1)],
    ] {
        assert_eq!(status(&right, report(change)), Err(StatusCode::CONFLICT));
    }
    assert_eq!(status(&right, report(|_| {})), Ok(()));
    assert_eq!(status(&Peer::default(), report(|_| {})), Err(StatusCode::CONFLICT), "the same one again");
}

/// Questions for what was learned are limited, because an answer costs some milliseconds.
#[tokio::test]
async fn g5_questions_of_each_member_are_limited() {
    let (floors, shared) = shared(settings(1, 1_000_000));
    let shared = Arc::new(shared);
    let ask = async |name: &str| {
        let party = Some(Party { site: "s".into(), role: Role::Gateway, name: name.into() });
        let peer = Extension(Peer { address: None, party });
        learned::tell(State(Arc::clone(&shared)), peer).await.status()
    };
    let many = StatusCode::TOO_MANY_REQUESTS;
    assert_eq!([ask("b").await, ask("b").await, ask("b").await], [StatusCode::OK, StatusCode::OK, many]);
    assert_eq!(ask("a").await, StatusCode::OK, "the other one has its own limit");
    floors.nanos.store(1_000_000_000, Ordering::Relaxed);
    assert_eq!(ask("b").await, StatusCode::OK);
}

/// A flood of reports is refused, and each member has a limit of its own.
#[tokio::test]
async fn g5_reports_of_each_member_are_limited() {
    let (floors, shared) = shared(settings(1, 1_000_000));
    let pace = shared.settings.agreed.settings().pace;
    let report = |name: &str| {
        let mut report = SiteReport::new(&settings(1, 1_000_000), largest_report());
        report.member = name.into();
        report
    };
    let peer = |name: &str| Peer {
        address: None,
        party: Some(Party { site: "s".into(), role: Role::Gateway, name: name.into() }),
    };
    let statuses = |from: &str, name: &str| {
        let status = || shared.take(&peer(from), report(name)).map(drop).expect_err("it is not elected").0;
        (0..1_000).map(|_| status()).collect::<Vec<_>>()
    };
    let count = |statuses: &[StatusCode]| statuses.iter().filter(|&&s| s == StatusCode::TOO_MANY_REQUESTS).count();
    // Under another's name it still uses its own limit.
    let flood = statuses("b", "a");
    let honest = (2.0 / pace.as_secs_f64()) as usize;
    assert!(flood[..honest].iter().all(|&status| status == StatusCode::FORBIDDEN));
    assert_eq!(count(&flood), 1_000 - honest);
    assert_eq!(count(&statuses("a", "a")), 1_000 - honest, "the other one has its own");
    // A second later there may be as many again.
    floors.nanos.store(1_000_000_000, Ordering::Relaxed);
    assert_eq!(count(&statuses("b", "b")), 1_000 - honest);
}

/// The elected gateway shows the shares of each gateway in the largest guarantees, and the part that nobody has stated.
#[test]
fn shares_of_each_gateway_are_those_of_the_largest_guarantees() {
    let mut all = settings(150, 1_000_000);
    let budgets = (0..150).map(|budget| 1_000_000 + 1_000 * budget).collect();
    all.agreed = Arc::new(Settings::new(2, budgets).check().expect("sound settings"));
    let (_, shared) = shared(all);
    let status = shared.status();
    assert!(status.members.iter().all(|member| member.shares.is_empty()), "it is not elected");
    assert_eq!((status.classes_left_out, status.classes[0].site_demand_per_second), (0, None));
    let agreed = Arc::clone(&shared.settings.agreed);
    shared.lock().coordinator = Some(Coordinator::new(Time::ZERO, agreed, 7, &[Record::Nothing, Record::Granted]));
    let status = shared.status();
    assert_eq!(status.classes_left_out, 50);
    for member in &status.members {
        let names: Vec<&str> = member.shares.iter().map(|share| share.class.as_str()).collect();
        assert_eq!((names.len(), names[0], names[99]), (100, "c149", "c50"));
    }
    let whole = &status.classes[149];
    let held: f64 = status.members.iter().map(|member| member.shares[0].held_per_second).sum();
    let unstated = whole.unstated_per_second.expect("a silent gateway may hold anything");
    assert!((held + unstated - whole.held_per_second.expect("it is elected")).abs() < 1e-9, "{whole:?}");
}

/// The elected gateway grants itself its demand, and the engine has a lower share before it is confirmed.
#[tokio::test]
async fn shares_reach_the_engine() {
    let (floors, shared) = shared(settings(1, 100_000_000));
    shared.begin(3);
    {
        let mut state = shared.lock();
        let agreed = Arc::clone(&shared.settings.agreed);
        state.coordinator = Some(Coordinator::new(Time::ZERO, agreed, 7, &[Record::Nothing; 2]));
        state.elected = Some(Elected { revision: 7, name: "a".into() });
        state.member.follow(7);
    }
    let run = |until: u64, demand: u64| {
        while floors.now() < Time::from_millis(until) {
            floors.nanos.fetch_add(10_000_000, Ordering::Relaxed);
            {
                let mut state = shared.lock();
                state.coordinator.as_mut().expect("it is elected").proved(floors.now());
                state.member.demand(0, demand);
                // The records are kept at once.
                while let Some((member, record)) = state.records.pop_front() {
                    state.coordinator.as_mut().expect("it is elected").recorded(member, record);
                }
            }
            crate::member::step_alone(&shared);
            shared.divide_once();
        }
        crate::member::step_alone(&shared);
        floors
            .kept
            .lock()
            .expect("no panic")
            .iter()
            .rev()
            .find_map(|(_, parts)| parts.first().map(|part| part.1.granted))
    };
    assert_eq!(run(1_000, 60_000_000), Some(0.5), "a predecessor may still act");
    assert!(run(3_000, 60_000_000).is_some_and(|share| share >= 60.0));
    let status = shared.status();
    assert_eq!((status.coordinator.as_deref(), status.members[0].phase.as_deref()), (Some("a"), Some("live")));
    assert!(status.classes[0].held_per_second.is_some_and(|held| held <= 100.0));
    let held: Vec<f64> = status.members.iter().map(|member| member.shares[0].held_per_second).collect();
    assert_eq!(status.classes[0].held_per_second, Some(held.iter().sum()), "{held:?}");
    let demands: Vec<Option<f64>> = status.members.iter().map(|member| member.shares[0].demand_per_second).collect();
    assert_eq!(demands, [Some(60.0), None], "the other one has no lease");
    assert_eq!((status.classes[0].site_demand_per_second, status.classes_left_out), (Some(60.0), 0));
    // Another gateway needs as much.
    let farewell = { shared.lock().member.ends().expect("it was granted something").0 };
    assert!(farewell > floors.now() + Duration::from_secs(4));
    shared.end(true);
    run(3_200, 60_000_000);
    assert_eq!(
        floors.kept.lock().expect("no panic").last().map(|(lease, _)| *lease),
        Some(Lease::ENDED),
        "it has left"
    );
    assert!(shared.lock().member.is_gone());
    assert_eq!(*floors.told.lock().expect("no panic"), [EventKind::SharesGranted], "an end that is wanted is no news");
}
