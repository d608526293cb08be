//! `weirgate run`: assembles the gateway, its observers and its admin API, and follows signals.

mod signals;
mod sockets;
mod succession;

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weirgate_config::{Admin, Limits, ListenerName, MemoryLimit, Site};
use weirgate_gateway::access_log::AccessLog;
use weirgate_gateway::admin::{AdminListener, Operations, TOKEN_VARIABLE};
use weirgate_gateway::metrics::Metrics;
use weirgate_gateway::telemetry::Telemetry;
use weirgate_gateway::{Gateway, ReloadSource, Signals};
use weirgate_listening::{Address, Socket};
use weirgate_log::Level;
use weirgate_spanned_yaml::unit::Bytes;

use crate::args::Run;
use crate::check::bounded;
use crate::exit::{self, say};

use succession::Succession;

pub(crate) fn run(args: Run) -> ExitCode {
    match start(&args.file) {
        Ok(running) => signals::follow(running),
        Err(why) => exit::fail(&why),
    }
}

/// A gateway with its log, operations and admin API, which serves.
struct Running {
    operations: Arc<Operations>,
    log: Arc<AccessLog>,
    telemetry: Arc<Telemetry>,
    succession: Arc<Succession>,
    signals: Signals,
    /// The policy file as given, for messages.
    file: String,
}

/// Starts everything, or returns the reason for not starting.
fn start(path: &Path) -> Result<Running, String> {
    let file = path.display().to_string();
    // First, because the environment is changed and there are no threads yet.
    let (predecessor, mut inherited) = sockets::find()?;
    let bytes = File::open(path).and_then(bounded);
    let bytes = bytes.map_err(|e| format!("{file}: cannot be read: {e}"))?;
    let loaded = weirgate_config::load_bytes(&file, &bytes).map_err(|errors| {
        weirgate_log::located(Level::Error, &errors.to_string());
        format!("{file} is not sound: not started")
    })?;
    weirgate_log::follow(loaded.site.log);
    loaded.warning_lines(&file).iter().for_each(|line| weirgate_log::located(Level::Warning, line));
    let site = gateway(&file, loaded.site)?;
    weirgate_gateway::give_back_by(weirgate_memory::give_back);
    // Reading the policy took more than it left. The next threads begin in that memory, and would keep it.
    weirgate_memory::give_back();
    let text = String::from_utf8_lossy(&bytes);

    let log = AccessLog::start(site.access_log.as_ref()).map_err(|e| e.to_string())?;
    let (log, metrics, telemetry) = (Arc::new(log), Arc::new(Metrics::new()), Arc::<Telemetry>::default());
    let (mut listening, admin_socket) = sockets::sort(&site, &file, &mut inherited)?;
    let has_trust = site.trust.is_some();
    let admin = site.admin.clone().map(|config| open_admin(config, has_trust, admin_socket)).transpose()?;
    let source = ReloadSource::File {
        path: path.to_owned(),
        resolve: Box::new(|name, text| {
            let loaded = weirgate_config::load(name, text).map_err(|e| e.to_string())?;
            gateway(name, loaded.site)
        }),
    };
    let observers: Vec<Box<dyn weirgate_gateway::Observer>> =
        vec![Box::new(Arc::clone(&metrics)), Box::new(Arc::clone(&log)), Box::new(Arc::clone(&telemetry))];
    raise_open_files();
    let limits = site.limits;
    // Before clients can connect: a script that sees it may send a signal, which would end the process. It takes
    // effect after the start.
    let signals = Signals::handle().map_err(|e| format!("not started: cannot follow signals: {e}"))?;
    let sockets = |name: &ListenerName| listening.remove(name).unwrap_or_default();
    let gateway = Gateway::prepare(site, &text, source, observers, sockets).map_err(|e| hint(&e))?;
    // The gateway has a copy of the policy.
    weirgate_memory::give_back();
    let active_config = gateway.active_config();
    say(&format!("version {}: {file}, checksum {}", env!("CARGO_PKG_VERSION"), active_config.checksum));
    say(&summary(&active_config.site));
    say(&bounds(&gateway, &limits));
    for (address, encrypted) in gateway.listeners() {
        let scheme = if encrypted { "https" } else { "http" };
        say(&match address {
            Address::Tcp(address) => format!("listening on {scheme}://{address}"),
            Address::Unix(_) => format!("listening on {address} with {scheme}"),
        });
    }
    let operations = Arc::new(Operations::new(gateway.clone(), metrics, Arc::clone(&log), Arc::clone(&telemetry)));
    let weak = Arc::downgrade(&operations);
    operations.gateway().reload_by(move || match weak.upgrade() {
        Some(operations) => operations.reload(None).map(drop).map_err(|error| error.to_string()),
        None => Err("the gateway ends".to_owned()),
    });
    telemetry.serve(Arc::clone(&operations)).map_err(|e| format!("telemetry: {e}"))?;
    // Up to here the predecessor serves, and from here on this process.
    let (in_charge, handed) = match predecessor {
        Some(predecessor) => sockets::take_over(predecessor)?,
        None => (format!("MAINPID={}\nREADY=1", std::process::id()), None),
    };
    if let Some(line) = gateway.begin_with_learned(handed) {
        say(&line);
    }
    gateway.serve();
    let admin = match admin {
        Some((listener, place)) => {
            let guarded = guarded(listener.is_encrypted(), listener.has_token());
            let server = listener.serve(Arc::clone(&operations)).map_err(|e| format!("admin API: {e}"))?;
            say(&format!("admin API on {place}, {guarded}"));
            Some(server)
        }
        None => {
            say("admin API off");
            None
        }
    };
    say("ready");
    signals::notify(&in_charge);
    let succession = Arc::new(Succession::new(gateway, admin));
    Ok(Running { operations, log, telemetry, succession, signals, file })
}

/// Returns the site if it has a gateway.
pub(crate) fn gateway(file: &str, site: Site) -> Result<Site, String> {
    match site.listeners.is_empty() {
        false => Ok(site),
        true => Err(format!(
            "{file} configures no gateway: add `listen:`, `upstreams:` and `classes:`, or use it with `weirgate \
             coordinator` and `weirgate agent`"
        )),
    }
}

/// Opens an admin listener. Returns also its place for people.
pub(crate) fn open_admin(
    config: Admin,
    has_trust: bool,
    socket: Option<Socket>,
) -> Result<(AdminListener, String), String> {
    let named = config.address.to_string();
    let variable = std::env::var(TOKEN_VARIABLE).ok();
    let listener = AdminListener::open_or_adopt(config, variable, has_trust, socket).map_err(|e| e.to_string())?;
    let scheme = if listener.is_encrypted() { "https" } else { "http" };
    let place = listener.address().map_or(named, |address| format!("{scheme}://{address}"));
    Ok((listener, place))
}

/// Describes the permission that a listener asks for.
pub(crate) fn guarded(encrypted: bool, has_token: bool) -> &'static str {
    match (encrypted, has_token) {
        (true, true) => "with a certificate or a token",
        (true, false) => "with a certificate",
        (false, true) => "with a token",
        (false, false) => "for this machine only, without a token",
    }
}

fn summary(site: &Site) -> String {
    let policy = &site.policy;
    let templates = match policy.templates.len() {
        0 => String::new(),
        n => format!(", {}", count(n, "template")),
    };
    format!(
        "discipline {}: {}{templates} over {} in {}",
        policy.discipline.name,
        count(policy.classes.len(), "class"),
        count(policy.nodes.len(), "node"),
        count(policy.pools.len(), "upstream")
    )
}

/// Raises the limit of open files to the maximum that this user may have. The lower limit is for old programs that wait
/// with `select`. The listeners say how many connections fit, so a failure needs no message.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Returns the limits of the process in one line.
fn bounds(gateway: &Gateway, limits: &Limits) -> String {
    let fit = gateway.connection_limit();
    let files = match getrlimit(Resource::Nofile).current {
        Some(files) if fit < limits.connections as u64 => format!(", because the process may have {files} open files"),
        _ => String::new(),
    };
    let memory = match (gateway.memory_limit(), limits.memory) {
        (Some(bytes), MemoryLimit::Cgroup) => format!("{} of the control group", Bytes(bytes)),
        (Some(bytes), _) => Bytes(bytes).to_string(),
        (None, _) => "unlimited".to_owned(),
    };
    format!("up to {}{files}, memory {memory}", count(usize::try_from(fit).unwrap_or(usize::MAX), "client connection"))
}

/// Returns a count such as `1 class` or `3 classes`.
fn count(number: usize, word: &str) -> String {
    let plural = if word.ends_with('s') { "es" } else { "s" };
    format!("{number} {word}{}", if number == 1 { "" } else { plural })
}

/// Returns a message with the gateway's error and a hint.
fn hint(error: &io::Error) -> String {
    let help = match error.kind() {
        io::ErrorKind::AddrInUse => "; stop the process that uses it, or change `listen`",
        io::ErrorKind::AddrNotAvailable => "; this machine does not have this address: change `listen`",
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need CAP_NET_BIND_SERVICE: grant it or listen on a higher port"
        }
        _ => "",
    };
    format!("not started: {error}{help}")
}
