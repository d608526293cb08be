//! SEDA's differentiated queues (Le Baron and Elkan): the published stage, literally, compared with the
//! engine, and the experiments of Secs. 6 and 7 in virtual time.

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use support::{Random, arrival, class, policy};
use weirgate_engine::*;

/// Service time at the bottleneck of Sec. 6, in milliseconds per request.
const SERVICE: u64 = 20;
/// Threshold of its queue.
const THRESHOLD: usize = 50;

const BASIC: u32 = 0;
const PREMIUM: u32 = 1;

fn engine(discipline: Discipline) -> Engine {
    let mut classes = vec![class("basic", None, None, None), class("premium", None, None, None)];
    classes[1].priority = 2;
    Engine::new(Time::ZERO, policy(discipline, 1, classes), 1).expect("a valid policy")
}

/// Outcome of a request and its time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Served(u64),
    Refused(u64),
}

/// The engine in front of one thread that serves requests one after the other.
struct Gateway {
    engine: Engine,
    in_flight: Option<(u64, Ticket, u64)>,
    ended: Vec<(u64, Fate)>,
}

impl Gateway {
    fn new(discipline: Discipline) -> Gateway {
        Gateway { engine: engine(discipline), in_flight: None, ended: Vec::new() }
    }

    fn enters(&mut self, now: u64, ticket: Ticket, token: u64) {
        assert!(self.in_flight.is_none(), "one thread serves one request");
        self.in_flight = Some((now + SERVICE, ticket, token));
    }

    fn arrives(&mut self, now: u64, class: u32, token: u64) {
        match self.engine.arrive(Time::from_millis(now), arrival(class, token, token)) {
            Decision::Release { ticket, .. } => self.enters(now, ticket, token),
            Decision::Wait { .. } => {}
            Decision::Shed(_) => self.ended.push((token, Fate::Refused(now))),
        }
    }

    /// Returns the time at which the request in flight is done.
    fn done(&self) -> Option<u64> {
        self.in_flight.map(|(at, ..)| at)
    }

    fn finishes(&mut self) {
        let Some((now, ticket, token)) = self.in_flight.take() else { return };
        self.ended.push((token, Fate::Served(now)));
        self.engine.observe(Time::from_millis(now), ticket, Outcome::LastByte { status: 200 });
        while let Some(action) = self.engine.poll(Time::from_millis(now)) {
            match action {
                Action::Release { ticket, token, .. } => self.enters(now, ticket, token),
                Action::Shed { token, .. } => self.ended.push((token, Fate::Refused(now))),
            }
        }
    }
}

/// The published stage: takes the whole queue as a batch and handles the batch in order.
#[derive(Default)]
struct Stage {
    queue: VecDeque<(u64, u32)>,
    batch: VecDeque<(u64, u32)>,
    handling: Option<(u64, u64)>,
    ended: Vec<(u64, Fate)>,
}

impl Stage {
    fn enqueue(&mut self, now: u64, token: u64, code: u32) {
        let size = self.queue.len() + self.batch.len();
        if size < [THRESHOLD, THRESHOLD * 3 / 2, THRESHOLD * 2][code as usize] {
            self.queue.push_back((token, code));
        } else {
            self.ended.push((token, Fate::Refused(now)));
        }
    }

    fn goes_on(&mut self, now: u64) {
        while self.handling.is_none() {
            if self.batch.is_empty() {
                core::mem::swap(&mut self.queue, &mut self.batch);
            }
            match self.batch.pop_front() {
                None => return,
                Some((token, 0)) => self.enqueue(now, token, 1),
                Some((token, _)) => self.handling = Some((now + SERVICE, token)),
            }
        }
    }
}

/// Random bursts and quiet periods. The engine refuses the same requests at the same times and serves the
/// others in the same order as the published stage, including its batches.
#[test]
fn does_what_the_published_stage_does() {
    for seed in 0..20 {
        let mut numbers = Random(seed);
        let (mut gateway, mut stage) = (Gateway::new(Discipline::seda()), Stage::default());
        let mut now = 0;
        for token in 0..5000 {
            // From 20 % to 400 % of the thread's capacity, a hundred requests at a time.
            now += numbers.below(2 * SERVICE * 5 / (1 + (token / 100) % 20));
            while gateway.done().is_some_and(|at| at <= now) {
                gateway.finishes();
            }
            while let Some((at, token)) = stage.handling.filter(|(at, _)| *at <= now) {
                stage.handling = None;
                stage.ended.push((token, Fate::Served(at)));
                stage.goes_on(at);
            }
            let class = u32::from(numbers.below(5) < 2);
            gateway.arrives(now, class, token);
            stage.enqueue(now, token, [0, 2][class as usize]);
            stage.goes_on(now);
        }
        assert!(stage.ended.iter().any(|(_, fate)| matches!(fate, Fate::Refused(_))), "seed {seed} refuses nobody");
        assert_eq!(gateway.ended, stage.ended, "seed {seed}");
    }
}

/// Outcomes of the clients of one kind in a run.
#[derive(Clone, Copy, Debug, Default)]
struct Got {
    served: f64,
    refused: f64,
    /// Sum of response times, in milliseconds.
    took: f64,
}

impl Got {
    fn refused_share(&self) -> f64 {
        self.refused / (self.served + self.refused).max(1.0)
    }

    fn mean(&self) -> f64 {
        self.took / self.served
    }
}

/// Runs clients that send, wait, read, sleep for 20 ms and send again. Measures a minute after the first ten
/// seconds.
fn closed_loop(discipline: Discipline, basic: u64, premium: u64) -> [Got; 2] {
    const SECONDS: u64 = 60;
    let mut gateway = Gateway::new(discipline);
    // Clients ordered by the time at which they send, then by number.
    let mut sends: BTreeMap<(u64, u64), ()> = (0..basic + premium).map(|client| ((client % 20, client), ())).collect();
    let mut sent: BTreeMap<u64, u64> = BTreeMap::new();
    let mut got = [Got::default(); 2];
    loop {
        let next = sends.first_key_value().map(|(key, ())| *key);
        let finishes = gateway.done().filter(|at| next.is_none_or(|(sends_at, _)| *at <= sends_at));
        let Some(now) = finishes.or(next.map(|(at, _)| at)) else { break };
        if now >= (SECONDS + 10) * 1000 {
            break;
        }
        if finishes.is_some() {
            gateway.finishes();
        } else if let Some(((_, client), ())) = sends.pop_first() {
            sent.insert(client, now);
            gateway.arrives(now, if client < premium { PREMIUM } else { BASIC }, client);
        }
        for (client, fate) in core::mem::take(&mut gateway.ended) {
            let kind = usize::from(client < premium);
            let began = sent.remove(&client).expect("it was sent");
            let at = match fate {
                Fate::Served(at) | Fate::Refused(at) => at,
            };
            if at >= 10_000 {
                match fate {
                    Fate::Served(_) => {
                        got[kind].served += 1.0 / SECONDS as f64;
                        got[kind].took += (at - began) as f64 / SECONDS as f64;
                    }
                    Fate::Refused(_) => got[kind].refused += 1.0 / SECONDS as f64,
                }
            }
            // A millisecond to the client and back, and 20 to sleep.
            sends.insert((at + 21, client), ());
        }
    }
    got
}

/// Sec. 7, first set: a fifth of the clients is premium.
#[test]
fn set_1_a_fifth_premium() {
    for clients in [50, 100, 200, 300, 400, 450, 600, 800] {
        let [basic, premium] = closed_loop(Discipline::seda(), clients * 4 / 5, clients / 5);
        let told = format!("{clients} clients: basic {basic:?}, premium {premium:?}");
        assert!((basic.served + premium.served - 50.0).abs() < 1.0, "{told}");
        if clients <= 50 {
            assert!(basic.refused + premium.refused < 1e-9, "{told}");
        }
        if clients <= 400 {
            assert!(premium.refused < 1e-9, "{told}");
        }
        if clients >= 200 {
            assert!(basic.refused_share() >= 0.9, "{told}");
        }
        if (100..300).contains(&clients) {
            let ratio = basic.mean() / premium.mean();
            assert!((1.7..=3.1).contains(&ratio), "ratio {ratio}; {told}");
        }
        if clients >= 450 {
            assert!(basic.served < 0.05, "{told}");
        }
        if clients >= 600 {
            assert!(premium.refused > 0.0 && premium.refused_share() < basic.refused_share(), "{told}");
            assert!((1500.0..=2200.0).contains(&premium.mean()), "{told}");
        }
    }
}

/// Sec. 7, second set: 25 premium clients and a growing number of basic clients.
#[test]
fn set_2_premium_constant() {
    let mut times = Vec::new();
    for clients in [75, 110, 200, 300, 400] {
        let [basic, premium] = closed_loop(Discipline::seda(), clients - 25, 25);
        let told = format!("{clients} clients: basic {basic:?}, premium {premium:?}");
        assert!(premium.refused < 1e-9, "{told}");
        assert!((basic.served + premium.served - 50.0).abs() < 1.0, "{told}");
        if clients > 100 {
            assert!(basic.refused_share() >= 0.9, "{told}");
        }
        times.push(premium.mean());
    }
    let (min, max) = times.iter().fold((f64::MAX, 0.0f64), |(a, b), t| (a.min(*t), b.max(*t)));
    assert!(max / min < 1.15, "premium takes {times:?} ms");
}

/// The priority queue that the paper did not build. Premium requests wait only for one another.
#[test]
fn priority_serves_premium_first() {
    let [basic, premium] = closed_loop(Discipline { precedence: Precedence::Priority, ..Discipline::seda() }, 160, 40);
    let [_, reenqueued] = closed_loop(Discipline::seda(), 160, 40);
    assert!((basic.served + premium.served - 50.0).abs() < 1.0);
    assert!(premium.mean() < reenqueued.mean(), "{premium:?} beside {reenqueued:?}");
}

/// A request that is refused, at its arrival or later, may come again as a request of its class's fallback.
#[test]
fn a_refused_request_gets_the_fallback() {
    let mut basic = class("basic", None, None, None);
    basic.fallback = Some(1);
    basic.queue = QueueBounds { max_wait: Duration::from_secs(1), ..QueueBounds::default() };
    let mut policy = policy(Discipline { admit: Admit::Thresholds { queue: 1 }, ..Discipline::seda() }, 1, vec![]);
    policy.classes = vec![basic, class("lite", None, None, None)];
    let mut engine = Engine::new(Time::ZERO, policy.clone(), 1).expect("a valid policy");
    let mut arrive = |class, token| engine.arrive(Time::ZERO, arrival(class, 0, token));
    assert!(matches!(arrive(0, 0), Decision::Release { .. }));
    assert!(matches!(arrive(0, 1), Decision::Wait { .. }));
    let Decision::Shed(shed) = arrive(0, 2) else { panic!("the queue is full") };
    assert_eq!((shed.reason, shed.fallback), (ShedReason::Threshold, Some(ClassId(1))));
    let Decision::Shed(shed) = arrive(1, 2) else { panic!("the queue is full") };
    assert_eq!(shed.fallback, None, "a fallback has none itself");
    let Some(Action::Shed { token: 1, shed, .. }) = engine.poll(Time::from_millis(1001)) else { panic!("it is late") };
    assert_eq!((shed.reason, shed.fallback), (ShedReason::QueueTimeout, Some(ClassId(1))));

    policy.classes[1].fallback = Some(0);
    let error = Engine::new(Time::ZERO, policy, 1).expect_err("they would take turns for ever").to_string();
    assert_eq!(error, "class basic: its fallback does not exist, or has one itself");
}
