//! What the demo does: who asks for what when, and what they are promised.
//!
//! The promises are those of `policies/demo.yaml`, the very policy that the gateway runs. Why these
//! figures: `docs/guide/demo.md`.

use std::net::SocketAddr;
use std::time::Duration;

use weirgate_config::{AdminAddress, Site};
use weirgate_emulator::client::{ClassPlan, Guarantee, Load, Phase, Plan, Statistic};
use weirgate_emulator::{Distribution, NodeSpec};
use weirgate_engine as engine;

use super::Control;

/// The policy, as committed.
pub(crate) const POLICY: &str = include_str!("../../../../policies/demo.yaml");

/// CPUs of each emulated node; `policies/demo.yaml` says the same as its capacity.
pub(crate) const CPUS: u32 = 2;

/// CPU time of an ordinary request. Ten thousand times the grain of the emulation's timers, and short
/// enough for hundreds of requests a second, so that a p95 over a second means something.
pub(crate) const COST: Duration = Duration::from_millis(10);

/// A costly request: five times as much.
const DEAR: Duration = Duration::from_millis(50);

/// Requests per second of each class while nothing happens: 70 % of the capacity together.
const CALM: [f64; 3] = [240.0, 200.0, 120.0];

/// Place of the class that surges and becomes costly.
const SURGING: usize = 1;

/// What it asks during the surge: four times its calm rate, so that all classes together ask for 145 %
/// of the capacity.
const SURGE: f64 = 800.0;

/// Longest calm phase: there is nothing more to be seen in it.
const LONGEST_CALM: f64 = 8.0;

/// The first part of each phase is judged apart, as in all of Weirgate's experiments.
const SETTLE: Duration = Duration::from_secs(5);

/// Below so many seconds in all the phases are too short for that part, which shrinks in proportion.
const UNCOMPRESSED: f64 = 40.0;

/// Users who have waited so long go away.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// What is shown and judged.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// What the gateway runs; nodes and addresses are filled in later.
    pub(crate) site: Site,
    /// The load; targets are filled in later.
    pub(crate) plan: Plan,
    /// What each phase is, in a few words.
    pub(crate) stories: Vec<String>,
}

impl Scenario {
    /// The scenario, spread over so many seconds.
    ///
    /// # Errors
    /// The committed policy is broken: its errors.
    pub(crate) fn new(seconds: u32, seed: u64, control: Control, tick: Duration) -> Result<Scenario, String> {
        let loaded = weirgate_config::load("policies/demo.yaml", POLICY, false).map_err(|e| e.to_string())?;
        let mut site = loaded.site;
        site.policy.discipline = control.discipline();
        let anywhere = |address: &mut SocketAddr| address.set_port(0);
        site.listeners.iter_mut().for_each(|listener| anywhere(&mut listener.address));
        if let Some(admin) = &mut site.admin
            && let AdminAddress::Tcp(address) = &mut admin.address
        {
            anywhere(address);
        }
        let seconds = f64::from(seconds);
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let classes = site.policy.classes.iter().map(|class| {
            let mut plan = ClassPlan::new(&class.name, nowhere, format!("{}.test", class.name));
            plan.guarantee = promise(class);
            plan.timeout = PATIENCE;
            plan
        });
        let mut plan = Plan::new(classes.collect(), phases(seconds));
        plan.settle = SETTLE.mul_f64((seconds / UNCOMPRESSED).min(1.0));
        plan.tick = tick;
        plan.seed = seed;
        let name = &site.policy.classes[SURGING].name;
        let stories = vec![
            "every class asks for less than it is promised".to_owned(),
            format!("{name} asks for {} times as much", SURGE / CALM[SURGING]),
            format!(
                "{name} asks as before, but each request costs {} times as much",
                DEAR.as_millis() / COST.as_millis()
            ),
            "as at the start".to_owned(),
        ];
        Ok(Scenario { site, plan, stories })
    }

    /// The nodes that the policy names.
    pub(crate) fn nodes(&self) -> Vec<NodeSpec> {
        self.site.policy.nodes.iter().map(|node| NodeSpec::new(&node.name, CPUS)).collect()
    }

    /// What a request of a class costs in a phase.
    pub(crate) fn cost(&self, class: usize, phase: usize) -> Duration {
        self.plan.phases[phase].loads[class].demand.mean()
    }

    /// The compression of the part that is judged apart, if there is any.
    pub(crate) fn compressed(&self) -> bool {
        self.plan.settle < SETTLE
    }
}

/// What the policy promises a class, in the words of the clients.
fn promise(class: &engine::Class) -> Guarantee {
    let statistic = |statistic| match statistic {
        engine::Statistic::Average => Statistic::Average,
        engine::Statistic::Percentile(p) => Statistic::Percentile(p),
    };
    Guarantee {
        throughput: class.guarantee.throughput,
        response_time: class.guarantee.response_time.map(|rt| (statistic(rt.statistic), rt.limit)),
        cost: class.service_time,
    }
}

fn phases(seconds: f64) -> Vec<Phase> {
    // A fifth of the time before and after, the rest for what is to be seen.
    let calm = (seconds / 5.0).min(LONGEST_CALM);
    let hot = (seconds - 2.0 * calm) / 2.0;
    let phase = |name: &str, seconds: f64, surging: f64, cost: Duration| {
        let loads = CALM.iter().enumerate().map(|(class, &rate)| {
            let (rate, cost) = if class == SURGING { (surging, cost) } else { (rate, COST) };
            Load::poisson(rate, Distribution::Fixed(cost), "/?demand={us}us")
        });
        Phase::new(name, Duration::from_secs_f64(seconds), loads.collect())
    };
    vec![
        phase("calm", calm, CALM[SURGING], COST),
        phase("surge", hot, SURGE, COST),
        phase("costly", hot, CALM[SURGING], DEAR),
        phase("calm again", calm, CALM[SURGING], COST),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(seconds: u32) -> Scenario {
        Scenario::new(seconds, 1, Control::Weirgate, Duration::from_secs(1)).unwrap()
    }

    #[test]
    fn the_phases_fill_the_time_and_the_calm_is_bounded() {
        for seconds in [6, 40, 600] {
            let plan = scenario(seconds).plan;
            assert!(plan.length().abs_diff(Duration::from_secs(seconds.into())) < Duration::from_millis(1));
            assert!(plan.phases[0].length <= Duration::from_secs(8));
            assert_eq!(plan.validate(), Ok(()));
        }
        assert_eq!(scenario(40).plan.settle, SETTLE);
        assert_eq!(scenario(8).plan.settle, Duration::from_secs(1));
        assert!(scenario(8).compressed() && !scenario(40).compressed());
    }

    #[test]
    fn the_policy_is_feasible_and_the_surge_is_an_overload() {
        let scenario = scenario(40);
        let policy = &scenario.site.policy;
        let capacity: f64 = policy.nodes.iter().map(|n| n.capacity.unwrap()).sum();
        assert_eq!(capacity, f64::from(CPUS) * policy.nodes.len() as f64);
        let need = |c: &engine::Class| c.guarantee.throughput.unwrap_or(0.0) * COST.as_secs_f64();
        assert!(policy.classes.iter().map(need).sum::<f64>() < 0.7 * capacity);
        let asked = |phase: &Phase| -> f64 { phase.loads.iter().map(|l| l.rate * l.demand.mean().as_secs_f64()).sum() };
        let load: Vec<f64> = scenario.plan.phases.iter().map(|p| asked(p) / capacity).collect();
        assert!(load[0] < 0.75 && load[1] > 1.4 && load[2] > 1.4 && load[3] < 0.75, "{load:?}");
        // A limit of four times the unloaded time is the least that a window of half of it can keep.
        for class in policy.classes.iter().filter(|c| c.guarantee.response_time.is_some()) {
            assert!(class.guarantee.response_time.unwrap().limit >= 4 * DEAR, "{}", class.name);
        }
    }

    #[test]
    fn without_control_only_the_discipline_differs() {
        let without = Scenario::new(40, 1, Control::None, Duration::from_secs(1)).unwrap();
        assert_eq!(without.site.policy.discipline, engine::Discipline::none());
        assert_eq!(without.plan, scenario(40).plan);
    }
}
