//! `weirgate recommend`: a first policy from access logs, with the reason for each figure.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use weirgate_advice::log::{Ended, Format, read};
use weirgate_advice::{Proposal, Tally, from_logs};

use crate::exit;

/// Propose a policy from access logs: classes, guarantees and service times, with the reason for each figure.
///
/// Reads the logs of nginx, Apache, HAProxy (`option httplog`) and Weirgate, plain or compressed with gzip, through
/// memory of constant size. The format is found out from the first lines. The policy is printed with a comment on each
/// figure: why it has its value, and what would break it. A summary is on standard error.
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

Exit codes:
  0  a policy was proposed
  1  a log cannot be read or has no request, or --output exists")]
pub(crate) struct Args {
    /// Access logs, in any order. `-` is standard input.
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Format of the logs, by default found out from the first lines of each.
    #[arg(long, value_name = "FORMAT", value_parser = Format::parse)]
    format: Option<Format>,
    /// Address of a server, such as `10.0.0.1:80`. Repeatable. By default those that the log names.
    #[arg(long = "node", value_name = "ADDRESS")]
    nodes: Vec<String>,
    /// File for the policy, which must not exist. Standard output by default.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Some(taken) = args.output.as_deref().filter(|path| path.exists()) {
        return exit::fail(&exists(taken));
    }
    match proposal(args) {
        Ok(proposal) => hand_over(&proposal, args.output.as_deref()),
        Err(why) => exit::fail(&why),
    }
}

/// Reads all logs.
fn proposal(args: &Args) -> Result<Proposal, String> {
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
    let bar = match size {
        Some(size) => ProgressBar::new(size),
        None => ProgressBar::new_spinner(),
    };
    let template = match size {
        Some(_) => "{msg}  {percent} %  {bytes} of {total_bytes}, {eta} left",
        None => "{msg}  {bytes}, {elapsed}",
    };
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(name.to_owned());
    let ended = read(from, format, |request| tally.add(request), |progress| bar.set_position(progress.bytes));
    bar.finish_and_clear();
    ended
}

/// Tells what was read of a log.
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

/// Checks the policy and hands it over, with the summary on standard error.
fn hand_over(proposal: &Proposal, output: Option<&Path>) -> ExitCode {
    let yaml = proposal.yaml();
    let shown = output.map_or("the proposal".to_owned(), |path| path.display().to_string());
    let loaded = match weirgate_config::load(&shown, &yaml) {
        Ok(loaded) => loaded,
        Err(errors) => return exit::fail(&format!("the proposal is not sound, please report this:\n{errors}")),
    };
    let code = match output {
        None => exit::print(&yaml),
        Some(path) => match create(path, &yaml) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return exit::fail(&exists(path)),
            Err(error) => return exit::fail(&format!("{}: {error}", path.display())),
        },
    };
    exit::tell(&format!("\n{}\n", proposal.table()));
    proposal.notes().iter().for_each(|note| exit::say(&format!("note: {note}")));
    loaded.warning_lines(&shown).iter().for_each(|line| exit::tell(&format!("{line}\n")));
    let file = output.map_or("FILE".to_owned(), |path| path.display().to_string());
    exit::say(&format!("read the comments, then: weirgate check {file} && weirgate run {file}"));
    code
}

/// Writes a new file.
fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

fn exists(path: &Path) -> String {
    format!("{} exists and is not overwritten: name another file, or move it away", path.display())
}
