//! The command line as types.
//!
//! These types only describe the accepted words. Each command's own module turns them into its input.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use weirgate_config::Standing;

use crate::{
    agent, bands, coordinator, demo, init, lab, manual, pki, plan, policy, probe, recommend, replay, reserves, sim,
    site, tap, top,
};

/// End of the help text.
const EXIT_CODES: &str = "\
Exit codes:
  0  done; `check`: every file is sound; `demo`: every guarantee was held
  1  the answer is no, or the command failed: standard error says why and how to fix it
  2  the command line is wrong";

const EXAMPLES: &str = "\
Examples:
  weirgate demo
  weirgate recommend access.log > policy.yaml
  weirgate check policy.yaml && weirgate run policy.yaml
  weirgate explain policy.yaml GET http://bigcorp.test/mail -H 'X-Tenant: acme' --client 192.0.2.7
  weirgate schema > weirgate.schema.json
  weirgate sim experiments/quorum-fig9.yaml

";

/// A gateway that gives each class of requests a minimum throughput and a maximum response time.
///
/// Weirgate stands in front of unmodified HTTP servers. A policy file names the servers, the classes of
/// requests and the guarantee of each class. The gateway decides when each request is released, so that the
/// guarantees hold under overload, surges, expensive requests and failing servers.
#[derive(Debug, Parser)]
#[command(name = "weirgate", version, max_term_width = 100, after_help = concat!("Try `weirgate demo` first: it needs nothing else."), after_long_help = format!("{EXAMPLES}{EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Check(Check),
    Explain(Explain),
    Schema(Schema),
    /// Show the gateway keeping its guarantees: an emulated cluster, clients of three classes, a surge.
    Demo(demo::Args),
    Top(top::Args),
    Tap(tap::Args),
    Init(init::Args),
    Recommend(recommend::Args),
    Sim(sim::Args),
    Plan(plan::Args),
    Replay(replay::Args),
    Policy(policy::Args),
    Bands(bands::Args),
    Lab(lab::Args),
    Probe(probe::Args),
    Agent(Box<agent::Args>),
    Coordinator(coordinator::Args),
    Pki(pki::Args),
    Site(site::Args),
    Reserves(reserves::Args),
    Completions(manual::Completions),
    /// Write the manual pages. Packages contain them.
    #[command(hide = true)]
    Man(manual::Pages),
}

/// Serve the policy of FILE until stopped.
///
/// Prints on standard error which addresses it listens on. SIGHUP reads FILE again: a valid policy takes
/// effect as a whole and no request is lost. An invalid one changes nothing. SIGHUP also reopens the access
/// log. SIGTERM or SIGINT stops accepting, finishes the requests in flight within `drain_deadline`, and
/// ends. A second one ends at once. SIGUSR2 starts the program anew, possibly a newer version. The new process
/// takes over the listening sockets when it is ready, and the old one finishes its requests and ends.
///
/// Listening sockets that systemd passes (`LISTEN_FDS`) are used for the addresses of the policy.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Environment:
  WEIRGATE_ADMIN_TOKEN  bearer token of the admin API, if the policy names no `token_file`

Examples:
  weirgate run policy.yaml
  kill -HUP $(pidof weirgate)     # after editing policy.yaml
  kill -USR2 $(pidof weirgate)    # after installing a new version

Exit codes:
  0  stopped by a signal, by POST /drain, or after a new process has taken over
  1  the policy is not sound, an address cannot be opened, or the gateway failed")]
pub(crate) struct Run {
    /// The policy file (YAML).
    pub(crate) file: PathBuf,
}

/// Check policy and experiment files and print all errors at once, each with its position and a hint.
///
/// A file with `machines`, `traffic` or `phases` at its top level is an experiment. Its policy is checked
/// with it.
///
/// The command also reports guarantees that cannot be kept. If service times and capacities are given, it
/// compares the sum of the guarantees with the capacity of each pool and names the class that does not fit.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weirgate check policy.yaml
  weirgate check --format json policies/*.yaml
  weirgate check experiments/*.yaml

Exit codes:
  0  every file is sound (there may be warnings)
  1  a file has errors or cannot be read")]
pub(crate) struct Check {
    /// Policy and experiment files (YAML). `-` is standard input.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Output format: `text` prints `file:line:column: field: problem; hint`, `json` one array.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people and editors.
    Text,
    /// For programs.
    Json,
}

/// Print the JSON Schema of policy, experiment or page-table files, for editors and for programs that write
/// such files.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example, for editors that know the YAML language server:
  weirgate schema > weirgate.schema.json
  # first line of the policy:
  # yaml-language-server: $schema=weirgate.schema.json")]
pub(crate) struct Schema {
    /// Kind of file.
    #[arg(value_enum, default_value_t = SchemaOf::Policy)]
    pub(crate) of: SchemaOf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// The file that `weirgate run` serves.
    Policy,
    /// The file that `weirgate sim`, `weirgate plan` and `weirgate lab` play.
    Experiment,
    /// The file that `weirgate probe` writes.
    PageTable,
}

/// Explain how the gateway would treat a request: the matching rule and why earlier ones do not match, the
/// class, its servers, cost and guarantee.
///
/// Nothing is sent. The request is normalised as the gateway normalises it before it classifies and
/// forwards.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weirgate explain policy.yaml GET http://bigcorp.test/
  weirgate explain policy.yaml POST 'https://shop.test/buy?fast=1' -H 'Cookie: tier=gold' --client 192.0.2.7
  weirgate explain policy.yaml POST http://api.test/ -H 'Content-Type: application/json' --body @call.json

Exit codes:
  0  the request has a class
  1  the policy is not sound, or the gateway would refuse the request")]
pub(crate) struct Explain {
    /// The policy file (YAML).
    pub(crate) file: PathBuf,
    /// The method, such as GET.
    pub(crate) method: String,
    /// The URL, such as `http://bigcorp.test/mail?box=1`.
    pub(crate) url: String,
    /// A header of the request. Repeatable.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// Address that connects to the gateway, or `unix` for a Unix socket. If `trusted_proxies` lists it, the client is
    /// the one that it names with -H 'X-Forwarded-For: …' or 'Forwarded: …'. By default 127.0.0.1, or `unix` for a
    /// listener on a Unix socket.
    #[arg(long, value_name = "IP", value_parser = weirgate_config::client_address)]
    pub(crate) client: Option<IpAddr>,
    /// Name that the client asks for when it begins TLS. By default the host of an `https` URL.
    #[arg(long, value_name = "NAME")]
    pub(crate) sni: Option<String>,
    /// File with the client's certificate (PEM). It is not verified.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_certificate: Option<PathBuf>,
    /// Port of the listener that receives the request. By default that of the first listener that has TLS for an
    /// `https` URL, or none for an `http` URL, or else of the first one.
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u16>,
    /// Standing of the visitor, as if a cookie of the gateway said so. By default what the cookie in -H says.
    #[arg(long, value_name = "STANDING", value_parser = standing)]
    pub(crate) visitor: Option<Standing>,
    /// The body, or `@FILE` for the contents of a file. Without it the request has no body.
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// Show every rule that did not match, not only the last 20.
    #[arg(long)]
    pub(crate) all: bool,
}

/// Reads the standing of a visitor.
fn standing(word: &str) -> Result<Standing, String> {
    let known = || Standing::ALL.iter().map(|standing| standing.as_str());
    let found = Standing::ALL.into_iter().find(|standing| standing.as_str() == word);
    found.ok_or_else(|| format!("write one of {}", known().collect::<Vec<_>>().join(", ")))
}
