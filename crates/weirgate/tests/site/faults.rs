//! Random faults, one after the other, and what is left of the guarantee meanwhile. Takes minutes:
//!
//! ```text
//! SITE_SEED=1 SITE_FAULTS=50 cargo test -p weirgate --test site -- --ignored --nocapture faults
//! ```

use std::time::Duration;

use weirgate_clock::{Clock, pause};
use weirgate_wire::admin::SiteStage;

use crate::gateway::{FLOOR, Gateway, Site};

/// Load of the gateways in the order in which it moves, in parts of [`FLOOR`]. It just fits.
const PARTS: [f64; 4] = [0.66, 0.19, 0.1, 0.0];

/// Interval between two moves of the load.
const MOVES: Duration = Duration::from_secs(10);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The requests that were owed, and those that no share covered.
#[derive(Default)]
struct Errors {
    owed: f64,
    missing: f64,
}

impl Errors {
    fn percent(&self) -> f64 {
        100.0 * self.missing / self.owed.max(1e-9)
    }
}

#[test]
#[ignore = "takes minutes: 50 random faults"]
fn random_faults_never_exceed_the_guarantee() {
    let (seed, count) = (number("SITE_SEED", 1), number("SITE_FAULTS", 50));
    let mut random = Random(seed);
    let Some(mut site) = Site::start(4, "") else { return };
    site.elected();
    let clock = Clock::start();
    let (mut calm, mut all) = (Errors::default(), Errors::default());
    let mut stages = [0u64; 3];
    // Without a fault, for comparison.
    play(&site, &clock, Duration::from_secs(30), None, &mut calm, &mut stages);
    for fault in 0..count {
        let (kind, gateway, member) = (random.below(6), random.below(4), random.below(3));
        let span = Duration::from_millis(2_000 + random.below(10_000) as u64);
        let rest = Duration::from_millis(2_000 + random.below(6_000) as u64);
        let elected = || {
            site.gateways.iter().position(|one| {
                site.gateways.iter().filter_map(|any| any.site()?.coordinator).any(|name| name == one.name)
            })
        };
        let gateway = if kind == 1 { elected().unwrap_or(gateway) } else { gateway };
        let away = (kind < 4).then_some(gateway);
        let what = match kind {
            0 | 1 => {
                site.gateways[gateway].kill();
                format!("{} killed", site.gateways[gateway].name)
            }
            2 => {
                site.gateways[gateway].end("TERM");
                format!("{} ended", site.gateways[gateway].name)
            }
            3 => {
                site.gateways[gateway].signal("STOP");
                format!("{} stopped", site.gateways[gateway].name)
            }
            4 => {
                site.etcd.signal(member, "STOP");
                format!("member {member} of etcd stopped")
            }
            _ => {
                site.etcd.kill(member);
                site.etcd.kill((member + 1) % 3);
                format!("two members of etcd killed, but not {}", (member + 2) % 3)
            }
        };
        let before = all.missing;
        play(&site, &clock, span, away, &mut all, &mut stages);
        match kind {
            0..=2 => site.gateways[gateway].begin(),
            3 => site.gateways[gateway].signal("CONT"),
            4 => site.etcd.signal(member, "CONT"),
            _ => assert!(site.etcd.begin(member) && site.etcd.begin((member + 1) % 3)),
        }
        play(&site, &clock, rest, None, &mut all, &mut stages);
        eprintln!("fault {fault}: {what} for {span:?}: {:.0} requests owed without a share", all.missing - before);
    }
    site.elected();
    let sum = site.largest_sum() / FLOOR;
    eprintln!("seed {seed}, {count} faults, {:.0} s", clock.now().as_secs_f64());
    eprintln!("floor error without faults: {:.2} %", calm.percent());
    eprintln!("floor error with faults, for the clients of gateways that run: {:.2} %", all.percent());
    eprintln!("looks at gateways that run, granted, safe, minimum: {stages:?}");
    eprintln!("largest sum of shares: {sum:.6} of the guarantee");
    assert!(sum <= 1.0 + 1e-5, "{sum}");
}

/// Moves the load, and counts every half second what no share covers at the gateways that run. `away` does not.
fn play(site: &Site, clock: &Clock, span: Duration, away: Option<usize>, errors: &mut Errors, stages: &mut [u64; 3]) {
    let until = clock.now() + span;
    let mut sent: Vec<u64> = site.gateways.iter().map(Gateway::sent).collect();
    let mut since = clock.now();
    while clock.now() < until {
        let turn = (clock.now().as_secs_f64() / MOVES.as_secs_f64()) as usize;
        for (index, gateway) in site.gateways.iter().enumerate() {
            // Clients of a gateway that is away go to the next one.
            let mut part = PARTS[(index + turn) % PARTS.len()];
            if away == Some((index + 3) % 4) {
                part += PARTS[(index + 3 + turn) % PARTS.len()];
            }
            gateway.load(if away == Some(index) { 0.0 } else { part * FLOOR });
        }
        pause(Duration::from_millis(500));
        let seconds = (clock.now() - since).as_secs_f64();
        since = clock.now();
        for (index, gateway) in site.gateways.iter().enumerate() {
            let before = std::mem::replace(&mut sent[index], gateway.sent());
            let seen = if away == Some(index) { None } else { gateway.site() };
            let Some(seen) = seen else { continue };
            let asked = (sent[index] - before) as f64;
            errors.owed += asked;
            errors.missing += (asked - seconds * seen.classes[0].share_per_second).max(0.0);
            stages[match seen.stage {
                SiteStage::Granted => 0,
                SiteStage::Safe => 1,
                SiteStage::Minimum => 2,
            }] += 1;
        }
    }
}
