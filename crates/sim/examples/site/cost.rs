//! Cost of a coordinator by size of its site: messages, lines, and CPU time of the machine itself.
//!
//! Every member has every class. Each tenth of a second one demand in twenty changes by a third, up or down, so loads
//! are more restless than those of the scenarios. Messages arrive in the step after they were sent, 5 ms later.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use weirgate_emulator::random::Random;
use weirgate_engine::Time;
use weirgate_site::{Coordinator, Grant, Member, Record, Report, Settings};

/// Sizes of sites, as members and classes.
const SIZES: [(usize, usize); 7] =
    [(4, 10), (10, 100), (30, 100), (100, 100), (100, 1_000), (300, 1_000), (1_000, 1_000)];

const STEP: Duration = Duration::from_millis(5);

/// Simulated time before measuring, and measured. The first grants name every class.
const WARM_UP: Duration = Duration::from_secs(4);
const LENGTH: Duration = Duration::from_secs(5);

/// Floor of each class, in millionths of a request a second.
const FLOOR: u64 = 800_000_000;

/// Cost of one site.
pub struct Cost {
    pub members: usize,
    pub classes: usize,
    /// Reports and answers a second.
    pub messages_per_s: f64,
    /// Demands and shares in them a second.
    pub lines_per_s: f64,
    /// CPU time of the coordinator's machine, in percent of a core.
    pub cpu_percent: f64,
    /// Part of what was owed that no share covered, in percent.
    pub floor_error: f64,
    /// Time until 99 % of a class is served after half of its load has moved.
    pub follow: Option<Duration>,
}

/// Measures all sizes and prints a table.
pub fn table() -> Result<Vec<Cost>, Box<dyn Error>> {
    println!(
        "| members × classes | messages/s | lines/s | coordinator, % of a core | floor error, % | follows a shift in ms |\n\
         |---|---|---|---|---|---|"
    );
    let mut costs = Vec::new();
    for (members, classes) in SIZES {
        let cost = measure(members, classes)?;
        println!(
            "| {members} × {classes} | {:.0} | {:.0} | {:.2} | {:.2} | {} |",
            cost.messages_per_s,
            cost.lines_per_s,
            cost.cpu_percent,
            cost.floor_error,
            cost.follow.map_or("–".into(), |time| time.as_millis().to_string())
        );
        costs.push(cost);
    }
    Ok(costs)
}

struct Site {
    now: Time,
    members: Vec<Member>,
    coordinator: Coordinator,
    demands: Vec<Vec<u64>>,
    reports: Vec<(usize, Report)>,
    grants: Vec<(usize, Grant)>,
    cpu: Duration,
    lines: u64,
    messages: u64,
}

fn measure(members: usize, classes: usize) -> Result<Cost, Box<dyn Error>> {
    let agreed = Arc::new(Settings::new(members, vec![FLOOR; classes]).check()?);
    let mut random = Random::new(11);
    // Each class asks for 1.1 times its floor, unevenly: one gateway in ten has most of it.
    let demand = |random: &mut Random| {
        let weight = if random.unit() < 0.1 { 8.0 } else { 0.3 };
        (1.1 * FLOOR as f64 / members as f64 * weight * (0.5 + random.unit())) as u64
    };
    let mut site = Site {
        now: Time::ZERO,
        members: (0..members).map(|_| Member::new(agreed.clone(), 1)).collect(),
        coordinator: Coordinator::new(Time::ZERO, agreed, 1, &vec![Record::Nothing; members]),
        demands: (0..members).map(|_| (0..classes).map(|_| demand(&mut random)).collect()).collect(),
        reports: Vec::new(),
        grants: Vec::new(),
        cpu: Duration::ZERO,
        lines: 0,
        messages: 0,
    };
    let ticks = |time: Duration| (time.as_nanos() / STEP.as_nanos()) as u64;
    for step in 0..ticks(WARM_UP) {
        site.step(step == 0)?;
    }
    (site.cpu, site.lines, site.messages) = (Duration::ZERO, 0, 0);
    let (mut owed, mut served) = (0.0, 0.0);
    for step in 0..ticks(LENGTH) {
        if step % 20 == 0 {
            for demand in site.demands.iter_mut().flatten() {
                if random.unit() < 0.05 {
                    *demand = (*demand as f64 * if random.unit() < 0.5 { 4.0 / 3.0 } else { 0.75 }) as u64;
                }
            }
        }
        site.step(step % 20 == 0)?;
        // Another instant after each change.
        if step % 20 == step / 20 % 20 {
            for class in 0..classes {
                let (class_owed, class_served) = site.served(class);
                (owed, served) = (owed + class_owed, served + class_served);
            }
        }
    }
    let seconds = LENGTH.as_secs_f64();
    Ok(Cost {
        members,
        classes,
        messages_per_s: site.messages as f64 / seconds,
        lines_per_s: site.lines as f64 / seconds,
        cpu_percent: 100.0 * site.cpu.as_secs_f64() / seconds,
        floor_error: 100.0 * (1.0 - served / owed),
        follow: site.follow()?,
    })
}

impl Site {
    /// One step. `told`: gateways have measured their demand.
    fn step(&mut self, told: bool) -> Result<(), Box<dyn Error>> {
        self.now = self.now + STEP;
        let grants = std::mem::take(&mut self.grants);
        for (member, grant) in grants {
            // A grant of a report that was overtaken is refused, and counts as lost.
            let _ = self.members[member].granted(self.now, grant);
        }
        let arrived = std::mem::take(&mut self.reports);
        for (index, member) in self.members.iter_mut().enumerate() {
            member.follow(1);
            if told {
                for (class, demand) in self.demands[index].iter().enumerate() {
                    member.demand(class, *demand);
                }
            }
            if let Some(report) = member.poll_report(self.now) {
                self.lines += report.demands.len() as u64;
                self.messages += 1;
                self.reports.push((index, report));
            }
        }
        let before = cpu_time();
        self.coordinator.proved(self.now);
        for (index, report) in arrived {
            self.coordinator.report(self.now, index, report)?;
        }
        if self.coordinator.next_timeout() <= self.now {
            self.coordinator.run(self.now);
            while let Some((index, record)) = self.coordinator.poll_record() {
                self.coordinator.recorded(index, record);
            }
            while let Some(grant) = self.coordinator.poll_grant() {
                self.grants.push(grant);
            }
        }
        self.cpu += cpu_time() - before;
        self.messages += self.grants.len() as u64;
        self.lines += self.grants.iter().map(|(_, grant)| lines(grant)).sum::<u64>();
        Ok(())
    }

    /// What is owed and served of a class.
    fn served(&self, class: usize) -> (f64, f64) {
        let share = |index: usize| self.members[index].share(self.now, class).min(self.demands[index][class]) as f64;
        let offered: u64 = self.demands.iter().map(|demands| demands[class]).sum();
        let served: f64 = (0..self.members.len()).map(share).sum();
        let owed = offered.min(FLOOR) as f64;
        (owed, served.min(owed))
    }

    /// Moves half of the load of the first class to the member with the least, and waits until it is served.
    fn follow(&mut self) -> Result<Option<Duration>, Box<dyn Error>> {
        let least = (0..self.members.len()).min_by_key(|index| self.demands[*index][0]).unwrap_or(0);
        let mut moved = 0;
        for (index, demands) in self.demands.iter_mut().enumerate() {
            if index != least {
                moved += demands[0] / 2;
                demands[0] -= demands[0] / 2;
            }
        }
        self.demands[least][0] += moved;
        let began = self.now;
        for step in 0..2_000 {
            self.step(step == 0)?;
            let (owed, served) = self.served(0);
            if served >= 0.99 * owed {
                return Ok(Some(self.now.since(began)));
            }
        }
        Ok(None)
    }
}

fn lines(grant: &Grant) -> u64 {
    match &grant.step {
        weirgate_site::Step::Shares { shares, .. } => shares.len() as u64,
        _ => 0,
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
