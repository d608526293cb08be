//! What goes wrong at a site, drawn at random: one fault at a time on average, and sometimes several.

use weirgate_emulator::random::Random;

use super::{STEP, Scenario, Site};

weirgate_engine::named! {
    /// A kind of fault.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// A gateway's process ends. It is started again some seconds later.
        Kill = "gateways killed and started again",
        /// A gateway's process is stopped, and goes on later as if nothing had happened.
        Stop = "gateways stopped and continued",
        /// A gateway is cut off from the others and from etcd. Its clients reach it.
        Cut = "gateways cut off from the others and etcd",
        /// etcd does not answer.
        Etcd = "etcd away",
        /// A third of the messages is lost.
        Loss = "a third of the messages lost",
    }
}

/// Mean time between two faults, and their shortest and longest duration, in seconds. The shortest are within a lease,
/// and the longest beyond safe shares.
const BETWEEN: f64 = 8.0;
const LASTS: [f64; 2] = [0.2, 45.0];

/// One fault that lasts.
struct Present {
    kind: Kind,
    gateway: usize,
    until: u64,
}

/// The faults of a run.
pub(super) struct Faults {
    kinds: Vec<Kind>,
    random: Random,
    present: Vec<Present>,
}

impl Faults {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Faults {
        // Another stream than that of the load, so that all designs meet the same faults.
        Faults { kinds: scenario.faults.clone(), random: Random::new(!seed), present: Vec::new() }
    }

    /// Begins and ends faults. Returns gateways whose process has ended (`false`) or begun (`true`).
    pub(super) fn step(&mut self, site: &mut Site) -> Vec<(usize, bool)> {
        let mut changed = Vec::new();
        let now = site.now;
        self.present.retain(|fault| {
            let lasts = now < fault.until;
            if !lasts {
                set(site, fault.kind, fault.gateway, false, &mut changed);
            }
            lasts
        });
        if !self.kinds.is_empty() && self.random.unit() < STEP.as_secs_f64() / BETWEEN {
            let kind = self.kinds[(self.random.unit() * self.kinds.len() as f64) as usize];
            let gateway = (self.random.unit() * site.scenario.gateways as f64) as usize;
            let [least, most] = LASTS.map(f64::ln);
            let seconds = (least + (most - least) * self.random.unit()).exp();
            let twice = self.present.iter().any(|fault| fault.gateway == gateway || fault.kind == kind);
            // At least two gateways run.
            let stops = self.present.iter().filter(|fault| matches!(fault.kind, Kind::Kill | Kind::Stop)).count();
            if !twice && (stops + 2 < site.scenario.gateways || !matches!(kind, Kind::Kill | Kind::Stop)) {
                set(site, kind, gateway, true, &mut changed);
                self.present.push(Present { kind, gateway, until: now + (seconds * 1e9) as u64 });
            }
        }
        changed
    }
}

fn set(site: &mut Site, kind: Kind, gateway: usize, begins: bool, changed: &mut Vec<(usize, bool)>) {
    match kind {
        Kind::Kill => {
            site.up[gateway] = !begins;
            changed.push((gateway, !begins));
        }
        Kind::Stop => site.stopped[gateway] = begins,
        Kind::Cut => site.cut[gateway] = begins,
        Kind::Etcd => site.etcd = !begins,
        Kind::Loss => site.loss = if begins { 1.0 / 3.0 } else { site.scenario.loss },
    }
}
