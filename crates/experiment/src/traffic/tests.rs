//! Streams: keys, users and properties of requests.

use std::time::Duration;

use super::*;
use crate::{DemandFrom, Knot, Profile};

const S: Duration = Duration::from_secs(1);

fn experiment(class: TrafficClass, source: Source) -> Experiment {
    let text = "
        listen: 127.0.0.1:8080
        upstreams: { web: { nodes: ['a:1'] } }
        classes: [{ name: T, per: { header: X-Tenant } }, { name: A }]";
    let site = weirgate_config::load("test", text).unwrap_or_else(|e| panic!("{e}")).site;
    let phase = crate::Phase { name: "all".into(), until: S * 100, judged: true, x: None };
    let traffic = vec![Traffic::plain(class, source, Distribution::Fixed(Duration::from_millis(10)))];
    Experiment { traffic, ..Experiment::plain(site, Vec::new(), Vec::new(), vec![phase]) }
}

#[test]
fn keys_have_the_popularity_of_zipf() {
    let class = TrafficClass::Template { template: 0, keys: 4 };
    let experiment = experiment(class, Source::Trace(Vec::new()));
    let mut stream = Stream::new(&experiment, 0, 1);
    let mut counts = [0.0; 4];
    let n = 100_000;
    (0..n).for_each(|_| counts[stream.draw(0, NO_USER).key as usize] += 1.0);
    // 1, 1/2, 1/3, 1/4 of 25/12.
    for (rank, count) in (1..).zip(counts) {
        let expected = f64::from(n) * 12.0 / 25.0 / f64::from(rank);
        assert!((count / expected - 1.0).abs() < 0.03, "rank {rank}: {count} of {expected}");
    }
}

#[test]
fn requests_of_an_open_loop_have_their_own_source_and_those_of_a_user_one() {
    let experiment = experiment(TrafficClass::Class(0), Source::Trace(Vec::new()));
    let mut stream = Stream::new(&experiment, 0, 1);
    let (a, b) = (stream.draw(0, NO_USER), stream.draw(0, NO_USER));
    assert_ne!(a.flow, b.flow);
    assert_eq!((a.patience, a.demand.cpu, a.key), (u64::MAX, 10_000_000, 0));
    assert_eq!(stream.draw(0, 7).flow, stream.draw(0, 7).flow);
    assert_ne!(stream.draw(0, 7).flow, stream.draw(0, 8).flow);
}

#[test]
fn clients_come_from_as_many_addresses_as_the_experiment_says() {
    let mut experiment = experiment(TrafficClass::Class(0), Source::Trace(Vec::new()));
    experiment.traffic[0].sources = Some(100);
    let mut stream = Stream::new(&experiment, 0, 1);
    let flows: std::collections::BTreeSet<u64> = (0..10_000).map(|_| stream.draw(0, NO_USER).flow).collect();
    assert_eq!(flows.len(), 100);
    experiment.traffic[0].sources = Some(1);
    let mut stream = Stream::new(&experiment, 0, 1);
    assert_eq!(stream.draw(0, 7).flow, stream.draw(0, 8).flow);
}

#[test]
fn users_come_at_once_and_go_when_they_would_send_again() {
    let knot = |at, value| Knot { at: S * at, over: Duration::ZERO, value };
    let users = Profile(vec![knot(0, 3.0), knot(10, 1.0), knot(20, 2.0)]);
    let think = Distribution::Exponential { mean: S };
    let experiment = experiment(TrafficClass::Class(0), Source::Users { users, think });
    let mut stream = Stream::new(&experiment, 0, 1);
    let second = 1_000_000_000;
    assert_eq!(stream.next_event(), Some((0, Event::Users(3))));
    let coming: Vec<u32> = stream.want_users(3).iter().map(|(user, _)| *user).collect();
    assert_eq!(coming, [0, 1, 2]);
    assert_eq!(stream.next_event(), Some((10 * second, Event::Users(1))));
    assert_eq!(stream.want_users(1), []);
    // User 2 leaves. User 1 does not come to send before two are wanted again.
    assert!(stream.is_wanted(0) && !stream.is_wanted(2));
    assert_eq!(stream.next_event(), Some((20 * second, Event::Users(2))));
    assert_eq!(stream.want_users(2), [], "user 1 never went");
    assert!(stream.is_wanted(1) && !stream.is_wanted(2));
    assert_eq!(stream.next_event(), None);
}

#[test]
fn a_request_of_a_trace_takes_what_its_line_says() {
    let mut experiment = experiment(TrafficClass::Class(0), Source::Trace(vec![S, S, 3 * S]));
    experiment.traffic[0].traced = vec![[1, 2, 0, 0, 0], [3, 4, 0, 5, 0], [6, 7, 8, 9, 10]];
    let [still, zero] = [Duration::from_nanos(100), Duration::ZERO].map(Distribution::Fixed);
    let DemandFrom { cpu, io, disk, link, stream, .. } = &mut experiment.traffic[0].demand[0];
    (*cpu, *io, *disk, *link, *stream) = (still, still, zero, zero, zero);
    let mut stream = Stream::new(&experiment, 0, 7);
    let mut takes = Vec::new();
    let mut next = stream.next_event();
    while let Some((at, _)) = next {
        // The simulator and the lab look ahead in the same way.
        next = stream.next_event();
        let demand = stream.draw(at, NO_USER).demand;
        takes.push([demand.cpu, demand.io, demand.disk, demand.link, demand.stream]);
    }
    assert_eq!(takes, [[101, 102, 0, 0, 0], [103, 104, 0, 5, 0], [106, 107, 8, 9, 10]]);
}
