//! A test that kills (SIGKILL) coordinators, agents and nodes at random, again and again. Shares must stay in
//! force, no node may ever allot more than it has, the old state must return soon after the victim is back,
//! and nothing may be left at the end.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weirgate_emulator::clock;
use weirgate_emulator::random::Random;
use weirgate_http_client::blocking::exchange;
use weirgate_http_client::{Address, Limits, Request};

use super::cluster::{Busy, Cluster};
use super::managed::{Managed, name};
use super::play::STEP;
use super::report::Finding;
use super::scenario::Coordinator;
use super::{CLASSES, NODES, SHARE};

/// Limits of a request for the coordinator's page, which has some kilobytes.
const LIMITS: Limits = Limits::new(Duration::from_secs(1), 4 << 20);

/// Index of the class that is busy on the first two nodes only, so that shares differ from those at the start.
const UNEVEN: usize = 0;

/// Amount in percent by which the shares of five classes may exceed 100 in sum, because weights are whole numbers.
const GRAIN: f64 = 0.06;

/// Difference in percent below which two shares count as equal.
const SAME: f64 = 0.1;

/// Maximum time of recovery in seconds, equal to the duration of a relocation (Sec. 5.4).
const RECOVERED: f64 = 1.0;

/// Name of this test next to the scenarios.
pub const KILLS: &str = "kills";

/// Range of a victim's absence in seconds, from less than the interval of reports to more than the longest
/// tolerated silence.
const AWAY: (f64, f64) = (0.1, 1.6);

/// Time after which a recovery counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The process or node that was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Victim {
    /// The coordinator.
    Coordinator,
    /// A node's agent.
    Agent(usize),
    /// A node, with its agent and everything in its groups.
    Node(usize),
}

/// A kill and its consequences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kill {
    /// The victim.
    pub victim: Victim,
    /// Duration of its absence in seconds.
    pub away: f64,
    /// Whether the shares that should have stayed meanwhile did stay.
    pub kept: bool,
    /// Seconds from the victim's new start until the shares of a run with all nodes were in force
    /// everywhere, or `None` if they never were.
    pub recovered: Option<f64>,
}

/// All findings of the test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chaos {
    /// The kills, in order.
    pub kills: Vec<Kill>,
    /// The largest observed sum of a node's shares, in percent.
    pub largest_sum: f64,
    /// State that was not restored after everything had been told to stop.
    pub left: Vec<String>,
    /// Log of coordinator and agents.
    pub log: Vec<String>,
}

impl Chaos {
    /// Updates the largest sum of shares.
    fn look(&mut self, cluster: &Cluster) {
        let sums = (0..NODES).map(|node| cluster.shares(node).iter().sum());
        self.largest_sum = sums.fold(self.largest_sum, f64::max);
    }

    /// Returns the requirements and whether they hold.
    pub fn findings(&self) -> Vec<Finding> {
        let finding = |what: String, ours: String, band: String, holds: bool| {
            let (scenario, paper) = (KILLS.to_owned(), String::new());
            Finding { scenario, what, paper, ours, band, holds }
        };
        let (kills, kept) = (self.kills.len(), self.kills.iter().filter(|kill| kill.kept).count());
        let mut times: Vec<f64> = self.kills.iter().map(|kill| kill.recovered.unwrap_or(f64::INFINITY)).collect();
        times.sort_by(f64::total_cmp);
        let at = |index: usize| times.get(index).copied().unwrap_or(0.0);
        let (median, slowest) = (at(kills / 2), at(kills.saturating_sub(1)));
        vec![
            finding(format!("shares stayed, of {kills} kills"), kept.to_string(), kills.to_string(), kept == kills),
            finding(
                "largest sum of a node's shares, %".to_owned(),
                format!("{:.2}", self.largest_sum),
                format!("0 to {}", 100.0 + GRAIN),
                self.largest_sum <= 100.0 + GRAIN,
            ),
            finding(
                "recovery, median and slowest, s".to_owned(),
                format!("{median:.2}, {slowest:.2}"),
                format!("0 to {RECOVERED}"),
                slowest <= RECOVERED,
            ),
            finding("left behind".to_owned(), self.left.len().to_string(), "0".to_owned(), self.left.is_empty()),
        ]
    }
}

/// Kills `kills` times, with random draws from `seed`. `progress` gets the number of kills so far.
///
/// # Errors
/// As [`super::play`].
pub fn chaos(
    program: &Path,
    directory: &Path,
    kills: usize,
    seed: u64,
    mut progress: impl FnMut(usize),
) -> Result<Chaos, String> {
    // No kill takes longer than two seconds of absence and ten of patience.
    let mut cluster = Cluster::new(Duration::from_secs(12) * kills as u32)?;
    let mut busy: Vec<Vec<Busy>> = (0..NODES).map(|node| workers(&cluster, node)).collect::<Result<_, _>>()?;
    cluster.measure()?;
    let terms = Coordinator { from: Duration::ZERO, every: Some(Duration::from_secs(1)), on_demand: true };
    let mut managed = Managed::new(terms, program, directory)?;
    (0..NODES).try_for_each(|node| managed.start_agent(&cluster, node))?;
    managed.start_coordinator()?;
    let mut chaos = Chaos::default();
    let mut random = Random::new(seed);
    if !until(|| has_recovered(&managed, &cluster, 0), || chaos.look(&cluster)) {
        return Err(format!("no run took place at the start\n{}", managed.stop()?.join("\n")));
    }
    for number in 0..kills {
        progress(number);
        let victim = match (random.unit() * (1 + 2 * NODES) as f64) as usize {
            0 => Victim::Coordinator,
            agent @ 1..=NODES => Victim::Agent(agent - 1),
            node => Victim::Node(node - 1 - NODES),
        };
        // One victim in three is the coordinator, because it alone has no stand-in.
        let victim = if random.unit() < 0.25 { Victim::Coordinator } else { victim };
        let away = AWAY.0 + (AWAY.1 - AWAY.0) * random.unit();
        match victim {
            Victim::Coordinator => managed.kill_coordinator(),
            Victim::Agent(node) => managed.kill_agent(node),
            Victim::Node(node) => {
                managed.kill_agent(node);
                busy[node].clear();
            }
        }
        let kept = kept(victim, away, &cluster, &mut chaos);
        let before = last_run(&managed).unwrap_or(0);
        match victim {
            Victim::Coordinator => managed.start_coordinator()?,
            Victim::Agent(node) => managed.start_agent(&cluster, node)?,
            Victim::Node(node) => {
                busy[node] = workers(&cluster, node)?;
                managed.start_agent(&cluster, node)?;
            }
        }
        let started = clock::now();
        let came = until(|| has_recovered(&managed, &cluster, before), || chaos.look(&cluster));
        let recovered = came.then(|| (clock::now() - started) as f64 / 1e9);
        chaos.kills.push(Kill { victim, away, kept, recovered });
        managed.check()?;
    }
    busy.clear();
    let admin = managed.admin.clone();
    chaos.log = managed.stop()?;
    for node in 0..NODES {
        // Agents restore the shares that they found at their first start.
        let shares = cluster.shares(node);
        if shares.iter().any(|share| (share - SHARE).abs() > SAME) {
            chaos.left.push(format!("{}: shares {shares:.1?}", name(node)));
        }
        // An empty lock file stays, as is usual, because removing one is a race.
        let record = directory.join(format!("state-{}", name(node)));
        let is_kept =
            |file: std::io::Result<std::fs::DirEntry>| file.and_then(|f| f.metadata()).is_ok_and(|m| m.len() > 0);
        if record.read_dir().is_ok_and(|files| files.into_iter().any(is_kept)) {
            chaos.left.push(format!("{}: the agent's record", name(node)));
        }
    }
    if admin.exists() {
        chaos.left.push(format!("the coordinator's socket {}", admin.display()));
    }
    chaos.left.extend(cluster.close());
    Ok(chaos)
}

fn workers(cluster: &Cluster, node: usize) -> Result<Vec<Busy>, String> {
    let here = |class: &usize| *class != UNEVEN || node < NODES / 2;
    (0..CLASSES).filter(here).map(|class| cluster.start(node, class)).collect()
}

/// Waits while a victim is absent. Returns whether the shares stayed: all shares in the absence of the
/// coordinator, those of its node in the absence of an agent.
fn kept(victim: Victim, away: f64, cluster: &Cluster, chaos: &mut Chaos) -> bool {
    let nodes = match victim {
        Victim::Coordinator => 0..NODES,
        Victim::Agent(node) | Victim::Node(node) => node..node + 1,
    };
    let shares = || -> Vec<Vec<f64>> { nodes.clone().map(|node| cluster.shares(node)).collect() };
    let begun = clock::now();
    // Changes already on their way are still set.
    clock::pause(STEP);
    let before = shares();
    let mut kept = true;
    while ((clock::now() - begun) as f64 / 1e9) < away {
        kept &= shares() == before;
        chaos.look(cluster);
        clock::pause(STEP);
    }
    kept
}

/// Waits until `done`, at most for [`PATIENCE`], and runs `meanwhile` between checks.
fn until(mut done: impl FnMut() -> bool, mut meanwhile: impl FnMut()) -> bool {
    let begun = clock::now();
    while clock::now() - begun < clock::nanos(PATIENCE) {
        if done() {
            return true;
        }
        meanwhile();
        clock::pause(STEP);
    }
    false
}

/// Returns whether the shares of a run later than run `before`, with all nodes, are in force on all nodes.
fn has_recovered(managed: &Managed, cluster: &Cluster, before: u64) -> bool {
    let Some(page) = page(managed) else { return false };
    let last = &page["last_runs"][0];
    if last["number"].as_u64().is_none_or(|run| run <= before) || last["nodes"] != NODES {
        return false;
    }
    let in_force = |node: usize| {
        let classes = &page["nodes"][node]["classes"];
        let shares = cluster.shares(node);
        let is_set = |class: usize| {
            let given = classes[class]["allocation_percent"].as_f64();
            given.is_some_and(|given| (given - shares[class]).abs() <= SAME)
        };
        page["nodes"][node]["state"] == "up" && (0..CLASSES).all(is_set)
    };
    (0..NODES).all(in_force)
}

fn last_run(managed: &Managed) -> Option<u64> {
    page(managed)?["last_runs"][0]["number"].as_u64()
}

/// Returns the coordinator's page, if a coordinator is running.
fn page(managed: &Managed) -> Option<Value> {
    let request = Request::get("localhost", "/reserves");
    let answer = exchange(&Address::Unix(managed.admin.clone()), request, &LIMITS).ok()?;
    serde_json::from_slice(&answer.body).ok()
}
