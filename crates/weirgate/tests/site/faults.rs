//! Random faults, one after the other, and the part of the guarantee that is kept meanwhile. Takes minutes:
//!
//! ```text
//! SITE_SEED=1 SITE_FAULTS=50 cargo test -p weirgate --test site -- --ignored --nocapture faults
//! ```
//!
//! `SITE_FLOOR` is the guaranteed throughput. The clients send somewhat less than that, and their load moves every ten
//! seconds. Other requests fill the node, so requests that no share covers are refused or late. One gateway alone gets
//! the same load first, and then four gateways do. With `ip` and as root each process has a network namespace of its
//! own.

use std::time::Duration;

use weirgate_clock::{Clock, pause};
use weirgate_engine::Random;
use weirgate_wire::admin::SiteStage;

use crate::gateway::{CPUS, Gateway, Plan, Site};

/// Load of the gateways in the order in which it moves, in parts of the floor. It just fits.
const PARTS: [f64; 4] = [0.66, 0.19, 0.1, 0.0];

/// Load of the other class on all gateways together, in parts of the floor. With the guaranteed one it is more than
/// the node can answer.
const REST: f64 = 1.5;

/// Capacity of the node, in parts of the floor.
const CAPACITY: f64 = 2.0;

/// Interval between two moves of the load.
const MOVES: Duration = Duration::from_secs(10);

/// Time after which no guarantee may be missed for the clients of gateways that run, in seconds: the lease by default,
/// and a fifth of it for clocks that run differently.
const LEASE_AND_SKEW: f64 = 6.0;

/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// Time for the last answers.
const REMAINDER: Duration = Duration::from_millis(1_200);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A stage of the test: its requests, the answered ones, and those that shares covered.
#[derive(Default)]
struct Tally {
    seconds: f64,
    /// Requests of the guaranteed class that were sent, and answered in time.
    sent: f64,
    good: f64,
    /// Requests of both classes that were answered in time.
    all: f64,
    /// Requests of both classes that gateways which run have lost: their connection ended before the whole answer.
    lost: f64,
    /// Requests of the guaranteed class beyond the share of their gateway at the time.
    uncovered: f64,
    /// Longest time for which less than four fifths of them were answered.
    missed: f64,
    missing_since: Option<Duration>,
    /// Number of such times, and of those that were longer than a lease and the skew of clocks.
    misses: [u64; 2],
    /// Time by which the clients were late, in milliseconds a request.
    late_ms: f64,
    late_sent: f64,
    /// Looks at gateways that run: granted, safe, minimum.
    stages: [u64; 3],
}

impl Tally {
    fn print(&self, of: &str) {
        let percent = |part: f64| 100.0 * part / self.sent.max(1.0);
        eprintln!(
            "{of}, {:.0} s: {:.0} requests within the guarantee, {:.2} % not answered in time, {:.2} % beyond the share \
             of their gateway; all good answers {:.1}/s; longest time with less than 80 % answered {:.1} s; {} such times, \
             and {} longer than lease and skew, {LEASE_AND_SKEW} s; {:.0} requests lost; requests sent {:.2} ms late on \
             average",
            self.seconds,
            self.sent,
            percent((self.sent - self.good).max(0.0)),
            percent(self.uncovered),
            self.all / self.seconds.max(1e-9),
            self.missed,
            self.misses[0],
            self.misses[1],
            self.lost,
            self.late_ms,
        );
    }
}

/// A site with its load.
struct Run {
    site: Site,
    floor: f64,
    clock: Clock,
}

impl Run {
    fn of(gateways: usize, is_apart: bool) -> Option<Run> {
        let floor = number("SITE_FLOOR", 100) as f64;
        let demand = Duration::from_secs_f64(f64::from(CPUS) / (CAPACITY * floor));
        let plan = Plan { floor, demand, is_apart, ..Plan::new(gateways, "") };
        assert!((plan.capacity() / floor - CAPACITY).abs() < 0.01);
        let site = Site::of(&plan)?;
        Some(Run { site, floor, clock: Clock::start() })
    }

    /// Numbers of all gateways so far: guaranteed requests sent, answered, all answers, and all lost requests.
    fn counts(&self) -> Vec<[f64; 4]> {
        let of = |one: &Gateway| {
            let all = one.gold.good() + one.rest.good();
            [one.gold.sent(), one.gold.good(), all, one.gold.lost() + one.rest.lost()].map(|n| n as f64)
        };
        self.site.gateways.iter().map(of).collect()
    }

    /// Offers the load of this instant. Clients of a gateway that is away go to the next one.
    fn offer(&self, away: Option<usize>) {
        let turn = (self.clock.now().as_secs_f64() / MOVES.as_secs_f64()) as usize;
        let count = self.site.gateways.len();
        let running = count - usize::from(away.is_some());
        for (index, gateway) in self.site.gateways.iter().enumerate() {
            let before = (index + count - 1) % count;
            let mut part = PARTS[(index + turn) % PARTS.len()];
            if count == 1 {
                part = PARTS.iter().sum();
            } else if away == Some(before) {
                part += PARTS[(before + turn) % PARTS.len()];
            }
            let is_away = away == Some(index);
            gateway.gold.load(if is_away { 0.0 } else { part * self.floor });
            gateway.rest.load(if is_away { 0.0 } else { REST * self.floor / running as f64 });
        }
    }

    /// Plays the load for a while, and counts. `away` does not run.
    fn play(&self, span: Duration, away: Option<usize>, tally: &mut Tally) {
        let until = self.clock.now() + span;
        let (late, sent) = self.late();
        let (mut before, mut since) = (self.counts(), self.clock.now());
        while self.clock.now() < until {
            self.offer(away);
            pause(LOOK);
            let now = self.clock.now();
            let seconds = (now - since).as_secs_f64();
            let counts = self.counts();
            let (mut asked, mut answered) = (0.0, 0.0);
            for (index, gateway) in self.site.gateways.iter().enumerate().filter(|(index, _)| away != Some(*index)) {
                let [sent, good, all, lost] = [0, 1, 2, 3].map(|of| counts[index][of] - before[index][of]);
                (asked, answered) = (asked + sent, answered + good);
                tally.all += all;
                tally.lost += lost;
                let Some(seen) = gateway.site() else { continue };
                tally.uncovered += (sent - seconds * seen.classes[0].share_per_second).max(0.0);
                tally.stages[match seen.stage {
                    SiteStage::Granted => 0,
                    SiteStage::Safe => 1,
                    SiteStage::Minimum => 2,
                }] += 1;
            }
            (tally.sent, tally.good) = (tally.sent + asked, tally.good + answered);
            tally.seconds += seconds;
            if answered < 0.8 * asked {
                tally.misses[0] += u64::from(tally.missing_since.is_none());
                let began = *tally.missing_since.get_or_insert(since);
                let [was, is] = [since, now].map(|until| until.saturating_sub(began).as_secs_f64());
                tally.misses[1] += u64::from(was <= LEASE_AND_SKEW && is > LEASE_AND_SKEW);
                tally.missed = tally.missed.max(is);
            } else {
                tally.missing_since = None;
            }
            (before, since) = (counts, now);
        }
        let (late, sent) = (self.late().0 - late, self.late().1 - sent);
        let weight = sent / (tally.late_sent + sent).max(1.0);
        tally.late_ms += weight * (1e3 * late / sent.max(1.0) - tally.late_ms);
        tally.late_sent += sent;
    }

    /// Seconds by which all requests together were late so far, and their number.
    fn late(&self) -> (f64, f64) {
        let streams = self.site.gateways.iter().flat_map(|one| [&one.gold, &one.rest]);
        streams.fold((0.0, 0.0), |(late, sent), one| (late + one.late().as_secs_f64(), sent + one.sent() as f64))
    }

    /// Ends the load, and counts the last answers. Without it a stage has some answers too few.
    fn finish(&self, tally: &mut Tally) {
        let before = self.counts();
        for gateway in &self.site.gateways {
            gateway.gold.load(0.0);
            gateway.rest.load(0.0);
        }
        pause(REMAINDER);
        for (before, after) in before.iter().zip(self.counts()) {
            tally.sent += after[0] - before[0];
            tally.good += after[1] - before[1];
            tally.all += after[2] - before[2];
            tally.lost += after[3] - before[3];
        }
    }
}

/// Plays the load without faults, after some seconds in which windows and costs are learned.
fn calm(run: &Run, seconds: u64) -> Tally {
    run.play(Duration::from_secs(20), None, &mut Tally::default());
    let mut tally = Tally::default();
    run.play(Duration::from_secs(seconds), None, &mut tally);
    run.finish(&mut tally);
    tally
}

#[test]
#[ignore = "takes minutes: 50 random faults"]
fn random_faults_never_exceed_the_guarantee() {
    let (seed, count) = (number("SITE_SEED", 1), number("SITE_FAULTS", 50));
    let seconds = number("SITE_CALM", 60);
    let mut random = Random::new(seed);
    let alone = Run::of(1, false).map(|run| calm(&run, seconds));
    if let Some(alone) = &alone {
        alone.print("one gateway");
    }
    let apart = Run::of(4, true);
    let is_apart = apart.is_some();
    let Some(mut run) = apart.or_else(|| Run::of(4, false)) else { return };
    run.site.elected();
    let (before, since) = (run.site.etcd.counts(), run.clock.now());
    let calm = calm(&run, seconds);
    calm.print("four gateways without faults");
    let (after, passed) = (run.site.etcd.counts(), (run.clock.now() - since).as_secs_f64());
    let [calls, entries] = [0, 1].map(|of| (after[of] - before[of]) / passed);
    eprintln!("etcd: {calls:.1} calls/s, {entries:.2} entries/s in its log");
    if let Some(alone) = alone {
        let of = |tally: &Tally| tally.all / tally.seconds;
        eprintln!("goodput of four gateways: {:.3} of that of one", of(&calm) / of(&alone));
    }
    let mut all = Tally::default();
    for fault in 0..count {
        let kind = random.below(if is_apart { 9 } else { 6 }) as usize;
        let (gateway, member) = (random.below(4) as usize, random.below(3) as usize);
        let span = Duration::from_millis(2_000 + random.below(10_000));
        let rest = Duration::from_millis(2_000 + random.below(6_000));
        let before = all.sent - all.good;
        let what = run.with_fault((kind, gateway, member), span, &mut all);
        run.play(rest, None, &mut all);
        eprintln!("fault {fault}: {what} for {span:.1?}: {:.0} requests not answered", all.sent - all.good - before);
    }
    run.finish(&mut all);
    run.site.elected();
    let sum = run.site.largest_sum() / run.floor;
    eprintln!("seed {seed}, {count} faults, floor {}/s, {:.0} s", run.floor, run.clock.now().as_secs_f64());
    all.print("with faults, clients of gateways that run");
    eprintln!("looks at gateways that run, granted, safe, minimum: {:?}", all.stages);
    eprintln!("largest sum of shares: {sum:.6} of the guarantee");
    assert!(sum <= 1.0 + 1e-5, "{sum}");
    assert_eq!((all.misses[1], all.lost as u64), (0, 0), "misses longer than lease and skew, and lost requests");
}

impl Run {
    /// Plays the load under a fault, and ends the fault. Returns its description.
    fn with_fault(
        &mut self,
        (kind, gateway, member): (usize, usize, usize),
        span: Duration,
        tally: &mut Tally,
    ) -> String {
        let site = &mut self.site;
        let elected = site.gateways.iter().find_map(|any| any.site()?.coordinator);
        let elected = site.gateways.iter().position(|one| Some(&one.name) == elected.as_ref());
        let gateway = if kind == 1 { elected.unwrap_or(gateway) } else { gateway };
        let (name, others) = (site.gateways[gateway].name.clone(), [(member + 1) % 3, (member + 2) % 3]);
        let beyond = site.gateways[(gateway + 1) % 4].name.clone();
        let what = match kind {
            0 | 1 => {
                site.gateways[gateway].kill();
                format!("{name} killed")
            }
            2 => {
                site.gateways[gateway].end("TERM");
                format!("{name} ended")
            }
            3 => {
                site.gateways[gateway].signal("STOP");
                format!("{name} stopped")
            }
            4 => {
                site.etcd.signal(member, "STOP");
                format!("member {member} of etcd stopped")
            }
            5 => {
                site.etcd.kill(member);
                site.etcd.kill(others[0]);
                format!("two members of etcd killed, but not {}", others[1])
            }
            6 => {
                site.net.cut(&name, true);
                format!("{name} cut off from the others")
            }
            7 => {
                site.net.cut(&format!("m{member}"), true);
                format!("member {member} of etcd cut off")
            }
            _ => {
                site.net.split(&[&name, &beyond, &format!("m{member}")]);
                format!("{name}, {beyond} and member {member} of etcd apart from the others")
            }
        };
        self.play(span, (kind < 4).then_some(gateway), tally);
        let site = &mut self.site;
        match kind {
            0..=2 => site.gateways[gateway].begin(&site.net),
            3 => site.gateways[gateway].signal("CONT"),
            4 => site.etcd.signal(member, "CONT"),
            5 => assert!(site.etcd.begin(member, &site.net) && site.etcd.begin(others[0], &site.net)),
            6 => site.net.cut(&name, false),
            7 => site.net.cut(&format!("m{member}"), false),
            _ => site.net.split(&[]),
        }
        what
    }
}
