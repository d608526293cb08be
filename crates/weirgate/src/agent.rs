//! `weirgate agent`: the program on a node. Its collector reports the load of this machine's server to
//! gateways. With a policy that has `reserves`, it measures the use of the node's classes for the coordinator
//! and sets their shares.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgGroup, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use weirgate_agent::{Content, Globs, Meter, Node, REPORT_PATH, STATE_DIRECTORY, Settings, Source, StatusPage, routes};
use weirgate_config::Site;
use weirgate_http_server::{Access, Listener, follow};
use weirgate_listening::{Address, FileAccess};
use weirgate_tls::{LiveTrust, Role};
use weirgate_wire::Active;

use crate::check::bounded;
use crate::exit::{self, say, tell};

/// Maximum number of connections of gateways, which ask every few seconds. More wait in the kernel.
const MAX_CONNECTIONS: u32 = 32;

/// Paths that count as dynamic on Apache if `--dynamic` is not given.
const DYNAMIC: [&str; 2] = ["*.php", "/cgi-bin/*"];

/// Set a node's class shares (Cluster Reserves), report the load of its server to gateways, or both.
///
/// With POLICY the agent is the node's part of the policy's `reserves`. It measures the use of each class's
/// cgroups, reports it to the coordinator every quarter of a second, and sets the shares that the coordinator
/// sends. The last shares stay in force while the coordinator is away. On SIGTERM, SIGINT or SIGHUP it restores
/// the former settings of the cgroups and removes the cgroups that it made. An agent that is killed leaves
/// the shares in force, and the next one still knows the former settings.
///
/// With a server the agent is the collector. When a gateway asks, it reports the number of requests that
/// the server on this machine is working on, and the CPU time, disk traffic and bandwidth used. Gateways
/// ask if their policy has `collector:`. `weirgate probe` asks as well.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("work").required(true).multiple(true).args(["policy", "apache", "nginx", "port"]))]
#[command(after_long_help = "\
Examples:
  weirgate agent /etc/weirgate/policy.yaml --node n1
  weirgate agent policy.yaml --node n1 --apache http://127.0.0.1/server-status
  weirgate agent policy.yaml --node n1 --cgroup-root lab/n1 --cpus 1 --state /tmp/n1   # one of several on a machine
  weirgate agent --apache http://127.0.0.1/server-status --dynamic '*.php' --dynamic '/cgi-bin/*'
  weirgate agent --port 80 --usage-of system.slice/apache2.service --interface eth0
  weirgate agent --nginx http://127.0.0.1/stub_status --listen 10.0.0.1:9902 --trust /etc/weirgate/trust

Exit codes:
  0  stopped by a signal, and the cgroups are as they were (or kept, with --keep)
  1  it cannot start, or could not restore something: standard error says how to fix it
  2  the command line is wrong")]
pub(crate) struct Args {
    /// The policy file (YAML) with `reserves`, the same as the coordinator's.
    #[arg(requires = "node")]
    policy: Option<PathBuf>,
    /// Name of this node in the policy.
    #[arg(long, value_name = "NAME", requires = "policy")]
    node: Option<String>,
    /// Leave the shares in force at the end.
    #[arg(long, requires = "policy")]
    keep: bool,
    /// Directory in which the former settings of the cgroups are kept until they are restored. One agent
    /// per node.
    #[arg(long, value_name = "DIR", default_value = STATE_DIRECTORY)]
    state: PathBuf,
    /// The group that the policy's cgroups are relative to: its path (below each controller, with cgroup
    /// v1), such as `lab/n1`, or the directory of a v2 group. By default the root.
    #[arg(long, value_name = "DIR", requires = "policy")]
    cgroup_root: Option<PathBuf>,
    /// Number of CPUs of this node, such as 0.5 if two nodes share one. By default all that the agent may
    /// use.
    #[arg(long, value_name = "N", value_parser = cpus, requires = "policy")]
    cpus: Option<f64>,
    /// URL of Apache's mod_status page, which must have `ExtendedStatus On` (the default). With `?auto`,
    /// static and dynamic requests cannot be distinguished.
    #[arg(long, value_name = "URL", value_parser = StatusPage::parse, group = "server")]
    apache: Option<StatusPage>,
    /// URL of nginx's stub_status page. It does not distinguish static and dynamic requests.
    #[arg(long, value_name = "URL", value_parser = StatusPage::parse, group = "server")]
    nginx: Option<StatusPage>,
    /// Port of a server without such a page. Its established connections count, idle ones included.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), group = "server")]
    port: Option<u16>,
    /// Paths of dynamic requests, with `*` for any text. Repeatable. By default `*.php` and `/cgi-bin/*`.
    #[arg(long, value_name = "PATH", requires = "server")]
    dynamic: Vec<String>,
    /// Kind of requests that cannot be distinguished.
    #[arg(long, value_enum, default_value_t = Word::Dynamic)]
    count_as: Word,
    /// Source of the CPU time and disk traffic in the report: `machine`, or a cgroup such as
    /// `system.slice/apache2.service` if other programs share the machine. Repeatable for cgroups.
    #[arg(long, value_name = "machine|CGROUP", requires = "server")]
    usage_of: Vec<PathBuf>,
    /// Interface for the sent bytes in the report. By default all but `lo`.
    #[arg(long, value_name = "NAME", requires = "server")]
    interface: Option<String>,
    /// Address on which the agent answers gateways.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9902")]
    listen: SocketAddr,
    /// Trust folder of this agent, as `weirgate pki issue agent NODE` makes it. Required unless all that the agent
    /// talks to is on this machine. By default the policy's `trust`.
    #[arg(long, value_name = "DIR")]
    trust: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Word {
    Static,
    Dynamic,
}

/// Parses a number of CPUs, at most the number that a node can have. A window cannot tell less than a
/// hundredth of a CPU from none.
fn cpus(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.01..=65_536.0).contains(number));
    number.ok_or_else(|| "write a number from 0.01 to 65536".to_owned())
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            why.lines().for_each(agent_says);
            ExitCode::from(exit::NO)
        }
    }
}

fn start(args: &Args) -> Result<(), String> {
    let source = source(args)?;
    let policy = args.policy.as_deref().map(site).transpose()?;
    let folder = args.trust.as_ref().or(policy.as_ref().and_then(|site| site.trust.as_ref()));
    let trust = folder.map(|folder| LiveTrust::load(folder, &[Role::Agent], args.node.as_deref())).transpose()?;
    let trust = trust.map(Arc::new);
    let collector = source.clone().map(|source| Collector::open(args, source, trust.clone())).transpose()?;
    let node = policy.map(|site| settings(site, args, source, trust.clone())).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::task::spawn_local(follow(trust, agent_says));
        match (collector, node) {
            (Some(collector), None) => collector.serve().await,
            (collector, Some(settings)) => {
                // Signals are handled from here on, even while cgroups are made.
                let hear = |kind| signal(kind).map_err(|e| e.to_string());
                let mut terminate = hear(SignalKind::terminate())?;
                let mut interrupt = hear(SignalKind::interrupt())?;
                let mut hangup = hear(SignalKind::hangup())?;
                let node = Node::start(settings, agent_says)?;
                if let Some(collector) = collector {
                    tokio::task::spawn_local(async {
                        collector.serve().await.err().iter().for_each(|why| agent_says(why))
                    });
                }
                let stop = async {
                    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {}, _ = hangup.recv() => {} }
                };
                node.run(stop, args.keep).await
            }
            (None, None) => Err("name a policy, or a server: --apache, --nginx or --port".to_owned()),
        }
    })
}

fn agent_says(line: &str) {
    say(&format!("agent: {line}"));
}

/// Reads the policy.
fn site(policy: &Path) -> Result<Site, String> {
    let file = policy.display().to_string();
    let bytes = File::open(policy).and_then(bounded).map_err(|e| format!("{file}: cannot be read: {e}"))?;
    let loaded = weirgate_config::load_bytes(&file, &bytes).map_err(|errors| {
        tell(&errors.to_string());
        format!("{file} is not sound: not started")
    })?;
    loaded.warning_lines(&file).iter().for_each(|line| tell(&format!("{line}\n")));
    Ok(loaded.site)
}

/// Returns the policy's settings for this node.
fn settings(
    site: Site,
    args: &Args,
    source: Option<Source>,
    trust: Option<Arc<LiveTrust>>,
) -> Result<Settings, String> {
    let file = args.policy.as_deref().unwrap_or(Path::new("")).display();
    let Some(cluster) = site.reserves.map(|reserves| reserves.cluster) else {
        return Err(format!("{file} has no `reserves`, so there are no shares to set"));
    };
    let name = args.node.as_deref().unwrap_or_default();
    let Some(node) = cluster.node(name) else {
        let names: Vec<&str> = cluster.nodes.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = if cluster.nodes.len() > names.len() { ", …" } else { "" };
        return Err(format!("{file} has no node {name:?}; it has {}{more}", names.join(", ")));
    };
    let Args { cpus, cgroup_root: root, state, .. } = args;
    Ok(Settings { cluster, node, cpus: *cpus, root: root.clone(), state: state.clone(), source, trust })
}

/// Maximum number of node names in the message about a wrong name.
const MAX_NAMED: usize = 10;

/// The collector, listening.
struct Collector {
    listener: Listener,
    source: Source,
    meter: Meter,
    trust: Option<Arc<LiveTrust>>,
}

impl Collector {
    fn open(args: &Args, source: Source, trust: Option<Arc<LiveTrust>>) -> Result<Collector, String> {
        let machine = Path::new("machine");
        let groups: Vec<PathBuf> = args.usage_of.iter().filter(|group| *group != machine).cloned().collect();
        if !groups.is_empty() && groups.len() < args.usage_of.len() {
            return Err("--usage-of: the machine contains all groups; name either the machine or groups".to_owned());
        }
        let meter = Meter::open(&groups, args.interface.as_deref())?;
        let address = Address::Tcp(args.listen);
        let listener = Listener::open(&address, FileAccess::OWNER, "agent's report", trust.is_some())
            .map_err(|e| e.to_string())?;
        let address = listener.address().unwrap_or(args.listen);
        let (scheme, guarded) = match trust.is_some() {
            true => ("https", "with a certificate"),
            false => ("http", "for this machine only"),
        };
        agent_says(&format!("reports at {scheme}://{address}{REPORT_PATH}, {guarded}"));
        Ok(Collector { listener, source, meter, trust })
    }

    async fn serve(self) -> Result<(), String> {
        match self.source.active().await {
            Ok(Active { static_content, dynamic_content }) => {
                agent_says(&format!("the server works on {static_content} static and {dynamic_content} dynamic"));
            }
            // The server may come up later.
            Err(why) => agent_says(&format!("the server does not report its counts yet: {why}")),
        }
        let access = Access {
            hosts: None,
            token: None,
            trust: self.trust,
            readers: &[Role::Gateway, Role::Operator, Role::Monitor],
            paths: &[],
            writers: &[],
            open: &[],
            say: Box::new(agent_says),
        };
        let router = routes(self.source, self.meter, agent_says);
        let served = self.listener.serve(access, router, MAX_CONNECTIONS, std::future::pending()).await;
        served.map_err(|e| e.to_string())
    }
}

/// Returns the server that the options name, if any.
fn source(args: &Args) -> Result<Option<Source>, String> {
    let content = match args.count_as {
        Word::Static => Content::Static,
        Word::Dynamic => Content::Dynamic,
    };
    let alike = |page: &str| match args.dynamic.is_empty() {
        true => Ok(()),
        false => Err(format!("--dynamic needs the paths of requests, which {page} does not show; use --count-as")),
    };
    Ok(Some(match (&args.apache, &args.nginx, args.port) {
        (Some(page), ..) if page.is_auto() => {
            alike("server-status?auto").map_err(|why| format!("{why}, or leave out ?auto"))?;
            Source::ApacheAuto(page.clone(), content)
        }
        (Some(page), ..) => {
            let default = || DYNAMIC.map(String::from).to_vec();
            let globs = if args.dynamic.is_empty() { default() } else { args.dynamic.clone() };
            let globs = Globs::new(globs).map_err(|why| format!("--dynamic: {why}"))?;
            Source::Apache(page.clone(), globs)
        }
        (None, Some(page), _) => {
            alike("stub_status")?;
            Source::Nginx(page.clone(), content)
        }
        (None, None, Some(port)) => {
            alike("the kernel's list of connections")?;
            Source::Port(port, content)
        }
        (None, None, None) => return Ok(None),
    }))
}
