//! Parts of a guarantee that several engines promise together: all of them protect no more than the whole, and each
//! one no more than its part, whatever the order of changes.

mod support;

use proptest::prelude::*;
use support::*;
use weirgate_engine::*;

const GOLD: ClassId = ClassId(0);

fn engine(floor: f64, seed: u64) -> Engine {
    let classes = vec![class("gold", Some(floor), None, Some(1)), class("rest", None, None, None)];
    Engine::new(Time::ZERO, policy(Discipline::weirgate(), 1, classes), seed).expect("a valid policy")
}

/// One request that is answered at once. Returns whether it was protected.
fn request(engine: &mut Engine, now: Time, token: u64) -> bool {
    let ticket = match engine.arrive(now, arrival(GOLD.0, token, token)) {
        Decision::Release { ticket, .. } => ticket,
        Decision::Wait { .. } => match engine.poll(now) {
            Some(Action::Release { ticket, .. }) => ticket,
            other => panic!("nothing is in flight: {other:?}"),
        },
        Decision::Shed(shed) => panic!("nothing is in flight: {shed:?}"),
    };
    let protected = engine.is_surplus(ticket) == Some(false);
    engine.observe(now, ticket, Outcome::LastByte { status: 200 });
    protected
}

fn for_ever(rate: f64) -> (Lease, [(ClassId, Part); 1]) {
    let lease = Lease { granted_until: Time::NEVER, safe_until: Time::NEVER };
    (lease, [(GOLD, Part { granted: rate, safe: rate, least: rate })])
}

/// Counts over every interval at once: the most by which protected requests exceed what a rate allows.
#[derive(Clone, Copy, Default)]
struct Excess {
    now: f64,
    least: f64,
    most: f64,
}

impl Excess {
    fn allow(&mut self, requests: f64) {
        self.now -= requests;
        self.least = self.least.min(self.now);
    }

    fn count(&mut self) {
        self.now += 1.0;
        self.most = self.most.max(self.now - self.least);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// So many requests come to this engine.
    Requests(usize, u32),
    /// So many milliseconds pass.
    Wait(u64),
    /// The first engine gives so much of its part to the second one, as a fraction.
    Move(usize, usize, f64),
    /// The policy is put in force again.
    Reload(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3usize, 1..60u32).prop_map(|(engine, count)| Step::Requests(engine, count)),
        3 => (1..2000u64).prop_map(Step::Wait),
        3 => (0..3usize, 0..3usize, 0.0..1.0f64).prop_map(|(from, to, part)| Step::Move(from, to, part)),
        1 => (0..3usize).prop_map(Step::Reload),
    ]
}

proptest! {
    #[test]
    fn all_together_protect_no_more_than_the_whole(floor in 1.0..80.0f64, steps in prop::collection::vec(step(), 1..120)) {
        let mut engines: Vec<Engine> = (0..3).map(|seed| engine(floor, seed)).collect();
        let mut parts = [floor / 3.0; 3];
        for (engine, part) in engines.iter_mut().zip(parts) {
            let (lease, of) = for_ever(part);
            engine.keep_parts(Time::ZERO, lease, &of);
        }
        let (mut now, mut all, mut each) = (0, Excess::default(), [Excess::default(); 3]);
        let mut largest = parts;
        for (token, step) in steps.into_iter().enumerate() {
            let at = Time::from_millis(now);
            match step {
                Step::Requests(engine, count) => {
                    for n in 0..count {
                        if request(&mut engines[engine], at, (token as u64) << 32 | u64::from(n)) {
                            all.count();
                            each[engine].count();
                        }
                    }
                }
                Step::Wait(millis) => {
                    now += millis;
                    let seconds = millis as f64 / 1e3;
                    all.allow(floor * seconds);
                    each.iter_mut().zip(parts).for_each(|(excess, part)| excess.allow(part * seconds));
                }
                Step::Move(from, to, part) if from != to => {
                    let moved = parts[from] * part * 0.99;
                    parts[from] -= moved;
                    parts[to] += moved;
                    for changed in [from, to] {
                        largest[changed] = largest[changed].max(parts[changed]);
                        let (lease, of) = for_ever(parts[changed]);
                        engines[changed].keep_parts(at, lease, &of);
                    }
                }
                Step::Move(..) => {}
                Step::Reload(engine) => {
                    let policy = engines[engine].policy().clone();
                    engines[engine].reconfigure(at, policy).expect("it was valid");
                    prop_assert!((engines[engine].part(GOLD).expect("it stays").granted - parts[engine]).abs() < 1e-9);
                }
            }
        }
        // A bucket holds the burst of a second, and at least one request.
        prop_assert!(all.most <= floor + 3.0 + 1e-3, "{} of {floor}", all.most);
        for (excess, largest) in each.iter().zip(largest) {
            prop_assert!(excess.most <= largest.max(1.0) + 1.0 + 1e-3, "{} of {largest}", excess.most);
        }
    }
}

fn protected(engine: &mut Engine, now: Time, count: u64) -> usize {
    (0..count).filter(|n| request(engine, now, now.as_nanos() + n)).count()
}

/// A driver that is stopped cannot lower anything. The engine does it by its own clock, before the next request.
#[test]
fn parts_end_by_themselves() {
    let mut engine = engine(100.0, 1);
    let at = Time::from_millis;
    let lease = Lease { granted_until: at(5_000), safe_until: at(30_000) };
    engine.keep_parts(Time::ZERO, lease, &[(GOLD, Part { granted: 60.0, safe: 30.0, least: 5.0 })]);
    assert_eq!(protected(&mut engine, at(1_000), 200), 60);
    assert_eq!(engine.next_timeout().map(|next| next <= at(5_000)), Some(true));
    let here = |engine: &Engine, now| engine.classes(now, GOLD, 1)[0].part;
    assert_eq!(here(&engine, at(4_999)), Some(60.0));
    assert_eq!(protected(&mut engine, at(20_000), 200), 30);
    assert_eq!(protected(&mut engine, at(60_000), 200), 5);
    assert_eq!(here(&engine, at(60_000)), Some(5.0));
    assert_eq!(engine.classes(at(60_000), GOLD, 1)[0].guarantee.throughput, Some(100.0), "what the site promises");
    engine.keep_whole(at(60_000));
    assert_eq!(here(&engine, at(60_000)), None);
    assert_eq!(protected(&mut engine, at(62_000), 200), 100);
}

/// Nodes serve 40/s, and the class sends 30/s of which 20/s are promised here. With the whole of 100/s in force the
/// guarantee could not be judged as held.
#[test]
fn the_guarantee_is_judged_by_the_part() {
    let classes = vec![class("gold", Some(100.0), None, Some(50)), class("rest", None, None, Some(50))];
    let load = |rate| load(rate, 0.050);
    let mut bench = Bench::new(policy(Discipline::weirgate(), 1, classes), 2.0, vec![load(90.0), load(30.0)], 3);
    let (lease, of) = for_ever(20.0);
    bench.engine.keep_parts(Time::ZERO, lease, &of);
    bench.run(60.0);
    let now = Time::from_millis(60_000);
    let gold = &bench.engine.classes(now, GOLD, 1)[0];
    assert_eq!(gold.achieved.throughput_held, Some(true), "{gold:?}");
    bench.engine.keep_whole(now);
    bench.run(90.0);
    let gold = &bench.engine.classes(Time::from_millis(90_000), GOLD, 1)[0];
    assert_eq!(gold.achieved.throughput_held, Some(false), "{gold:?}");
}

/// A lower promise shrinks all parts alike. Parts that cannot be, and classes without a rate, are ignored.
#[test]
fn a_new_policy_keeps_the_parts_of_classes_that_stay() {
    let mut engine = engine(100.0, 1);
    let now = Time::ZERO;
    let (lease, of) = for_ever(60.0);
    engine.keep_parts(now, lease, &of);
    let odd = Part { granted: f64::NAN, safe: 1.0, least: 1.0 };
    let even = Part { granted: 1.0, safe: 1.0, least: 1.0 };
    engine.keep_parts(now, lease, &[(GOLD, odd), (ClassId(1), even), (ClassId(9), even)]);
    assert_eq!([0, 1, 9].map(|class| engine.part(ClassId(class)).map(|part| part.granted)), [Some(60.0), None, None]);
    let classes = vec![class("new", Some(10.0), None, None), class("gold", Some(50.0), None, Some(1))];
    let lower = policy(Discipline::weirgate(), 1, classes);
    engine.reconfigure(now, lower).expect("a valid policy");
    assert_eq!([0, 1].map(|class| engine.part(ClassId(class)).map(|part| part.granted)), [None, Some(30.0)]);
}

/// Load moves to an engine that keeps next to nothing of the guarantee, while others fill the nodes.
#[test]
fn requests_within_the_whole_wait_for_a_larger_part() {
    let mut engine = engine(100.0, 1);
    let (lease, least) = for_ever(0.25);
    engine.keep_parts(Time::ZERO, lease, &least);
    let arrival = |class: ClassId, token| arrival(class.0, token, token);
    let mut in_flight: Vec<Ticket> = Vec::new();
    for token in 0..400 {
        if let Decision::Release { ticket, .. } = engine.arrive(Time::ZERO, arrival(ClassId(1), token)) {
            in_flight.push(ticket);
        }
    }
    assert!(!in_flight.is_empty());
    for token in 0..30 {
        let now = Time::from_millis(1_000 + 10 * token);
        let decision = engine.arrive(now, arrival(GOLD, 1_000 + token));
        assert!(!matches!(decision, Decision::Shed(_)), "{token}: {decision:?}");
    }
    let now = Time::from_millis(1_310);
    let (lease, larger) = for_ever(90.0);
    engine.keep_parts(now, lease, &larger);
    let mut released = 0;
    for ticket in in_flight {
        engine.observe(now, ticket, Outcome::LastByte { status: 200 });
    }
    while let Some(action) = engine.poll(now) {
        released += usize::from(matches!(action, Action::Release { token, .. } if token >= 1_000));
    }
    assert!(released > 0, "they go first now");
}
