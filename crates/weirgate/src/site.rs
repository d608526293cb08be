//! `weirgate site`: a policy for all gateways of a site at once.
//!
//! The gateway that is asked writes the policy to etcd, and the elected one leads the rollout. This command only shows
//! it, and may end at any time.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use weirgate_clock::{Clock, pause};
use weirgate_spanned_yaml::decode::FromText as _;
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::unit::{Span, span_text};
use weirgate_wire::admin::{SiteRollout, SiteStatus};
use weirgate_wire::{RolloutRequest, RolloutStage, RolloutStep, RolloutTaken};

use crate::admin_api::{Access, AdminApi};
use crate::exit::{self, say};

/// Interval between two looks at a rollout.
const LOOK: Duration = Duration::from_millis(500);

/// Time for a rollout beyond that for which the canary watches: checks, judgement, and the elections of other gateways.
const PATIENCE: Duration = Duration::from_secs(90);

/// Change the policy of all gateways of a site at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Rollout(Rollout),
}

/// Put a policy in force on all gateways of a site, or on none.
///
/// All gateways check the policy on their machines. Then one of them puts it in force and judges itself: by the
/// requests that it does not answer, and by the guarantees that it keeps. If it does well, all follow, each in its own
/// policy file. Otherwise none keeps it. The policies of the site must have `rollouts: true` under `site:`. Only what
/// all gateways have in common can be rolled out, so their names must come from `trust`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Environment:
  WEIRGATE_ADMIN_TOKEN  bearer token of the admin API, if there is no --token-file

Examples:
  weirgate check policy.yaml && weirgate site rollout policy.yaml
  weirgate site rollout policy.yaml --watch 5m --gateway 10.0.0.7:9900 --trust ~/.weirgate

Exit codes:
  0  the policy is in force
  1  it is not: standard error says why
  2  the command line is wrong")]
struct Rollout {
    /// The policy file (YAML), of at most 60 KiB.
    file: PathBuf,
    /// Time for which one gateway tries the policy before the others, such as `30s` or `5m`.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = span)]
    watch: Duration,
    /// Admin API of any gateway of the site: HOST:PORT, http://HOST:PORT, https://HOST:PORT, or the path of a Unix
    /// socket.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9900")]
    gateway: String,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let Command::Rollout(rollout) = &args.command;
    match roll_out(rollout) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => exit::fail(&format!("site rollout: {why}")),
    }
}

/// The part of `/snapshot` that is of use here.
#[derive(serde::Deserialize)]
struct Snapshot {
    site: Option<SiteStatus>,
}

fn roll_out(args: &Rollout) -> Result<(), String> {
    let policy = std::fs::read_to_string(&args.file).map_err(|error| format!("{}: {error}", args.file.display()))?;
    let api = AdminApi::new(&args.gateway, &args.access)?;
    let request = RolloutRequest { policy, watch_ms: args.watch.as_millis() as u64 };
    let taken: RolloutTaken = api.post("/rollout", &request)?;
    let (clock, mut shown) = (Clock::start(), None);
    while clock.now() < args.watch + PATIENCE {
        // A gateway that puts another policy in force is away for a moment.
        let look = api.get::<Snapshot>("/snapshot?limit=1").ok().and_then(|page| page.site?.rollout);
        if let Some(SiteRollout { step, .. }) = look.filter(|rollout| rollout.step.id == taken.id) {
            let text = words(&step, args.watch);
            if shown.as_ref() != Some(&step) {
                say(&format!("rollout {}: {text}", taken.id));
                shown = Some(step.clone());
            }
            match step.stage {
                RolloutStage::InForce => return Ok(()),
                RolloutStage::Withdrawn => return Err("the policy is in force nowhere".to_owned()),
                RolloutStage::Proposed | RolloutStage::Canary => {}
            }
        }
        pause(LOOK);
    }
    Err(format!("rollout {} takes long; `weirgate top` shows how it goes on", taken.id))
}

fn words(step: &RolloutStep, watch: Duration) -> String {
    match step.stage {
        RolloutStage::Proposed => "all gateways check the policy".to_owned(),
        RolloutStage::Canary => {
            let away = if step.why.is_empty() { String::new() } else { format!("; {}", step.why) };
            format!("{} tries the policy for {}{away}", step.canary, span_text(watch))
        }
        RolloutStage::InForce => "every gateway puts the policy in force".to_owned(),
        RolloutStage::Withdrawn => format!("withdrawn: {}", step.why),
    }
}

fn span(text: &str) -> Result<Duration, String> {
    Span::from_text(text).map(|span| span.0).map_err(|Complaint { what, hint }| format!("{what}; {hint}"))
}
