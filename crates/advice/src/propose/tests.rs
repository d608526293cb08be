//! Tests of the proposals. A site of which everything is known is the oracle.

use std::borrow::Cow;
use std::time::Duration;

use proptest::prelude::*;
use weirgate_config::{Loaded, feasibility, load};
use weirgate_engine::{Class, Mode};

use super::*;
use crate::log::{Request, Tells};

const TELLS: Tells = Tells { host: true, step: Some(Duration::from_millis(1)), service: true };

fn request(ms: i64, host: &str, path: &str, service_ms: u64) -> Request<'static> {
    Request {
        ended_ms: 1_795_687_200_000 + ms,
        host: Some(host).filter(|host| !host.is_empty()).map(|host| Cow::Owned(host.to_owned())),
        path: Some(Cow::Owned(path.to_owned())),
        client: Some(Cow::Owned(format!("10.0.0.{}", ms / 10 % 200))),
        status: Some(200),
        service: Some(Duration::from_millis(service_ms)),
        response: Some(Duration::from_millis(service_ms + 5)),
        ..Request::default()
    }
}

/// Proposes, and checks that the policy is sound, has no warning, and fits.
fn proposed(tally: Tally) -> (Proposal, Loaded) {
    let proposal = from_logs(tally, "test", &[]).expect("a proposal");
    let yaml = proposal.yaml();
    let loaded = load("p.yaml", &yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
    assert_eq!(loaded.warning_lines("p.yaml"), Vec::<String>::new(), "{yaml}");
    assert_ne!(feasibility(&loaded.site).fits(), Some(false), "{yaml}");
    for line in yaml.lines().filter(|line| line.trim_start().starts_with('#')) {
        assert!(line.chars().count() <= 120 || !line.trim_start_matches([' ', '#']).contains(' '), "{line}");
    }
    (proposal, loaded)
}

/// An hour in which a shop asks for 20/s of 30 ms, and a partner for 5/s of 100 ms.
fn two_hosts(mut also: impl FnMut(&mut Tally, i64)) -> Tally {
    let mut tally = Tally::default();
    tally.tells(TELLS);
    for ms in (0..3_600_000).step_by(50) {
        tally.add(&request(ms, "shop.test", "/", 30));
        if ms % 200 == 0 {
            tally.add(&request(ms, "partner.test:80", "/feed/1", 100));
        }
        also(&mut tally, ms);
    }
    tally
}

#[test]
fn figures_are_those_of_the_site() {
    let (proposal, loaded) = proposed(two_hosts(|_, _| {}));
    let classes = &loaded.site.policy.classes;
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["shop.test", "partner.test", "other"]);
    let (shop, partner) = (&classes[0], &classes[1]);
    assert_eq!(
        (shop.service_time, partner.service_time),
        (Some(Duration::from_millis(30)), Some(Duration::from_millis(100)))
    );
    // The servers have shown 20 × 0.03 + 5 × 0.1 = 1.1 slot-seconds a second, and promises take no more.
    let capacity = loaded.site.policy.nodes[0].capacity.expect("a capacity");
    assert!((capacity - 1.1).abs() < 0.011, "{capacity}");
    let rate = |class: &Class| class.guarantee.throughput.expect("a rate");
    let needed = rate(shop) * 0.03 + rate(partner) * 0.1;
    assert!(needed <= capacity + 1e-9 && needed > 0.9 * capacity, "{needed}");
    let ratio = rate(shop) / rate(partner);
    assert!((3.5..4.5).contains(&ratio), "both are cut alike: {ratio}");
    let limit = |class: &Class| class.guarantee.response_time.expect("a limit").limit;
    // Four service times are more than twice the 95th percentile, 35 ms and 105 ms.
    assert_eq!((limit(shop), limit(partner)), (Duration::from_millis(120), Duration::from_millis(400)));
    assert!(proposal.table().contains("partner.test"));
}

#[test]
fn a_slow_section_and_crawlers_are_classes_of_their_own() {
    let (_, loaded) = proposed(two_hosts(|tally, ms| {
        if ms % 1000 == 0 {
            tally.add(&request(ms, "shop.test", "/reports/7", 900));
            let agent = Some(Cow::Borrowed("Mozilla/5.0 (compatible; SomeBot/1.0)"));
            tally.add(&Request { agent, ..request(ms, "shop.test", "/item/1", 40) });
        }
    }));
    let names: Vec<&str> = loaded.site.policy.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["crawlers", "shop.test-reports", "shop.test", "partner.test", "other"]);
    let classes = &loaded.site.policy.classes;
    assert!(classes[0].guarantee.throughput.is_none() && classes[1].guarantee.throughput.is_some());
    // The first few requests of the section came before it had a row.
    let shop = classes[2].service_time.expect("a time");
    assert!(
        (Duration::from_millis(30)..Duration::from_millis(31)).contains(&shop),
        "without the slow section: {shop:?}"
    );
}

#[test]
fn one_host_is_divided_by_sections_and_one_section_is_one_class() {
    let mut tally = Tally::default();
    tally.tells(Tells { step: None, service: false, ..TELLS });
    for ms in (0..1_000_000).step_by(30) {
        let path = ["/", "/api/v1", "/api/v2", "/img/a.png", "/img/b.png", "/%ff"][(ms / 30) as usize % 6];
        tally.add(&Request { response: None, service: None, ..request(ms, "", path, 1) });
    }
    let (proposal, loaded) = proposed(tally);
    let names: Vec<&str> = loaded.site.policy.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["api", "img", "home", "other"]);
    let classes = &loaded.site.policy.classes;
    assert!(
        classes.iter().all(|c| c.service_time.is_none() && c.guarantee.response_time.is_none()),
        "nothing is invented"
    );
    assert!(classes.iter().all(|class| class.guarantee.throughput.is_some()), "the rest of one site is promised, too");
    assert!(proposal.notes().iter().any(|note| note.contains("has no times")));

    let mut tally = Tally::default();
    tally.tells(TELLS);
    (0..1000).for_each(|n| tally.add(&request(n * 100, "", "/%ff", 20)));
    let (_, loaded) = proposed(tally);
    assert_eq!(loaded.site.policy.classes.len(), 1);
    assert!(loaded.site.policy.classes[0].guarantee.throughput.is_some());
}

#[test]
fn small_sections_are_one_class_beside_the_crawlers() {
    let mut tally = Tally::default();
    tally.tells(TELLS);
    for n in 0..3000 {
        let agent = Some(Cow::Borrowed("SomeBot/1.0")).filter(|_| n % 3 == 0);
        let path = ["/cart", "/order", "/product/1", "/?s=oak"][n as usize % 4];
        tally.add(&Request { agent, ..request(n * 200, "", path, 20) });
    }
    let (_, loaded) = proposed(tally);
    let classes = &loaded.site.policy.classes;
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["crawlers", "visitors"]);
    assert!(classes[0].guarantee.throughput.is_none() && classes[1].guarantee.throughput.is_some());
    assert!(classes.iter().all(|class| class.mode == Mode::Observe), "nothing is refused by a first policy");
}

#[test]
fn overload_does_not_reach_the_service_time() {
    // In every third minute of the second half an hour requests take five times as long.
    let mut tally = Tally::default();
    tally.tells(TELLS);
    for ms in (0..3_600_000i64).step_by(100) {
        let busy = ms > 1_800_000 && ms / 60_000 % 3 == 0;
        tally.add(&request(ms, "a.test", "/x", if busy { 100 } else { 20 }));
        tally.add(&request(ms, "b.test", "/x", if busy { 200 } else { 40 }));
    }
    let (proposal, loaded) = proposed(tally);
    let times: Vec<_> = loaded.site.policy.classes.iter().filter_map(|class| class.service_time).collect();
    assert_eq!(times, [Duration::from_millis(40), Duration::from_millis(20)]);
    assert!(proposal.yaml().contains("times as long"));
}

#[test]
fn servers_are_those_of_the_log_or_those_given() {
    let with_nodes = || {
        let mut tally = Tally::default();
        tally.tells(TELLS);
        for n in 0..1000 {
            let node = ["10.0.0.1:80", "unix:/run/app.sock", "static/srv1", "Web.Test:80"][n as usize % 4];
            tally.add(&Request { node: Some(Cow::Borrowed(node)), ..request(n * 100, "", "/a", 20) });
        }
        tally
    };
    let addresses = |loaded: &Loaded| loaded.site.nodes.iter().map(|node| node.address.clone()).collect::<Vec<_>>();
    assert_eq!(addresses(&proposed(with_nodes()).1), ["10.0.0.1:80", "unix:/run/app.sock", "web.test:80"]);
    let given = ["10.0.0.9:80".to_owned(), "10.0.0.9:80".to_owned()];
    let proposal = from_logs(with_nodes(), "test", &given).expect("a proposal");
    assert_eq!(addresses(&load("p.yaml", &proposal.yaml()).expect("sound")), ["10.0.0.9:80"]);
    assert!(from_logs(with_nodes(), "test", &["http://x".to_owned()]).unwrap_err().contains("scheme"));
    assert!(from_logs(Tally::default(), "test", &[]).unwrap_err().contains("no request"));
}

proptest! {
    /// Whatever a log has, the policy is sound and its promises fit.
    #[test]
    fn every_proposal_passes_check(
        requests in prop::collection::vec((
            0i64..400_000_000, "([a-zA-Z0-9.-]{0,8}|a|b)(:80)?", "/?[a-z\"'#:é%.~/-]{0,4}", 0u64..100_000_000, prop::option::of("(bot|x)"),
            100u16..700, prop::option::of("[a-z0-9.:/-]{0,12}"),
        ), 1..40),
        repeat in 1usize..60,
        timed in any::<bool>(),
    ) {
        let mut tally = Tally::default();
        tally.tells(if timed { TELLS } else { Tells::default() });
        for round in 0..repeat {
            for (ms, host, path, service, agent, status, node) in &requests {
                let at = ms + round as i64 * 997;
                let mut one = request(at, host, path, *service / (1 + round as u64));
                one.agent = agent.clone().map(Cow::Owned);
                one.node = node.clone().map(Cow::Owned);
                one.status = Some(*status);
                if !timed {
                    (one.service, one.response) = (None, None);
                }
                tally.add(&one);
            }
        }
        proposed(tally);
    }
}
