//! Cluster reserves in virtual time: a tracker on every machine, and a coordinator that moves classes' shares.
//!
//! Both are those of `weirgate agent` and `weirgate coordinator` (`weirgate_reserves`: [`Tracker`],
//! [`Coordinator`], [`solve`]). Here they receive the CPU time that the simulated machines handed out. The
//! experiments are those of Aron, Druschel and Zwaenepoel, *Cluster Reserves* (SIGMETRICS 2000), Secs. 5.2
//! to 5.5.
//!
//! Departures from the real ones: all machines measure at the same instants, reports and shares take no
//! time, and the optimiser takes none either (the real one takes milliseconds, the paper's took 100 to
//! 200). A crashed machine reports nothing. The coordinator starts at the time given in the experiment. Before
//! that, every class has its share of every machine.

use std::time::Duration;

use weirgate_experiment::{CpuReserves, Experiment};
use weirgate_reserves::{Coordinator, Settings, Tracker, solve};

use super::{Driver, Errand};

/// The trackers and the coordinator.
pub(super) struct Managed {
    from: Duration,
    /// One per machine.
    trackers: Vec<Tracker>,
    coordinator: Coordinator,
}

impl Managed {
    /// Creates the trackers and the coordinator of `experiment`, if it has a coordinator.
    pub(super) fn of(experiment: &Experiment) -> Option<Managed> {
        let CpuReserves { shares, coordinator } = experiment.reserves.as_ref()?;
        let reallocation = (*coordinator)?;
        let idle = vec![0; shares.len()];
        let tracker = |machine: &weirgate_experiment::Machine| {
            let cpus = f64::from(machine.cpus) * f64::from(machine.servers) * machine.speed;
            Tracker::new(Duration::ZERO, cpus, shares, &idle)
        };
        let trackers: Vec<Tracker> = experiment.machines.iter().map(tracker).collect();
        let settings = Settings {
            desired: shares.clone(),
            placed: vec![vec![true; shares.len()]; trackers.len()],
            every: reallocation.every,
            on_demand: reallocation.on_demand,
        };
        let mut coordinator = Coordinator::new(reallocation.from, settings);
        (0..trackers.len()).for_each(|machine| coordinator.connected(machine));
        Some(Managed { from: reallocation.from, trackers, coordinator })
    }

    /// Returns the end of the next window.
    fn due(&self) -> Option<Duration> {
        self.trackers.iter().map(Tracker::due).min()
    }
}

impl Driver<'_> {
    /// Plans the measurement at the end of the next window.
    pub(super) fn plan_window(&mut self) {
        if let Some(due) = self.managed.as_ref().and_then(Managed::due) {
            let after = super::nanos(due).saturating_sub(self.now);
            self.errand(after, Errand::Window);
        }
    }

    /// Ends a window: the machines report, and the coordinator may move shares.
    pub(super) fn look_at_use(&mut self) {
        let Some(mut managed) = self.managed.take() else { return };
        let now = Duration::from_nanos(self.now);
        let runs = now >= managed.from;
        for machine in 0..managed.trackers.len() {
            let counters = self.cpu_counters(machine);
            let measured = managed.trackers[machine].measure(now, &counters);
            if let Some(measured) = measured.filter(|_| runs && !self.machines.condition(machine).crashed) {
                managed.coordinator.reported(now, machine, measured);
            }
        }
        if runs && let Some(problem) = managed.coordinator.poll_run(now) {
            managed.coordinator.solved(now, solve(&problem), Duration::ZERO);
        }
        while let Some(given) = managed.coordinator.poll_shares() {
            self.machines.set_shares(self.now, given.node, &given.shares);
            self.machines.servers_of(given.node).into_iter().for_each(|server| self.touched(server));
            let counters = self.cpu_counters(given.node);
            managed.trackers[given.node].apply(now, given.run, &given.shares, &counters);
        }
        self.managed = Some(managed);
        self.plan_window();
    }

    /// Returns, per class, the nanoseconds of CPU time that a machine has handed out.
    fn cpu_counters(&mut self, machine: usize) -> Vec<u64> {
        for server in self.machines.servers_of(machine) {
            self.machines.advance(self.now, server);
            self.touched(server);
        }
        self.machines.done_of(machine).into_iter().map(|seconds| (seconds * 1e9) as u64).collect()
    }
}
