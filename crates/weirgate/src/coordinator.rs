//! `weirgate coordinator`: the coordinator of Cluster Reserves, its page and metrics, and signals.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use weirgate_config::Reserves;
use weirgate_coordinator::{CoordinatorServer, routes};
use weirgate_tls::{LiveTrust, Role};

use crate::exit::{self, say, tell};
use crate::run::{guarded, open_admin};

/// Time that the end waits for a running optimiser. Its answer is no longer needed.
const LAST_RUN: Duration = Duration::from_millis(100);

/// Give every class its share of the cluster's CPUs: collect reports from all agents, compute shares, send
/// them.
///
/// FILE is the policy with `reserves:` that the agents have as well. Shares are computed every few seconds
/// and when a node's agent asks. Prints on standard error which addresses it listens on and which agents
/// come and go. SIGTERM or SIGINT ends it. The shares in force stay, and a new coordinator continues from them.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Environment:
  WEIRGATE_ADMIN_TOKEN  bearer token of the page, if the policy names no `admin_token_file`

Examples:
  weirgate coordinator policies/reserves.yaml
  weirgate agent policies/reserves.yaml --node n1    # on each node
  curl -s http://127.0.0.1:9904/reserves             # nodes up, CPU used, shares given

Exit codes:
  0  stopped by a signal
  1  the policy is not sound or has no `reserves`, an address, token or certificate is wrong, or it failed")]
pub(crate) struct Args {
    /// The policy file (YAML).
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match serve(&args.file) {
        Ok(()) => {
            say("coordinator: stopped; the shares in force stay");
            ExitCode::SUCCESS
        }
        Err(why) => exit::fail(&format!("coordinator: {why}")),
    }
}

fn serve(path: &Path) -> Result<(), String> {
    let file = path.display().to_string();
    let loaded = weirgate_config::load_file(path).map_err(|errors| {
        tell(&errors.to_string());
        format!("{file} is not sound: not started")
    })?;
    loaded.warning_lines(&file).iter().for_each(|line| tell(&format!("{line}\n")));
    let trust = loaded.site.trust.as_deref().map(|folder| LiveTrust::load(folder, &[Role::Coordinator], None));
    let trust = trust.transpose()?.map(Arc::new);
    let reserves = loaded
        .site
        .reserves
        .ok_or_else(|| format!("{file} has no `reserves:`: add its nodes and classes (docs/guide/reserves.md)"))?;
    let has_trust = trust.is_some();
    let admin = reserves.admin.clone().map(|config| open_admin(config, has_trust, None)).transpose()?;
    let say_line = |line: &str| say(&format!("coordinator: {line}"));
    let coordinator = CoordinatorServer::open(&reserves, trust.clone(), say_line).map_err(|e| e.to_string())?;
    say(&format!("coordinator: version {}: {file}, {}", env!("CARGO_PKG_VERSION"), summary(&reserves)));
    if let Some(address) = coordinator.address() {
        say(&format!("coordinator: agents connect to {address}, {}", guarded(has_trust, false)));
    }
    // Kept until the end: dropping it ends the page.
    let _page = match admin {
        Some((listener, place)) => {
            let guarded = guarded(listener.is_encrypted(), listener.has_token());
            let server = listener
                .serve_router(routes(coordinator.shared()), &weirgate_http_server::page::OPEN, trust)
                .map_err(|e| format!("page: {e}"))?;
            say(&format!("coordinator: page on {place}, {guarded}"));
            Some(server)
        }
        None => {
            say("coordinator: page off");
            None
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let served = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(|e| format!("cannot follow signals: {e}"))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| format!("cannot follow signals: {e}"))?;
        // Report readiness only now: until here a signal would have ended the process.
        say("coordinator: ready");
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        coordinator.serve(stop).await.map_err(|e| e.to_string())
    });
    runtime.shutdown_timeout(LAST_RUN);
    served
}

fn summary(reserves: &Reserves) -> String {
    let plural = |n: usize, one: &str, more: &str| format!("{n} {}", if n == 1 { one } else { more });
    let promised: f64 = reserves.cluster.classes.iter().map(|class| class.share).sum();
    format!(
        "{} on {}, {} % of the cluster promised",
        plural(reserves.cluster.classes.len(), "class", "classes"),
        plural(reserves.cluster.nodes.len(), "node", "nodes"),
        (promised * 10.0).round() / 10.0
    )
}
