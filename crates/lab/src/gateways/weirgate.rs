//! Weirgate itself, as you run it: `weirgate run` with a policy file.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use weirgate_experiment::{Deployed, Deployment, deployed_policies, under_discipline};
use weirgate_http_client::blocking::exchange;
use weirgate_http_client::{Address, Limits, Request};
use weirgate_wire::admin;

use super::launch::{Peer, SocketPath, absolute, version, write};
use super::{Approach, Control, Gateway, Kind, Setting, State};

pub(super) const WEIRGATE: Kind = under(
    "weirgate",
    "Weirgate with its own discipline: windows that measure contention, tokens, admission at \
                       arrival",
);
pub(super) const QUORUM: Kind = under("quorum", "Weirgate with Quorum's published rules");
pub(super) const NONE: Kind = under("none", "Weirgate without control: a plain proxy with least outstanding requests");
pub(super) const SEDA: Kind = under("seda", "Weirgate with SEDA's differentiated queues");
pub(super) const SWITCH_ADM: Kind = under("switch_adm", "Weirgate as a web switch: refusal by load");
pub(super) const STATIC_PART: Kind =
    under("static_part", "Weirgate as a web switch: refusal by load, nodes divided once");
pub(super) const DYNAMIC_PART: Kind =
    under("dynamic_part", "Weirgate as a web switch: refusal by load, nodes divided as the demand moves");
pub(super) const MQOS: Kind = under("mqos", "Weirgate with mQoS: several resources shared by deficit round robin");
pub(super) const MQOS_DRFQ: Kind = under(
    "mqos-drfq",
    "Weirgate with mQoS by dominant resource fair queueing, as the experiment's `disciplines:` \
                        declare it",
);
pub(super) const SQOS: Kind =
    under("sqos", "Weirgate with mQoS's baseline: one resource shared by deficit round robin");

/// Returns the approach that runs Weirgate with the discipline `name`.
const fn under(name: &'static str, about: &'static str) -> Kind {
    let start = |setting: &Setting<'_>, approach: &Approach| start(setting, approach.kind().name);
    Kind { name, about, program: None, knobs: &[], sweep: &[], start }
}

/// A running `weirgate run`.
#[derive(Debug)]
struct Weirgate {
    admin: SocketPath,
    /// Upstream and name of each node of the policy.
    nodes: Vec<(String, String)>,
    directory: PathBuf,
}

/// Name of the policy file that it reads.
const POLICY: &str = "policy.yaml";

/// Returns the file name of policy number `number`, counted from 1, in an experiment that loads other policies.
fn numbered(number: usize) -> String {
    format!("policy-{number}.yaml")
}

/// Host in requests to the admin API.
const HOST: &str = "localhost";

/// Path of the gateway's state. The limit is above the number of classes of any experiment.
const SNAPSHOT: &str = "/snapshot?limit=1000";

/// Limits of a request to the admin API. The API has a thread of its own, on the gateway's CPU. A page with a few
/// classes has some kilobytes.
const LIMITS: Limits = Limits::new(Duration::from_secs(5), 4 << 20);

fn start(setting: &Setting<'_>, discipline: &str) -> Result<Gateway, String> {
    let source = setting.source.ok_or("it needs the experiment's file, because the policy is in it")?;
    let admin = SocketPath::new();
    let overrides = [vec![under_discipline(discipline)], source.overrides.clone()].concat();
    let nodes = setting.experiment.site.policy.nodes.iter().cloned().zip(setting.addresses.iter().copied());
    let nodes: Vec<_> = nodes.collect();
    let configure = |listen: SocketAddr| {
        let admin = format!("unix:{}", admin.0.display());
        let deployment = Deployment { listen, admin, threads: 1, nodes: nodes.clone() };
        let deployed = deployed_policies(&source.file, &overrides, &deployment).map_err(|errors| errors.to_string())?;
        let Deployed { first, reloads } = deployed;
        // The policy file that Weirgate reads changes during the trial. These copies stay for readers of the run.
        let kept = if reloads.is_empty() { None } else { Some(&first) };
        for (number, text) in kept.into_iter().chain(&reloads).enumerate() {
            write(setting, &numbered(number + 1), text)?;
        }
        let mut command = Command::new(&source.program);
        if source.detached {
            command.process_group(0);
        }
        command.arg("run").arg(write(setting, POLICY, &first)?);
        Ok(command)
    };
    let peer = Peer::start("weirgate", setting, configure)?;
    let version = version(&source.program, "--version")?.trim().replacen("weirgate", "Weirgate", 1);
    let mut weirgate = Weirgate { admin, nodes: Vec::new(), directory: absolute(setting.directory)? };
    // Its nodes in the order of the policy, under their names in the deployed policy.
    let page = weirgate.page()?;
    weirgate.nodes = page.engine.nodes.into_iter().map(|node| (node.pool, node.name)).collect();
    Ok(Gateway { peer, version, control: Box::new(weirgate) })
}

/// The answer to `/snapshot`.
#[derive(Debug, Deserialize)]
struct Page {
    engine: admin::Snapshot,
    page_table: Option<admin::PageTable>,
    classes: Vec<admin::Class>,
}

impl Weirgate {
    /// Returns the engine, its first classes, which are those of the policy, and the page table.
    fn page(&self) -> Result<Page, String> {
        let body = self.ask(Request::get(HOST, SNAPSHOT), SNAPSHOT)?;
        serde_json::from_str(&body).map_err(|error| format!("admin API: /snapshot: {error}"))
    }

    /// Sends an order to the admin API.
    fn order(&self, path: &str) -> Result<(), String> {
        self.ask(Request::post(HOST, path, "").field("content-type", "application/json"), path).map(drop)
    }

    /// Sends a request to the admin API and returns the body of its answer, which must be a success.
    fn ask(&self, request: Request, path: &str) -> Result<String, String> {
        let address = Address::Unix(self.admin.0.clone());
        let answer = exchange(&address, request, &LIMITS).map_err(|error| format!("admin API: {path}: {error}"))?;
        match answer.status {
            200..300 => Ok(answer.text()),
            status => Err(format!("admin API: {path}: {status} {}", answer.text())),
        }
    }
}

impl Control for Weirgate {
    fn set_out(&mut self, _peer: &mut Peer, node: usize, out: bool) -> Result<(), String> {
        let (pool, name) = self.nodes.get(node).ok_or_else(|| format!("the policy has no node {node}"))?;
        let order = if out { "drain" } else { "undrain" };
        self.order(&format!("/nodes/{pool}/{name}/{order}"))
    }

    fn reload(&mut self, _peer: &mut Peer) -> Result<(), String> {
        self.order("/reload")
    }

    fn load(&mut self, number: usize) -> Result<(), String> {
        let (from, to) = (self.directory.join(numbered(number + 2)), self.directory.join(POLICY));
        std::fs::copy(&from, to).map_err(|error| format!("{}: {error}", from.display()))?;
        self.order("/reload")
    }

    fn admin(&self) -> Option<String> {
        Some(format!("unix:{}", self.admin.0.display()))
    }

    fn state(&mut self) -> Option<State> {
        let page = self.page().ok()?;
        let waiting = page.classes.iter().map(|class| class.waiting).collect();
        let learned = page.page_table.filter(|table| table.learned).map_or_else(Vec::new, |table| table.routes);
        let observes = page.classes.iter().any(|class| class.enforced_share < 1.0 || !class.would_shed.is_empty());
        let would_shed = page.classes.iter().map(|class| class.would_shed.values().sum());
        Some(State {
            window: page.engine.window,
            outstanding: page.engine.outstanding,
            outstanding_of: page.classes.iter().map(|class| class.outstanding).collect(),
            outstanding_at: page.engine.nodes.iter().map(|node| node.outstanding).collect(),
            moved: page.engine.moved.why,
            waiting,
            would_shed: if observes { would_shed.collect() } else { Vec::new() },
            learned,
        })
    }
}
