//! One rule of the coordinator each, with messages that arrive at once.

use core::time::Duration;

use super::*;
use crate::member::{Member, Stage};
use crate::message::GroupUse;
use crate::settings::Settings;

const FLOOR: u64 = 1_000_000;

/// Members and a coordinator without a network between them.
struct Cast {
    now: Time,
    site: Arc<Site>,
    members: Vec<Member>,
    coordinator: Coordinator,
    /// Members whose messages are lost.
    cut: Vec<usize>,
    /// Members that grants do not reach.
    deaf: Vec<usize>,
}

impl Cast {
    fn new(settings: Settings) -> Cast {
        let site = Arc::new(settings.check().unwrap());
        let members = (0..site.settings().members).map(|_| Member::new(site.clone(), 1)).collect();
        let nobody = vec![Record::Nothing; site.settings().members];
        let coordinator = Coordinator::new(Time::ZERO, site.clone(), 1, &nobody);
        Cast { now: Time::ZERO, site, members, coordinator, cut: Vec::new(), deaf: Vec::new() }
    }

    fn four() -> Cast {
        Cast::new(Settings::new(4, vec![FLOOR]))
    }

    fn demands(&mut self, demands: [u64; 4]) {
        for (member, demand) in self.members.iter_mut().zip(demands) {
            member.demand(0, demand);
        }
    }

    fn play(&mut self, millis: u64) {
        for _ in 0..millis / 5 {
            self.now = self.now + Duration::from_millis(5);
            self.coordinator.proved(self.now);
            for (index, member) in self.members.iter_mut().enumerate() {
                member.follow(self.coordinator.revision());
                if let Some(report) = member.poll_report(self.now)
                    && !self.cut.contains(&index)
                {
                    self.coordinator.report(self.now, index, report).unwrap();
                }
            }
            self.coordinator.run(self.now);
            while let Some((index, record)) = self.coordinator.poll_record() {
                self.coordinator.recorded(index, record);
            }
            while let Some((index, grant)) = self.coordinator.poll_grant() {
                if !self.cut.contains(&index) && !self.deaf.contains(&index) {
                    self.members[index].granted(self.now, grant).unwrap();
                }
            }
            let sum: u64 = (0..self.members.len()).map(|index| self.share(index)).sum();
            assert!(sum <= FLOOR, "{sum} of {FLOOR} at {:?}", self.now);
        }
    }

    fn share(&self, member: usize) -> u64 {
        self.members[member].share(self.now, 0)
    }

    fn shares(&self) -> Vec<u64> {
        (0..self.members.len()).map(|index| self.share(index)).collect()
    }
}

#[test]
fn shares_follow_uneven_demand_under_overload() {
    let mut stage = Cast::four();
    stage.demands([900_000, 300_000, 100_000, 0]);
    stage.play(2_000);
    let shares = stage.shares();
    assert!(shares[1] >= 300_000 && shares[2] >= 100_000, "{shares:?}");
    assert_eq!(shares[3], 2_500, "the minimum, a hundredth of the floor for all");
    assert!(shares.iter().sum::<u64>() > 990_000, "{shares:?}");
}

#[test]
fn a_shift_of_load_moves_the_shares_within_two_round_trips() {
    let mut stage = Cast::four();
    stage.demands([700_000, 200_000, 100_000, 0]);
    stage.play(3_000);
    stage.demands([0, 700_000, 200_000, 100_000]);
    // Four messages in a row, each at most one pace (20 ms) late.
    stage.play(100);
    let shares = stage.shares();
    assert!(shares[1] >= 690_000 && shares[2] >= 200_000 && shares[3] >= 90_000, "{shares:?}");
}

#[test]
fn a_dead_members_share_comes_back_in_two_steps() {
    let mut stage = Cast::four();
    stage.demands([700_000, 300_000, 0, 0]);
    stage.play(3_000);
    let before = stage.share(1);
    assert!(before < 310_000, "{before}");
    stage.cut = vec![0];
    stage.demands([0, 1_000_000, 0, 0]);
    stage.play(4_000);
    assert_eq!(stage.share(1), before, "the lease of the dead one may run");
    // The lease of 5 s with its margin, counted from the last report, at most one `hold` ago.
    stage.play(2_100);
    let safe = stage.site.safe(0, 700_000);
    assert!((600_000..=FLOOR - safe).contains(&stage.share(1)), "{:?}", stage.shares());
    stage.play(30_000);
    assert!(stage.share(1) > 980_000, "{:?}", stage.shares());
}

#[test]
fn a_member_that_leaves_gives_back_at_once() {
    let mut stage = Cast::four();
    stage.demands([700_000, 1_000_000, 0, 0]);
    stage.play(3_000);
    stage.members[0].leave();
    stage.play(100);
    assert_eq!(stage.share(0), 2_500);
    assert!(stage.members[0].is_answered());
    assert!(stage.share(1) > 980_000, "{:?}", stage.shares());
    assert_eq!(stage.coordinator.phase(0), Some(Phase::Left));
}

#[test]
fn a_restarted_member_gets_its_share_back_at_once() {
    let mut stage = Cast::four();
    stage.demands([700_000, 300_000, 0, 0]);
    stage.play(3_000);
    stage.members[0] = Member::new(stage.site.clone(), 2);
    stage.demands([700_000, 300_000, 0, 0]);
    assert_eq!(stage.share(0), 2_500);
    stage.play(150);
    assert!(stage.share(0) >= 690_000, "{:?}", stage.shares());
}

#[test]
fn without_a_coordinator_shares_fall_in_steps_and_never_to_nothing() {
    let mut stage = Cast::four();
    stage.demands([700_000, 300_000, 0, 0]);
    stage.play(3_000);
    let granted = stage.share(0);
    stage.cut = vec![0, 1, 2, 3];
    stage.play(3_900);
    assert_eq!((stage.share(0), stage.members[0].stage(stage.now)), (granted, Stage::Granted));
    stage.play(1_100);
    assert_eq!((stage.share(0), stage.members[0].stage(stage.now)), (granted / 2, Stage::Safe));
    stage.play(25_000);
    assert_eq!((stage.share(0), stage.members[0].stage(stage.now)), (2_500, Stage::Minimum));
}

#[test]
fn a_successor_asks_and_nobody_falls() {
    let mut stage = Cast::four();
    stage.demands([700_000, 250_000, 0, 0]);
    stage.play(3_000);
    let before = stage.shares();
    // The election took two seconds.
    stage.cut = vec![0, 1, 2, 3];
    stage.play(2_000);
    stage.cut.clear();
    stage.coordinator = Coordinator::new(stage.now, stage.site.clone(), 2, &[]);
    stage.play(1_000);
    assert_eq!(stage.coordinator.counts().answers, 0, "the predecessor may still act");
    stage.play(2_900);
    assert_eq!(stage.shares()[..2], before[..2]);
    // All have stated their shares, so shares move again.
    stage.demands([100_000, 700_000, 0, 0]);
    stage.play(200);
    assert!(stage.share(1) >= 700_000, "{:?}", stage.shares());
}

#[test]
fn a_successor_gives_out_nothing_that_a_silent_member_may_hold() {
    let mut stage = Cast::four();
    stage.demands([600_000, 100_000, 0, 0]);
    stage.play(3_000);
    stage.cut = vec![0];
    stage.coordinator = Coordinator::new(
        stage.now,
        stage.site.clone(),
        2,
        &[Record::Granted, Record::Granted, Record::Nothing, Record::Nothing],
    );
    stage.demands([0, 900_000, 0, 0]);
    stage.play(6_900);
    // Only the shares of the other three.
    assert!(stage.share(1) < 150_000, "{:?}", stage.shares());
    // After (1 s + 5 s) × 1.2 the silent one can hold half of the rest, and after 31 s × 1.2 the minimum.
    stage.play(600);
    assert!((450_000..600_000).contains(&stage.share(1)), "{:?}", stage.shares());
    stage.play(30_000);
    assert!(stage.share(1) >= 900_000, "{:?}", stage.shares());
}

#[test]
fn a_successor_leaves_what_a_lapsed_member_may_hold_until_it_must_have_ended() {
    let mut stage = Cast::four();
    stage.demands([600_000, 100_000, 0, 0]);
    stage.play(3_000);
    stage.cut = vec![0];
    // Others may use the part that the silent one held beyond its safe share, so no half of the rest is free.
    let records = [Record::Lapsed, Record::Granted, Record::Nothing, Record::Nothing];
    stage.coordinator = Coordinator::new(stage.now, stage.site.clone(), 2, &records);
    stage.demands([0, 900_000, 0, 0]);
    stage.play(7_000);
    assert!(!stage.coordinator.is_gone(stage.now, 0), "grants of the one before may last");
    stage.play(30_000);
    assert!(stage.coordinator.is_gone(stage.now, 0));
    assert!(stage.share(1) < 150_000, "{:?}", stage.shares());
    stage.play(500);
    assert!(stage.share(1) >= 900_000, "{:?}", stage.shares());
}

#[test]
fn a_second_statement_confirms_no_grant() {
    let mut stage = Cast::four();
    stage.demands([700_000, 300_000, 0, 0]);
    stage.play(3_000);
    stage.cut = vec![0];
    assert!(!stage.coordinator.is_gone(stage.now, 0));
    stage.play(6_100);
    assert_eq!(stage.coordinator.phase(0), Some(Phase::Unknown));
    assert!(stage.coordinator.is_gone(stage.now, 0) && !stage.coordinator.is_gone(stage.now, 1));
    // Its report arrives, it is asked, and it states its safe share in two reports before there is another answer.
    let member = &mut stage.members[0];
    let now = member.next_timeout(stage.now);
    stage.coordinator.report(now, 0, member.poll_report(now).unwrap()).unwrap();
    stage.coordinator.proved(now);
    let mut now = now + Duration::from_millis(20);
    stage.coordinator.run(now);
    let (_, question) = stage.coordinator.poll_grant().unwrap();
    member.granted(now, question).unwrap();
    for _ in 0..2 {
        stage.coordinator.report(now, 0, member.poll_report(now).unwrap()).unwrap();
        now = now + Duration::from_millis(750);
    }
    stage.coordinator.proved(now);
    stage.coordinator.run(now);
    assert!(stage.coordinator.held(0, 0) >= member.share(now, 0));
    assert_eq!(stage.coordinator.phase(0), Some(Phase::Live));
}

#[test]
fn it_does_nothing_without_a_proof() {
    let site = Arc::new(Settings::new(1, vec![FLOOR]).check().unwrap());
    let mut coordinator = Coordinator::new(Time::ZERO, site.clone(), 3, &[Record::Nothing]);
    let mut member = Member::new(site, 1);
    member.follow(3);
    let later = Time::from_millis(5_000);
    coordinator.report(later, 0, member.poll_report(later).unwrap()).unwrap();
    coordinator.run(later);
    assert_eq!((coordinator.poll_grant(), coordinator.next_timeout()), (None, Time::NEVER));
    coordinator.proved(Time::from_millis(4_500));
    coordinator.run(later);
    assert!(coordinator.poll_grant().is_some());
    // The next proof is late.
    let later = Time::from_millis(5_500);
    assert!(!coordinator.is_leading(later));
}

#[test]
fn a_reserve_is_never_granted() {
    let mut settings = Settings::new(4, vec![FLOOR]);
    settings.reserve = 100_000;
    let mut stage = Cast::new(settings);
    stage.demands([900_000, 900_000, 0, 0]);
    stage.play(3_000);
    let sum: u64 = stage.shares().iter().sum();
    assert!((890_000..=900_000).contains(&sum), "{sum}");
}

#[test]
fn unused_shares_are_called_back_to_a_tenth() {
    let mut stage = Cast::four();
    stage.demands([1_000_000, 0, 0, 0]);
    stage.play(3_000);
    stage.demands([0, 0, 0, 0]);
    stage.play(3_000);
    assert!(stage.coordinator.free(0) >= 100_000, "{}", stage.coordinator.free(0));
    assert!(stage.share(0) > 800_000, "nobody else needs it");
}

#[test]
fn refused_messages_change_nothing() {
    let mut stage = Cast::four();
    stage.demands([500_000, 0, 0, 0]);
    stage.play(3_000);
    let now = stage.now;
    let site = stage.site.clone();
    let report = |number, change: fn(&mut Report)| {
        let mut report = Report {
            revision: 1,
            incarnation: 1,
            number,
            applied: 0,
            held: None,
            demands: vec![(0, 900_000)],
            windows: Vec::new(),
            ejected: Vec::new(),
            leaving: false,
        };
        change(&mut report);
        report
    };
    let cases: [(usize, Report, Refused); 8] = [
        (4, report(9_000, |_| ()), Refused::Member),
        (0, report(9_000, |r| r.revision = 2), Refused::Revision),
        (0, report(9_000, |r| r.incarnation = 0), Refused::Incarnation),
        (0, report(1, |_| ()), Refused::Old),
        (0, report(9_000, |r| r.applied = 9_000), Refused::Old),
        (0, report(9_000, |r| r.demands = vec![(0, 1); 2]), Refused::Size),
        (0, report(9_000, |r| r.demands = vec![(1, 1)]), Refused::Value),
        (0, report(9_000, |r| r.held = Some(vec![FLOOR + 1])), Refused::Value),
    ];
    let before = stage.coordinator.held(0, 0);
    for (member, report, reason) in cases {
        assert_eq!(stage.coordinator.report(now, member, report), Err(reason));
    }
    assert_eq!(stage.coordinator.held(0, 0), before);
    assert_eq!(stage.coordinator.counts().refused, 8);

    let grant = Grant {
        revision: 1,
        incarnation: 1,
        report: 0,
        sequence: 9_000,
        step: Step::Shares { base: 0, shares: vec![(0, FLOOR)] },
        windows: Vec::new(),
        ejected: Vec::new(),
    };
    let member = &mut stage.members[0];
    let before = member.share(now, 0);
    assert_eq!(member.granted(now, Grant { revision: 0, ..grant.clone() }), Err(Refused::Revision));
    assert_eq!(member.granted(now, Grant { incarnation: 2, ..grant.clone() }), Err(Refused::Incarnation));
    assert_eq!(member.granted(now, grant.clone()), Err(Refused::Old));
    assert_eq!(member.granted(now, Grant { report: u64::MAX, ..grant }), Err(Refused::Old));
    assert_eq!(member.share(now, 0), before);
    assert_eq!(Step::Shares { base: 0, shares: vec![(0, FLOOR + 1)] }.check(&site), Err(Refused::Value));
}

#[test]
fn members_learn_what_the_others_have_in_flight_and_windows_follow_demand() {
    let mut stage = Cast::new(Settings::new(2, vec![FLOOR]));
    let used = |base, in_flight, waiting| GroupUse { base, least: 1_000, in_flight, waiting, ..GroupUse::default() };
    let mut windows = [used(9_000, 1_000, 0), used(3_000, 3_000, 9_000)];
    for _ in 0..20 {
        for (member, used) in stage.members.iter_mut().zip(&mut windows) {
            for share in member.take_windows() {
                used.base = (u64::from(used.base) * u64::from(share.factor) / 1_000_000) as u32;
                assert!(share.others <= 3_000, "{share:?}");
            }
            member.windows(stage.now, vec![*used]);
        }
        stage.play(100);
    }
    // Factors are in millionths.
    assert!((11_990..=12_000).contains(&(windows[0].base + windows[1].base)), "{windows:?}");
    assert!(windows[1].base > 10_000, "{windows:?}");
    // One that leaves hands over its window.
    stage.members[1].leave();
    stage.play(1_000);
    let taken = stage.members[0].take_windows();
    assert!(taken.iter().any(|share| share.others == 0 && share.factor > 5_000_000), "{taken:?}");
}

#[test]
fn members_hear_which_nodes_any_of_them_has_ejected() {
    let mut stage = Cast::new(Settings::new(3, vec![FLOOR]));
    stage.play(2_000);
    let heard =
        |stage: &Cast| stage.members.iter().map(|one| one.ejected_at_site(stage.now).to_vec()).collect::<Vec<_>>();
    let names = |names: &[&str]| vec![names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(); 3];
    let eject = |stage: &mut Cast, member: usize, nodes: &[&str]| {
        stage.members[member].ejected(nodes.iter().map(|name| (*name).to_owned()));
    };
    eject(&mut stage, 0, &["web/b"]);
    eject(&mut stage, 1, &["web/b", "web/a"]);
    // A report of each, and its answer: nothing waits for the next one.
    stage.play(10);
    assert_eq!(heard(&stage), names(&["web/a", "web/b"]));
    eject(&mut stage, 1, &[]);
    stage.play(10);
    assert_eq!(heard(&stage), names(&["web/b"]));
    // The nodes of a silent member are named until its lease ends. A member without a lease takes no hints.
    stage.cut = vec![0];
    stage.play(6_500);
    assert_eq!(heard(&stage), names(&[]));
    // A message names a bounded number of nodes.
    stage.members[1].ejected((0..1_000).map(|node| format!("web/{node}")));
    stage.play(10);
    assert_eq!(stage.members[2].ejected_at_site(stage.now).len(), MAX_EJECTED);
}

#[test]
fn a_member_that_never_answers_the_question_for_its_shares_is_gone_after_a_lease() {
    let mut stage = Cast::four();
    stage.play(100);
    let all = vec![Record::Granted; 4];
    stage.coordinator = Coordinator::new(stage.now, stage.site.clone(), 2, &all);
    // It reports to the successor and hears the question, but ends before it answers.
    while stage.coordinator.phase(0) != Some(Phase::Asked) {
        stage.play(5);
    }
    stage.cut = vec![0];
    stage.play(5_900);
    assert!(!stage.coordinator.is_gone(stage.now, 0), "it may hold the shares of the predecessor");
    stage.play(2_000);
    assert!(stage.coordinator.is_gone(stage.now, 0) && !stage.coordinator.is_gone(stage.now, 1));
}

#[test]
fn a_member_that_confirms_nothing_loses_what_others_need() {
    let mut stage = Cast::new(Settings::new(2, vec![FLOOR]));
    stage.members[1].demand(0, FLOOR);
    stage.play(2_000);
    let held = stage.members[1].share(stage.now, 0);
    assert!(held > 900_000, "{held}");
    // Grants no longer reach it, or it does as if they did not. Its reports arrive, so it does not seem to be gone.
    stage.deaf = vec![1];
    stage.members[0].demand(0, 800_000);
    let fair = |stage: &Cast| stage.members[0].share(stage.now, 0);
    stage.play(4_000);
    assert!(fair(&stage) < 100_000, "{}: the other one may use all of its share", fair(&stage));
    // Its lease ends, and leaves a half. That ends as well.
    stage.play(8_000);
    assert!((400_000..600_000).contains(&fair(&stage)), "{}", fair(&stage));
    stage.play(30_000);
    assert!(fair(&stage) >= 800_000, "{}", fair(&stage));
    // It is heard again and gets what is left.
    stage.deaf.clear();
    stage.play(1_000);
    assert!(stage.members[1].share(stage.now, 0) > 100_000);
}

#[test]
fn a_member_that_claims_everything_after_an_election_takes_nothing_from_the_others() {
    let mut stage = Cast::new(Settings::new(3, vec![FLOOR]));
    let play = |stage: &mut Cast, demands: [u64; 3], millis| {
        stage.members.iter_mut().zip(demands).for_each(|(member, demand)| member.demand(0, demand));
        stage.play(millis);
    };
    play(&mut stage, [400_000, 300_000, 300_000], 3_000);
    let before = stage.shares();
    let granted = [Record::Granted; 3];
    stage.coordinator = Coordinator::new(stage.now, stage.site.clone(), 2, &granted);
    // The liar answers first, says that it holds the whole floor, and confirms whatever it is told.
    stage.cut = vec![0, 1, 2];
    let lie = |stage: &mut Cast, number, applied, held: Option<Vec<u64>>| {
        let (revision, incarnation, demands) = (2, 1, vec![(0, 300_000)]);
        let report = Report {
            revision,
            incarnation,
            number,
            applied,
            held,
            demands,
            windows: Vec::new(),
            ejected: Vec::new(),
            leaving: false,
        };
        stage.coordinator.report(stage.now, 2, report).unwrap();
    };
    lie(&mut stage, 1, 0, None);
    stage.play(1_500);
    lie(&mut stage, 2, 1, Some(vec![FLOOR]));
    stage.play(50);
    assert_eq!(stage.coordinator.held(2, 0), FLOOR, "the lie is counted");
    stage.cut = vec![2];
    stage.play(2_000);
    assert_eq!([0, 1].map(|member| stage.coordinator.phase(member)), [Some(Phase::Live); 2]);
    assert_eq!(stage.shares()[..2], before[..2], "the others keep what they hold");
    // It is to have its part only, and confirms that.
    lie(&mut stage, 3, 2, None);
    stage.play(1_000);
    lie(&mut stage, 4, 3, None);
    play(&mut stage, [400_000, 300_000, 0], 500);
    let shares = stage.shares();
    assert!(shares[0] >= 400_000 - 10 && shares[1] >= 300_000 - 10, "{shares:?}");
    assert!(stage.coordinator.held(2, 0) <= 310_000, "{}", stage.coordinator.held(2, 0));
}

#[test]
fn windows_of_a_member_that_comes_and_goes_do_not_overflow() {
    let mut stage = Cast::new(Settings::new(2, vec![FLOOR]));
    let used = |base| vec![GroupUse { base, least: 1_000, ..GroupUse::default() }];
    for _ in 0..20 {
        stage.members[0].windows(stage.now, used(1));
        stage.members[1].windows(stage.now, used(u32::MAX));
        stage.play(100);
    }
    for incarnation in 2..6_000 {
        let report = Report {
            revision: 1,
            incarnation,
            number: 1,
            applied: 0,
            held: None,
            demands: Vec::new(),
            windows: used(u32::MAX),
            ejected: Vec::new(),
            leaving: false,
        };
        stage.coordinator.report(stage.now, 1, report).unwrap();
    }
    stage.cut = vec![1];
    stage.play(1_000);
    assert!(stage.members[0].take_windows().iter().all(|share| share.factor > 0));
}
