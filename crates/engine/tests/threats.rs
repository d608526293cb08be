//! Threats that the engine handles: many keys (D4), aimed hashes (D5), costly queues (D6), clients that leave
//! (D7), starvation (D9), retry storms (D10).

mod support;

use std::io::Write as _;

use support::*;
use weirgate_engine::*;

fn arrival(class: ClassId, flow: u64) -> Arrival {
    Arrival { class, flow, demand: None, locality_key: None, position: 0, token: 0 }
}

/// A million keys become a bounded number of classes. Keys beyond the bound share one class.
#[test]
fn d4_a_million_keys_are_a_bounded_number_of_classes() {
    let mut with_tenants = policy(partitioned(8), 2, vec![class("other", None, None, None)]);
    let tenant = class("tenant", Some(1.0), None, Some(10));
    with_tenants.templates = vec![Template { class: tenant, max_live: 1000 }];
    let mut engine = Engine::new(Time::ZERO, with_tenants, 1).unwrap();
    for key in 0..1_000_000u32 {
        let class = engine.class(Time::ZERO, TemplateId(0), &key.to_le_bytes());
        assert!(class.0 < 2 + 1000, "key {key} made class {}", class.0);
    }
    assert_eq!(engine.snapshot(Time::ZERO).classes, 2 + 1000);
    // Every live class gets a request, waiting or in flight, so that none can make room any more.
    for key in 999_000..1_000_000u32 {
        let class = engine.class(Time::ZERO, TemplateId(0), &key.to_le_bytes());
        assert!(!matches!(engine.arrive(Time::ZERO, arrival(class, u64::from(key))), Decision::Shed(_)));
    }
    let overflow = engine.class(Time::ZERO, TemplateId(0), b"one more");
    assert_eq!(overflow, engine.class(Time::ZERO, TemplateId(0), b"and another"));
    assert_eq!(overflow, ClassId(1), "the overflow class stands behind the named ones");
}

/// Sources with hashes that collide in their low bits cost no more than others.
#[test]
fn d5_sources_that_collide_cost_what_others_do() {
    let seconds = |flow: fn(u64) -> u64| {
        let mut one = policy(partitioned(1), 1, vec![class("other", None, None, None)]);
        one.classes[0].queue.max_waiting_per_flow = 10;
        let mut engine = Engine::new(Time::ZERO, one, 1).unwrap();
        let start = cpu_seconds()?;
        for n in 0..400_000 {
            engine.arrive(Time::ZERO, arrival(ClassId(0), flow(n)));
        }
        Some(cpu_seconds()? - start)
    };
    // The first run pays for fresh memory.
    seconds(|n| n);
    let measured = (seconds(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)), seconds(|n| n << 40));
    let (Some(spread), Some(aimed)) = measured else { return };
    assert!(aimed < 8.0 * spread, "aimed {aimed} s, spread {spread} s");
}

/// One source fills the queue of its class. A request of another source takes the place of its newest one
/// and has the second turn. The rate of a source is limited first.
#[test]
fn d8_a_source_with_a_full_queue_makes_room_and_takes_turns() {
    let mut one = policy(partitioned(1), 1, vec![class("all", None, None, None)]);
    one.classes[0].queue = QueueBounds {
        max_waiting: 20,
        max_waiting_per_flow: 20,
        max_rate: None,
        max_rate_per_flow: Some(30.0),
        max_wait: ms(10_000),
    };
    let mut engine = Engine::new(Time::ZERO, one, 1).unwrap();
    let arrive = |engine: &mut Engine, flow| engine.arrive(Time::ZERO, arrival(ClassId(0), flow));
    let Decision::Release { ticket, .. } = arrive(&mut engine, 1) else { panic!("a node is free") };
    let greedy: Vec<Ticket> = (0..20)
        .map(|_| match arrive(&mut engine, 1) {
            Decision::Wait { ticket } => ticket,
            other => panic!("there is room: {other:?}"),
        })
        .collect();
    let reason = |decision| match decision {
        Decision::Shed(shed) => shed.reason,
        other => panic!("it is refused: {other:?}"),
    };
    assert_eq!(reason(arrive(&mut engine, 1)), ShedReason::QueueFull);
    let Decision::Wait { ticket: polite } = arrive(&mut engine, 2) else { panic!("a request makes room") };
    let shed = engine.poll(Time::ZERO);
    assert!(
        matches!(shed, Some(Action::Shed { ticket, shed, .. })
            if ticket == greedy[19] && shed.reason == ShedReason::FlowFull),
        "{shed:?}"
    );
    assert_eq!((engine.poll(Time::ZERO), engine.snapshot(Time::ZERO).waiting), (None, 20));
    let mut in_flight = ticket;
    let mut next = |engine: &mut Engine| {
        engine.observe(Time::ZERO, in_flight, Outcome::LastByte { status: 200 });
        let Some(Action::Release { ticket, .. }) = engine.poll(Time::ZERO) else { panic!("a request waits") };
        in_flight = ticket;
        ticket
    };
    assert_eq!([next(&mut engine), next(&mut engine), next(&mut engine)], [greedy[0], polite, greedy[1]]);
    for _ in 0..8 {
        assert!(matches!(arrive(&mut engine, 1), Decision::Wait { .. } | Decision::Shed(_)));
    }
    assert_eq!(reason(arrive(&mut engine, 1)), ShedReason::SourceRate);
    let later = Time::from_millis(34);
    assert!(!matches!(engine.arrive(later, arrival(ClassId(0), 1)),
        Decision::Shed(shed) if shed.reason == ShedReason::SourceRate));
}

/// A class beyond its rate is refused whatever its sources are. One source beyond its own rate uses nothing up of it.
#[test]
fn a_class_beyond_its_rate_is_refused() {
    let bounds = QueueBounds { max_rate: Some(4.0), max_rate_per_flow: Some(2.0), ..QueueBounds::default() };
    let mut one = policy(partitioned(100), 1, vec![class("all", None, None, None)]);
    one.classes[0].queue = bounds;
    let mut engine = Engine::new(Time::ZERO, one, 1).unwrap();
    let mut reasons = |at: Time, flow: u64| match engine.arrive(at, arrival(ClassId(0), flow)) {
        Decision::Shed(shed) => Some((shed.reason, shed.retry_after.as_secs())),
        Decision::Release { .. } | Decision::Wait { .. } => None,
    };
    let start = Time::from_millis(5000);
    let of_one: Vec<_> = (0..4).map(|_| reasons(start, 1).map(|(reason, _)| reason)).collect();
    assert_eq!(of_one, [None, None, Some(ShedReason::SourceRate), Some(ShedReason::SourceRate)]);
    let of_others: Vec<_> = (2..6).map(|flow| reasons(start, flow)).collect();
    let refused = Some((ShedReason::ClassRate, 1));
    assert_eq!(of_others, [None, None, refused, refused]);
    assert_eq!(reasons(Time::from_millis(5250), 7), None, "a token has come");
    assert_eq!(reasons(Time::from_millis(5250), 8), refused);
}

/// Cancelling all requests in random order costs the same per request with 4,000 and with 400,000 waiting
/// requests.
#[test]
fn d6_cancelling_costs_the_same_in_a_long_queue() {
    // A hundred short queues have as many departures in total as one long queue, and as much memory.
    let seconds = |engines: u64, waiting: u64| {
        let mut random = Random(5);
        let mut prepared: Vec<(Engine, Vec<Ticket>)> = (0..engines)
            .map(|_| {
                let classes = (0..50).map(|i| class(&format!("c{i}"), Some(1.0), None, Some(10))).collect();
                let mut engine = Engine::new(Time::ZERO, policy(partitioned(1), 1, classes), 1).unwrap();
                let mut tickets = Vec::new();
                for n in 0..=waiting {
                    if let Decision::Wait { ticket } = engine.arrive(Time::ZERO, arrival(ClassId((n % 50) as u32), n)) {
                        tickets.push(ticket);
                    }
                }
                for i in (1..tickets.len()).rev() {
                    tickets.swap(i, random.below(i as u64 + 1) as usize);
                }
                (engine, tickets)
            })
            .collect();
        let start = cpu_seconds()?;
        for (engine, tickets) in &mut prepared {
            for ticket in tickets {
                assert!(engine.cancel(Time::ZERO, *ticket));
            }
            assert_eq!(engine.snapshot(Time::ZERO).waiting, 0);
        }
        Some(cpu_seconds()? - start)
    };
    let (Some(short), Some(long)) = (seconds(100, 4_000), seconds(1, 400_000)) else { return };
    // A linear search of the queue would make it a hundred times as long.
    assert!(long < 10.0 * short, "{long} s for a long queue, {short} s for as many in short ones");
}

/// A hundred thousand clients leave at random moments, waiting or in flight. Afterwards every slot is free.
#[test]
fn d7_a_hundred_thousand_departures_lose_no_slot() {
    let mut engine =
        Engine::new(Time::ZERO, policy(partitioned(16), 4, vec![class("other", None, None, None)]), 1).unwrap();
    let (mut random, mut here, mut gone) = (Random(11), Vec::new(), 0);
    while gone < 100_000 {
        if here.len() < 64 {
            match engine.arrive(Time::ZERO, arrival(ClassId(0), gone)) {
                Decision::Release { ticket, .. } | Decision::Wait { ticket } => here.push(ticket),
                Decision::Shed(shed) => panic!("nothing is full: {shed:?}"),
            }
            continue;
        }
        let ticket = here.swap_remove(random.below(64) as usize);
        // A driver that does not know whether the release is already in progress does the same.
        if !engine.cancel(Time::ZERO, ticket) {
            engine.observe(Time::ZERO, ticket, Outcome::Reset);
        }
        while engine.poll(Time::ZERO).is_some() {}
        gone += 1;
        let snapshot = engine.snapshot(Time::ZERO);
        assert_eq!((snapshot.outstanding, snapshot.outstanding + snapshot.waiting), (16, here.len() as u32));
    }
}

/// The class with the smallest share keeps its floor for minutes under tenfold overload by the others.
#[test]
fn d9_the_smallest_class_keeps_its_share_under_overload() {
    let classes = vec![
        class("big", Some(300.0), None, Some(10)),
        class("middle", Some(90.0), None, Some(10)),
        class("small", Some(10.0), None, Some(10)),
    ];
    let load = |rate| load(rate, 0.010);
    // 4 CPUs serve 400/s, which is exactly the sum of the guarantees.
    let mut bench = Bench::new(policy(partitioned(20), 2, classes), 2.0, vec![load(3000.0), load(900.0), load(9.0)], 4);
    bench.measure(5.0, 185.0);
    let small = &bench.tallies[2];
    let part = small.served.len() as f64 / small.offered as f64;
    assert!(part > 0.99, "served {part} of what it asked within its guarantee");
}

/// Whatever fails, retries stay within a fifth of the first attempts plus ten a second.
#[test]
fn d10_retries_stay_within_their_budget() {
    let mut engine =
        Engine::new(Time::ZERO, policy(Discipline::none(), 10, vec![class("other", None, None, None)]), 1).unwrap();
    let (mut attempts, mut retries) = (0u32, 0u32);
    for millis in 0..10_000 {
        let now = Time::from_millis(millis);
        let Decision::Release { ticket, .. } = engine.arrive(now, arrival(ClassId(0), millis)) else {
            panic!("without control everything is released")
        };
        attempts += 1;
        let mut of_this = 0;
        while engine.observe(now, ticket, Outcome::Failed { retryable: true }).is_some() {
            of_this += 1;
        }
        assert!(of_this <= 1, "one retry a request");
        retries += of_this;
        while engine.poll(now).is_some() {}
    }
    // Ten seconds' worth at the start, and ten seconds of time.
    let budget = 0.2 * f64::from(attempts) + 10.0 * 10.0 + 10.0 * 10.0;
    assert!(f64::from(retries) <= budget + 1.0, "{retries} retries, {budget} allowed");
    assert!(f64::from(retries) > 0.8 * budget, "the budget is usable: {retries} of {budget}");
}

/// Returns the CPU time of this thread so far, in seconds, so that other load on the machine does not count.
/// If the kernel does not provide it, prints so and returns `None`. The figure may be a few milliseconds old, so
/// measure tens of milliseconds.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok());
    if nanos.is_none() {
        // The test runner holds back what `eprintln!` prints.
        let _ = writeln!(std::io::stderr(), "SKIPPED: the kernel does not tell the CPU time of a thread");
    }
    nanos.map(|nanos| nanos / 1e9)
}
