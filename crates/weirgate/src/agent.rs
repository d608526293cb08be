//! `weirgate agent`: the node's side. For now its collector: what the server of this machine is working on.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, ValueEnum};
use weirgate_agent::{Content, Globs, REPORT_PATH, Source, StatusPage, open, serve};
use weirgate_config::{Active, Token};

use crate::exit::{self, say};

/// The environment variable that holds the token where no file does.
const TOKEN_VARIABLE: &str = "WEIRGATE_AGENT_TOKEN";

/// Paths that are dynamic on an Apache that nobody has said more about.
const DYNAMIC: [&str; 2] = ["*.php", "/cgi-bin/*"];

/// Tell gateways how many requests the server on this machine is working on, static and dynamic apart.
///
/// Reads the server's own status page whenever a gateway asks, which it does where its policy has `collector:`. Serves
/// until it is stopped.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("server").required(true).args(["apache", "nginx"]))]
#[command(after_long_help = "\
Environment:
  WEIRGATE_AGENT_TOKEN  bearer token that gateways must show, if there is no --token-file

Examples:
  weirgate agent --apache http://127.0.0.1/server-status
  weirgate agent --apache http://127.0.0.1/server-status --dynamic '*.php' --dynamic '/cgi-bin/*'
  weirgate agent --nginx http://127.0.0.1/stub_status --listen 10.0.0.1:9902 --token-file /etc/weirgate/agent-token

Exit codes:
  1  the address cannot be opened, or would be open to others without a token
  2  the command line is wrong")]
pub(crate) struct Args {
    /// Apache's page of mod_status, which must have `ExtendedStatus On` (the default). With `?auto` requests cannot be
    /// told apart.
    #[arg(long, value_name = "URL", value_parser = StatusPage::parse)]
    apache: Option<StatusPage>,
    /// nginx's page of stub_status, on which requests cannot be told apart.
    #[arg(long, value_name = "URL", value_parser = StatusPage::parse)]
    nginx: Option<StatusPage>,
    /// Paths of dynamic requests; `*` stands for anything. May be given many times. By default `*.php` and
    /// `/cgi-bin/*`.
    #[arg(long, value_name = "PATH")]
    dynamic: Vec<String>,
    /// What requests are that cannot be told apart.
    #[arg(long, value_enum, default_value_t = Word::Dynamic)]
    count_as: Word,
    /// Where gateways ask.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9902")]
    listen: SocketAddr,
    /// File with the bearer token that gateways must show: at least 128 bits, as hex or base64.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Word {
    Static,
    Dynamic,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> ExitCode {
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => exit::fail(&format!("agent: {why}")),
    }
}

fn start(args: Args) -> Result<(), String> {
    let (listen, file) = (args.listen, args.token_file.clone());
    let source = source(args)?;
    let variable = std::env::var(TOKEN_VARIABLE).ok().map(|value| (TOKEN_VARIABLE, value));
    let token = Token::find("agent", file.as_deref(), variable).map_err(|e| e.to_string())?;
    let listener = open(listen, token.is_some()).map_err(|e| e.to_string())?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let guarded = if token.is_some() { "with a token" } else { "for this machine only, without a token" };
    say(&format!("agent: reports at http://{address}{REPORT_PATH}, {guarded}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        match source.active().await {
            Ok(Active { static_content, dynamic_content }) => {
                say(&format!("agent: the server works on {static_content} static and {dynamic_content} dynamic"));
            }
            // It may come up later.
            Err(why) => say(&format!("agent: the server does not tell its counts yet: {why}")),
        }
        serve(listener, source, token, |line| say(&format!("agent: {line}"))).await.map_err(|e| e.to_string())
    })
}

fn source(args: Args) -> Result<Source, String> {
    let content = match args.count_as {
        Word::Static => Content::Static,
        Word::Dynamic => Content::Dynamic,
    };
    let alike = |args: &Args, page: &str| match args.dynamic.is_empty() {
        true => Ok(()),
        false => Err(format!("--dynamic needs the paths of requests, which {page} does not show; use --count-as")),
    };
    match (args.apache.clone(), args.nginx.clone()) {
        (Some(page), _) if page.is_auto() => {
            alike(&args, "server-status?auto").map_err(|why| format!("{why}, or leave out ?auto"))?;
            Ok(Source::ApacheAuto(page, content))
        }
        (Some(page), _) => {
            let default = || DYNAMIC.map(String::from).to_vec();
            let globs = if args.dynamic.is_empty() { default() } else { args.dynamic };
            Globs::new(globs).map(|globs| Source::Apache(page, globs)).map_err(|why| format!("--dynamic: {why}"))
        }
        (None, Some(page)) => {
            alike(&args, "stub_status")?;
            Ok(Source::Nginx(page, content))
        }
        (None, None) => Err("say which server: --apache or --nginx".to_owned()),
    }
}
