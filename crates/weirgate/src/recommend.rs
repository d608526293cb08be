//! `weirgate recommend`: a first policy from access logs or from a running gateway, with the reason for each figure.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use weirgate_advice::log::{Ended, Format, read};
use weirgate_advice::{LOOK_EVERY_SECONDS, Proposal, RunningPolicy, Tally, Watch, from_logs};
use weirgate_clock::{Clock, pause};
use weirgate_spanned_yaml::decode::FromText;
use weirgate_spanned_yaml::unit::Span;
use weirgate_wire::admin::{Class, Snapshot};

use crate::admin_api::{Access, AdminApi};
use crate::bar::bar;
use crate::exit;

/// Longest time for which a gateway is watched. For more, its access log is the better source.
const MAX_WATCH: Duration = Duration::from_secs(86_400);

/// Propose a policy from access logs or a running gateway: classes, guarantees and service times, with the reason for
/// each figure.
///
/// Reads the logs of nginx, Apache, HAProxy (`option httplog`) and Weirgate, plain or compressed with gzip, through
/// memory of constant size. The format is found out from the first lines. The policy is printed with a comment on each
/// figure: why it has its value, and what would break it. A summary is on standard error.
///
/// With --gateway, watches a running gateway and proposes figures for its own classes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Formats:
  common, combined, vhost_common, vhost_combined, haproxy, weirgate
  'combined %D'              one of these and further fields, as a server writes them after it
  '$host [$time_local] …'    the string after `log_format NAME` in nginx's configuration
  '%v %h %t \"%r\" %>s %D'     the string of `LogFormat` in Apache's configuration

Examples:
  weirgate recommend /var/log/nginx/access.log > policy.yaml
  weirgate recommend access.log access.log.*.gz --node 10.0.0.1:80 --node 10.0.0.2:80 --output policy.yaml
  weirgate recommend --format 'combined %D' /var/log/apache2/access.log
  ssh web1 cat /var/log/haproxy.log | weirgate recommend -
  weirgate recommend --gateway 127.0.0.1:9900 --for 10min

Environment:
  WEIRGATE_ADMIN_TOKEN  bearer token of the gateway's admin API, if there is no --token-file

Exit codes:
  0  a policy was proposed
  1  a log cannot be read or has no request, the gateway did not answer, or --output exists")]
pub(crate) struct Args {
    /// Access logs, in any order. `-` is standard input.
    #[arg(required_unless_present = "gateway", value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Format of the logs, by default found out from the first lines of each.
    #[arg(long, value_name = "FORMAT", value_parser = Format::parse)]
    format: Option<Format>,
    /// Address of a server, such as `10.0.0.1:80`. Repeatable. By default those that the log names.
    #[arg(long = "node", value_name = "ADDRESS")]
    nodes: Vec<String>,
    /// Admin API of a running gateway to watch: HOST:PORT, http://HOST:PORT, https://HOST:PORT, or the path of a Unix
    /// socket.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["logs", "format", "nodes"])]
    gateway: Option<String>,
    /// Time for which the gateway is watched, from 20 s to 24 h.
    #[arg(long = "for", value_name = "TIME", default_value = "1min", value_parser = watch_time, requires = "gateway")]
    time: Duration,
    #[command(flatten)]
    access: Access,
    /// File for the policy, which must not exist. Standard output by default.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Some(taken) = args.output.as_deref().filter(|path| path.exists()) {
        return exit::fail(&exists(taken));
    }
    let proposed = match &args.gateway {
        Some(address) => watched(address, args).map_err(|why| format!("recommend: {why}")),
        None => logged(args),
    };
    match proposed {
        Ok(proposal) => {
            let code = hand_over(&proposal.yaml(), proposal.table(), args.output.as_deref());
            proposal.notes().iter().for_each(|note| exit::say(&format!("note: {note}")));
            match args.gateway {
                // The gateway does not tell everything, such as conditions on headers, so the proposal lacks it.
                Some(_) => exit::say("read the comments, then copy the figures into your policy, check it, and reload"),
                None => next(args.output.as_deref()),
            }
            code
        }
        Err(why) => exit::fail(&why),
    }
}

/// Parses the time for which a gateway is watched.
fn watch_time(text: &str) -> Result<Duration, String> {
    let Span(time) = Span::from_text(text).map_err(|complaint| format!("{}; {}", complaint.what, complaint.hint))?;
    match time {
        time if time < Duration::from_secs(2 * LOOK_EVERY_SECONDS) => Err("write at least `20s`: two windows".into()),
        time if time > MAX_WATCH => Err("write at most `24h`; for more, give the access log".into()),
        time => Ok(time),
    }
}

/// A page of `/snapshot`.
#[derive(Deserialize)]
struct Page {
    engine: Snapshot,
    classes: Vec<Class>,
}

/// Watches a gateway.
fn watched(address: &str, args: &Args) -> Result<Proposal, String> {
    let api = AdminApi::new(address, &args.access)?;
    let policy: RunningPolicy = api.get("/policy")?;
    let windows = args.time.as_secs() / LOOK_EVERY_SECONDS;
    let bar = bar(windows, "watching {msg}  {pos} of {len} windows of 10 s");
    bar.set_message(address.to_owned());
    let (clock, mut watch) = (Clock::start(), Watch::default());
    for window in 0..=windows {
        let due = Duration::from_secs(window * LOOK_EVERY_SECONDS);
        pause(due.saturating_sub(clock.now()));
        let page: Page = api.get("/snapshot?limit=1000")?;
        watch.look(page.engine.now_seconds, &page.classes);
        bar.set_position(window);
    }
    bar.finish_and_clear();
    watch.propose(&policy, address)
}

/// Reads all logs.
fn logged(args: &Args) -> Result<Proposal, String> {
    let mut tally = Tally::default();
    let mut names = Vec::new();
    for path in &args.logs {
        let name = if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() };
        let ended = one(path, &name, args.format.as_ref(), &mut tally).map_err(|why| format!("{name}: {why}"))?;
        tally.tells(ended.format.tells());
        tell(&name, &ended);
        names.push(name);
    }
    let sources = match names.as_slice() {
        [one] => one.clone(),
        [first, ..] => format!("{first} and {} more", names.len() - 1),
        [] => String::new(),
    };
    from_logs(tally, &sources, &args.nodes)
}

/// Reads one log.
fn one(path: &Path, name: &str, format: Option<&Format>, tally: &mut Tally) -> Result<Ended, String> {
    let (from, size): (Box<dyn Read>, Option<u64>) = if path.as_os_str() == "-" {
        (Box::new(io::stdin().lock()), None)
    } else {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let about = file.metadata().map_err(|error| error.to_string())?;
        if about.is_dir() {
            return Err("this is a directory: name the files in it".into());
        }
        // A pipe has no size.
        (Box::new(file), Some(about.len()).filter(|size| *size > 0))
    };
    let template = match size {
        Some(_) => "{msg}  {percent} %  {bytes} of {total_bytes}, {eta} left",
        None => "{msg}  {bytes}, {elapsed}",
    };
    let bar = bar(size, template);
    bar.set_message(name.to_owned());
    let ended = read(from, format, |request| tally.add(request), |progress| bar.set_position(progress.bytes));
    bar.finish_and_clear();
    ended
}

/// Reports how many lines of a log were read, and in which format.
fn tell(name: &str, ended: &Ended) {
    let Ended { format, lines, malformed, first_malformed, broken } = ended;
    exit::say(&format!("{name}: {lines} lines of the format {}", format.name()));
    if let Some(first) = first_malformed {
        exit::say(&format!(
            "{name}: {malformed} of them are not of this format and do not count. The first is line {}: {}",
            first.number, first.text
        ));
    }
    if let Some(error) = broken {
        exit::say(&format!("{name}: breaks off after these lines: {error}"));
    }
    if let Some(note) = format.note() {
        exit::say(&format!("{name}: {note}"));
    }
}

/// Checks a policy and hands it over, with a summary and the warnings on standard error.
pub(crate) fn hand_over(yaml: &str, summary: &str, output: Option<&Path>) -> ExitCode {
    let shown = output.map_or("the proposal".to_owned(), |path| path.display().to_string());
    let loaded = match weirgate_config::load(&shown, yaml) {
        Ok(loaded) => loaded,
        Err(errors) => return exit::fail(&format!("the proposal is not sound, please report this:\n{errors}")),
    };
    let code = match output {
        None => exit::print(yaml),
        Some(path) => match create(path, yaml) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return exit::fail(&exists(path)),
            Err(error) => return exit::fail(&format!("{}: {error}", path.display())),
        },
    };
    if !summary.is_empty() {
        exit::tell(&format!("\n{summary}\n"));
    }
    loaded.warning_lines(&shown).iter().for_each(|line| exit::tell(&format!("{line}\n")));
    code
}

/// Tells the next step.
pub(crate) fn next(output: Option<&Path>) {
    let file = output.map_or("FILE".to_owned(), |path| path.display().to_string());
    exit::say(&format!("read the comments, then: weirgate check {file} && weirgate run {file}"));
}

/// Writes a new file.
fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// Returns the message about a file that is there already.
pub(crate) fn exists(path: &Path) -> String {
    format!("{} exists and is not overwritten: name another file, or move it away", path.display())
}
