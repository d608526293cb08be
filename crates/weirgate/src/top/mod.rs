//! `weirgate top`: a running gateway in the terminal, with the figures of its live page.
//!
//! It reads `/snapshot` and `/events` of the admin API, so it needs the same rights as a reader of the page.

mod screen;
mod site;
mod table;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use serde::Deserialize;
use weirgate_wire::admin::{Class, Events, Followed, LearnedStatus, SiteStatus, Snapshot};

use crate::admin_api::{Access, AdminApi};
use crate::exit;

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
    #[command(flatten)]
    access: Access,
    /// Print the figures once, and end. Without a terminal this is the default.
    #[arg(long)]
    once: bool,
}

/// One look at the gateway.
struct Look {
    version: u64,
    engine: Snapshot,
    classes: Vec<Class>,
    /// Whether there are more classes.
    more: bool,
    events: Events,
    follows: Vec<Followed>,
    site: Option<SiteStatus>,
}

/// A page of `/snapshot`.
#[derive(Debug, Deserialize)]
struct Page {
    version: u64,
    engine: Snapshot,
    classes: Vec<Class>,
    next: Option<u32>,
    #[serde(default)]
    learned: LearnedStatus,
    site: Option<SiteStatus>,
}

impl Look {
    /// Returns whether all guarantees of the classes are held.
    fn holds(&self) -> bool {
        !self.classes.iter().any(table::misses)
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let shown = AdminApi::new(&args.address, &args.access).and_then(|api| {
        let first = look(&api)?;
        if args.once || !io::stdout().is_terminal() {
            let code = if first.holds() { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) };
            exit::print(&table::text(&first));
            return Ok(code);
        }
        screen::follow(first, || look(&api)).map(|()| ExitCode::SUCCESS)
    });
    shown.unwrap_or_else(|why| exit::fail(&format!("top: {why}")))
}

/// Looks at the gateway.
fn look(api: &AdminApi) -> Result<Look, String> {
    let Page { version, engine, classes, next, learned, site } = api.get("/snapshot?limit=1000")?;
    let (more, follows) = (next.is_some(), learned.follows);
    Ok(Look { version, engine, classes, more, events: api.get("/events")?, follows, site })
}
