//! Gateways that keep one guarantee together, as processes, with three members of etcd. Skipped loudly without etcd.
//!
//! Everything is waited for by events. Times are checked nowhere: a busy machine makes them longer.

mod balancer;
mod etcd;
mod faults;
mod gateway;
mod load;
mod net;
mod rollout;
mod standby;

use std::time::Duration;

use weirgate_clock::pause;
use weirgate_wire::admin::{MemberShare, SiteStage};

use gateway::{FLOOR, Site, get};

/// Rounding of shares to millionths.
const ROUNDING: f64 = 1e-3;

fn stage(site: &Site, gateway: usize) -> Option<SiteStage> {
    site.gateways[gateway].site().map(|site| site.stage)
}

/// Only gateways that may be elected divide the guarantees, also after one of them is gone.
#[test]
fn only_electable_gateways_are_elected() {
    let Some(mut site) = Site::start(3, "  electable: [gw2, gw3]\n") else { return };
    let first = site.elected();
    assert_ne!(first, 0);
    site.follows(&[60.0, 20.0, 10.0]);
    site.gateways[first].kill();
    site.wait("another one is elected", |site| {
        let elected = site.gateways[0].site().and_then(|seen| seen.coordinator);
        elected.is_some_and(|name| name != site.gateways[first].name)
    });
    let name = site.gateways[0].site().and_then(|seen| seen.coordinator);
    assert_eq!(name.as_ref(), Some(&site.gateways[3 - first].name));
}

/// Load moves from one gateway to the other ones, and shares follow. The share of a gateway that is killed is free
/// after its lease, that of one that ends properly at once, and another one is elected.
#[test]
fn shares_follow_the_load_and_outlive_gateways() {
    let Some(mut site) = Site::start(4, "  lease: 5s\n  safe_for: 8s\n") else { return };
    let elected = site.elected();
    site.follows(&[63.0, 18.0, 9.0, 0.0]);
    site.follows(&[0.0, 9.0, 18.0, 63.0]);
    let snapshot = get(&site.gateways[3].admin, "/snapshot").expect("it answers").1;
    let snapshot: serde_json::Value = serde_json::from_slice(&snapshot).expect("JSON");
    let gold = &snapshot["classes"][0];
    assert_eq!(gold["guarantee"]["throughput_per_second"], FLOOR);
    assert!(gold["part_per_second"].as_f64().is_some_and(|part| part < FLOOR), "{gold}");
    assert_eq!(gold["achieved"]["throughput_held"], true, "{gold}");
    let events = get(&site.gateways[3].admin, "/events").expect("it answers").1;
    let events = String::from_utf8_lossy(&events).into_owned();
    assert!(events.contains("gateway_elected") && events.contains("shares_granted"), "{events}");

    // The elected one knows each gateway, and its figures agree with one another.
    let seen = site.gateways[elected].site().expect("it answers");
    let sum = |of: fn(&MemberShare) -> f64| -> f64 { seen.members.iter().map(|member| of(&member.shares[0])).sum() };
    let (held, demand) = (sum(|share| share.held_per_second), sum(|share| share.demand_per_second.unwrap_or(0.0)));
    let gold = &seen.classes[0];
    assert!(
        gold.held_per_second.is_some_and(|all| (all - held).abs() < ROUNDING && all <= FLOOR + ROUNDING),
        "{seen:?}"
    );
    assert!(gold.site_demand_per_second.is_some_and(|all| (all - demand).abs() < ROUNDING), "{seen:?}");

    // The one with most of the load is not there any more, and its clients go to another one.
    let busy = if elected == 3 { 0 } else { 3 };
    site.gateways[busy].kill();
    let mut loads = [9.0; 4];
    loads[busy] = 0.0;
    loads[(busy + 1) % 4] = 70.0;
    site.follows(&loads);

    // The elected one ends properly. Nobody waits for its lease.
    let elected = site.elected();
    site.gateways[elected].end("TERM");
    let next = site.elected();
    assert_ne!(next, elected);
    // A gateway that starts takes over the costs that the others have learned.
    site.gateways[busy].gold.load(0.0);
    let took_over = |site: &Site| site.gateways[busy].said("site: took over what gw");
    let before = took_over(&site);
    site.gateways[elected].begin(&site.net);
    site.gateways[busy].begin(&site.net);
    site.wait("it takes over what the others have learned", |site| took_over(site) > before);
    site.follows(&[30.0, 20.0, 20.0, 20.0]);

    // The elected one is killed. The others keep their shares until another one is elected.
    let elected = site.elected();
    site.gateways[elected].kill();
    let next = site.elected();
    assert_ne!(next, elected);
    loads = [20.0; 4];
    loads[elected] = 0.0;
    loads[next] = 45.0;
    site.follows(&loads);
    let sum = site.largest_sum();
    assert!(sum > 0.5 * FLOOR && sum <= FLOOR + ROUNDING, "{sum}");
}

/// A gateway that is stopped holds nothing up, and finds its share gone when it goes on.
#[test]
fn a_gateway_that_is_stopped_uses_nothing_when_it_goes_on() {
    let Some(mut site) = Site::start(3, "  lease: 5s\n  safe_for: 5s\n") else { return };
    let elected = site.elected();
    let (stopped, other) = ((elected + 1) % 3, (elected + 2) % 3);
    let mut loads = [5.0; 3];
    loads[stopped] = 80.0;
    site.follows(&loads);
    site.gateways[stopped].signal("STOP");
    site.gateways[stopped].gold.load(0.0);
    site.gateways[other].gold.load(85.0);
    site.wait("its share is free", |site| site.gateways[other].holds(76.0));
    site.gateways[stopped].signal("CONT");
    site.wait("it gets shares again", |site| stage(site, stopped) == Some(SiteStage::Granted));

    // The elected one is stopped, and believes to be elected when it goes on.
    site.gateways[elected].signal("STOP");
    site.wait("another one is elected", |site| {
        site.gateways[other].site().is_some_and(|one| {
            one.stage == SiteStage::Granted && one.coordinator.is_some_and(|name| name != site.gateways[elected].name)
        })
    });
    site.gateways[elected].signal("CONT");
    site.elected();
    let sum = site.largest_sum();
    assert!(sum > 0.5 * FLOOR && sum <= FLOOR + ROUNDING, "{sum}");
}

/// One member of etcd fewer changes nothing. Without a majority shares end in steps, and requests are served.
#[test]
fn shares_end_in_steps_without_etcd_and_come_back() {
    let Some(mut site) = Site::start(2, "  lease: 5s\n  safe_for: 8s\n") else { return };
    site.elected();
    site.follows(&[80.0, 10.0]);
    site.etcd.kill(0);
    site.follows(&[10.0, 80.0]);
    site.etcd.signal(1, "STOP");
    site.wait("shares have ended", |site| (0..2).all(|one| stage(site, one) == Some(SiteStage::Minimum)));
    for gateway in &site.gateways {
        assert_eq!(get(&gateway.admin, "/ready").map(|(status, _)| status), Some(200));
        assert!(gateway.said("Shares last until their lease ends") > 0);
        let held = gateway.site().expect("it answers").classes[0].share_per_second;
        assert!((held - FLOOR / 200.0).abs() < ROUNDING, "{held}");
    }
    site.etcd.signal(1, "CONT");
    site.elected();
    site.follows(&[10.0, 80.0]);
    assert!(site.etcd.begin(0, &site.net));
    let sum = site.largest_sum();
    assert!(sum > 0.5 * FLOOR && sum <= FLOOR + ROUNDING, "{sum}");
}

/// Gateways with other guarantees share nothing and say so. A reload on both brings them together again.
#[test]
fn gateways_that_do_not_agree_say_so() {
    let Some(mut site) = Site::start(2, "") else { return };
    let elected = site.elected();
    let other = 1 - elected;
    let mut loads = [60.0; 2];
    loads[other] = 30.0;
    site.follows(&loads);
    let larger = |text: String| text.replace(&format!("throughput: {FLOOR}/s"), "throughput: 120/s");
    site.gateways[other].reload(larger);
    let names = [site.gateways[0].name.clone(), site.gateways[1].name.clone()];
    site.wait("both tell of it", |site| {
        let told = site.gateways[elected].said(&format!("{} gets no shares", names[other])) > 0;
        told && site.gateways[other].said("do not agree on the members, the guarantees or the times") > 0
    });
    let kept = site.gateways[other].site().expect("it answers");
    assert!(kept.error.is_some(), "{kept:?}");
    site.gateways[elected].reload(larger);
    site.wait("they agree", |site| {
        site.gateways.iter().all(|gateway| {
            gateway.site().is_some_and(|one| {
                one.stage == SiteStage::Granted && one.error.is_none() && one.classes[0].guaranteed_per_second == 120.0
            })
        })
    });
    site.follows(&[50.0, 60.0]);
    let sum = site.largest_sum();
    assert!(sum > 0.5 * FLOOR && sum <= 120.0 + ROUNDING, "{sum}");
    // A line of a log that is written twice would be noise.
    pause(Duration::from_millis(500));
    assert!(site.gateways[elected].said("gets no shares") <= 2);
}
