//! `weirgate init`: a first policy from a few answers, or from the configuration of nginx or HAProxy.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weirgate_advice::{Answers, MAX_CONFIG_BYTES, Source, import};

use crate::exit;
use crate::recommend::{exists, hand_over, next};

/// Wrong answers to one question after which a person probably wants to leave.
const MAX_TRIES: usize = 5;

/// Longest line of an answer in bytes.
const MAX_ANSWER: u64 = 4096;

/// Make a first policy: answer at most five questions, or import the configuration of nginx or HAProxy.
///
/// The questions are on standard error, and the policy goes to standard output or to --output. An empty answer is the
/// default in brackets. Answers may come from a pipe, one a line. What an import cannot carry over is listed at the end
/// of the policy as comments, with file and line.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate init --output policy.yaml
  weirgate init --yes
  weirgate init --from /etc/nginx/nginx.conf > policy.yaml
  weirgate init --from /etc/haproxy/haproxy.cfg > policy.yaml
  printf '0.0.0.0:80\\n10.0.0.1:80,10.0.0.2:80\\nshop.test\\n' | weirgate init > policy.yaml

Exit codes:
  0  a policy was made
  1  an answer or the configuration cannot be used, or --output exists")]
pub(crate) struct Args {
    /// Configuration of nginx or HAProxy. Files that it includes are read, too.
    #[arg(long, value_name = "FILE", conflicts_with = "yes")]
    from: Option<PathBuf>,
    /// Take the default of every question.
    #[arg(short, long)]
    yes: bool,
    /// File for the policy, which must not exist. Standard output by default.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let output = args.output.as_deref();
    if let Some(taken) = output.filter(|path| path.exists()) {
        return exit::fail(&exists(taken));
    }
    let made = match &args.from {
        Some(file) => imported(file),
        None => answered(args.yes).map(|yaml| (yaml, String::new())),
    };
    match made {
        Ok((yaml, summary)) => {
            let code = hand_over(&yaml, &summary, output);
            next(output);
            code
        }
        Err(why) => exit::fail(&format!("init: {why}")),
    }
}

/// Asks the questions.
fn answered(defaults: bool) -> Result<String, String> {
    let mut answers = Answers::default();
    let terminal = io::stdin().is_terminal();
    let mut tries = 0;
    while let Some(question) = answers.question().filter(|_| !defaults) {
        exit::tell(&format!("{} [{}]: ", question.text, question.default));
        let mut line = String::new();
        let mut limited = io::stdin().lock().take(MAX_ANSWER);
        limited.read_line(&mut line).map_err(|error| format!("cannot read the answer: {error}"))?;
        if !terminal {
            exit::tell(&format!("{}\n", line.trim()));
        }
        match answers.answer(&line) {
            Ok(()) => tries = 0,
            Err(why) if terminal && tries < MAX_TRIES => {
                tries += 1;
                exit::tell(&format!("{why}\n"));
            }
            Err(why) => return Err(format!("{}: {why}", question.text)),
        }
    }
    answers.yaml()
}

/// Imports a configuration. Returns the policy and a summary.
fn imported(file: &Path) -> Result<(String, String), String> {
    let source = read(file)?;
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
    let imported = import(&source, &mut |pattern| included(&folder, pattern))?;
    let lost = match imported.lost {
        0 => "Nothing else in it needs to be carried over.".to_owned(),
        lost => format!("Not carried over, and listed at its end: {lost} lines."),
    };
    let summary = format!(
        "Carried over from {}: {} upstreams, and classes for {} kinds of requests. {lost}",
        imported.from, imported.upstreams, imported.classes
    );
    Ok((imported.yaml(), summary))
}

/// Reads a file of a configuration.
fn read(path: &Path) -> Result<Source, String> {
    let name = path.display().to_string();
    let failed = |error: io::Error| format!("{name}: {error}");
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_CONFIG_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Source { name, text: String::from_utf8_lossy(&bytes).into_owned() })
}

/// Returns the files that a pattern of nginx's `include` names. A `*` may stand in the name of the file.
fn included(folder: &Path, pattern: &str) -> Result<Vec<Source>, String> {
    let path = folder.join(pattern);
    let Some((before, after)) = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('*'))
    else {
        return Ok(vec![read(&path)?]);
    };
    if after.contains('*') {
        return Err("a pattern with more than one `*`".into());
    }
    let parent = path.parent().unwrap_or(Path::new("."));
    let fits =
        |name: &str| name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after);
    let entries = std::fs::read_dir(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        // As in nginx, hidden files do not match.
        .filter(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| fits(name) && !name.starts_with('.'))
        })
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found.iter().map(|path| read(path)).collect()
}
