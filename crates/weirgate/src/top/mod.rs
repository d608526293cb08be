//! `weirgate top`: a running gateway in the terminal, with the figures of its live page.
//!
//! It reads `/snapshot` and `/events` of the admin API, so it needs what a reader of the page needs.

mod screen;
mod table;

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use weirgate_gateway::admin::TOKEN_VARIABLE;
use weirgate_http_client::{Address, Limits, Request, blocking};
use weirgate_http_server::Token;
use weirgate_tls::{LiveTrust, Role, Wanted};
use weirgate_wire::admin::{Class, Events, Snapshot};

use crate::exit;

/// Time for an answer of the admin API, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum size of an answer: a thousand classes have less than 2 MB.
const MAX_ANSWER: u64 = 16 << 20;

/// Show a running gateway: each class against its guarantee, refusals with their reason, windows, nodes and changes.
///
/// Reads the admin API of the gateway once a second. The same figures are on the page at `/` of that API.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Environment:
  WEIRGATE_ADMIN_TOKEN  bearer token of the admin API, if there is no --token-file

Examples:
  weirgate top
  weirgate top 10.0.0.7:9900 --trust ~/.weirgate
  weirgate top /run/weirgate/admin.sock
  weirgate top --once | grep MISSED

Exit codes:
  0  ended by a key. With --once: every guarantee is held
  1  the gateway did not answer. With --once, also: a guarantee is missed")]
pub(crate) struct Args {
    /// Admin API: HOST:PORT, http://HOST:PORT, https://HOST:PORT, or the path of a Unix socket.
    #[arg(default_value = "127.0.0.1:9900")]
    address: String,
    /// File with the bearer token of the admin API.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Your trust folder, as `weirgate pki issue operator NAME` makes it. Required for a gateway on another machine.
    #[arg(long, value_name = "DIR")]
    trust: Option<PathBuf>,
    /// Print the figures once, and end. Without a terminal this is the default.
    #[arg(long)]
    once: bool,
}

/// One look at the gateway.
#[derive(Debug)]
struct Look {
    version: u64,
    engine: Snapshot,
    classes: Vec<Class>,
    /// Whether there are more classes.
    more: bool,
    events: Events,
}

/// A page of `/snapshot`.
#[derive(Debug, Deserialize)]
struct Page {
    version: u64,
    engine: Snapshot,
    classes: Vec<Class>,
    next: Option<u32>,
}

impl Look {
    /// Returns whether all guarantees of the classes are held.
    fn holds(&self) -> bool {
        !self.classes.iter().any(table::misses)
    }
}

/// The admin API of a gateway.
struct Source {
    address: Address,
    host: String,
    token: Option<Token>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let shown = Source::new(args).and_then(|source| {
        let first = source.look()?;
        if args.once || !io::stdout().is_terminal() {
            let code = if first.holds() { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) };
            exit::print(&table::text(&first));
            return Ok(code);
        }
        screen::follow(first, || source.look()).map(|()| ExitCode::SUCCESS)
    });
    shown.unwrap_or_else(|why| exit::fail(&format!("top: {why}")))
}

impl Source {
    fn new(args: &Args) -> Result<Source, String> {
        let variable = std::env::var(TOKEN_VARIABLE).ok().map(|value| (TOKEN_VARIABLE, value));
        let token = Token::find("admin", args.token_file.as_deref(), variable).map_err(|error| error.to_string())?;
        let trust = args.trust.as_deref().map(|folder| LiveTrust::load(folder, &[Role::Operator, Role::Monitor], None));
        let trust = trust.transpose()?.map(Arc::new);
        let given = ["https://", "http://"].iter().find_map(|scheme| args.address.strip_prefix(scheme));
        let given = given.unwrap_or(&args.address).trim_end_matches('/');
        let (address, host) = match args.address.starts_with(['/', '.']) {
            true => (Address::Unix(PathBuf::from(&args.address)), "localhost".to_owned()),
            false if !given.contains(':') => {
                return Err(format!("{given:?} has no port: write HOST:PORT, or the path of a Unix socket"));
            }
            false => match trust {
                None => (Address::Tcp(given.to_owned()), given.to_owned()),
                Some(trust) => {
                    let wanted = Wanted { role: Role::Gateway, name: None };
                    (Address::Trusted(given.to_owned(), trust, wanted), given.to_owned())
                }
            },
        };
        Ok(Source { address, host, token })
    }

    fn look(&self) -> Result<Look, String> {
        let Page { version, engine, classes, next } = self.get("/snapshot?limit=1000")?;
        Ok(Look { version, engine, classes, more: next.is_some(), events: self.get("/events")? })
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let from = |why: &dyn Display| format!("{}: {why}", self.address);
        let mut request = Request::get(&self.host, path);
        if let Some(token) = &self.token {
            request = request.authorization(&token.authorization());
        }
        let limits = Limits::new(PATIENCE, MAX_ANSWER);
        let answer = blocking::exchange(&self.address, request, &limits).map_err(|error| {
            from(&format!("{error}; is this the admin API of a gateway, as `weirgate run` prints it?"))
        })?;
        match answer.status {
            200 => serde_json::from_slice(&answer.body)
                .map_err(|error| from(&format!("{path} is not as expected: {error}"))),
            400 if answer.text().contains("mutual TLS") => Err(from(&"speaks mutual TLS: give --trust")),
            401 => Err(from(&format!("needs the admin token: give --token-file, or set {TOKEN_VARIABLE}"))),
            status => Err(from(&format!("{path} has status {status}"))),
        }
    }
}
