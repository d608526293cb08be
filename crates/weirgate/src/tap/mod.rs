//! `weirgate tap`: the requests of a running gateway as they end, with their life through the stages.
//!
//! It reads `/tap` of the admin API. One response lasts for less than a minute, so it asks again and names itself. The
//! gateway keeps its lines meanwhile.

mod text;

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use weirgate_clock::Clock;
use weirgate_gateway::admin::VIEWER;
use weirgate_gateway::tap::{Filter, Wanted};
use weirgate_wire::access_log::LoggedRequest;

use crate::admin_api::{Access, AdminApi};
use crate::args::Format;
use crate::exit;

/// Pause before another try, if the one before was short.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum length of a line, in bytes: all fields of an access log's line with every character escaped.
const MAX_LINE: usize = 128 << 10;

/// Exit code for a wrong command line, as clap has it.
const USAGE: u8 = 2;

/// Show the requests of a running gateway as they end: where their time went, and why they were refused.
///
/// The gateway compares each finished request with the options, so that other requests cost it almost nothing. A
/// request is shown if it matches every option that is given. In patterns `*` stands for any text. No request waits for
/// this command: if it does not read fast enough, lines are lost, and standard error says how many.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Environment:
  WEIRGATE_ADMIN_TOKEN  bearer token of the admin API, if there is no --token-file

Examples:
  weirgate tap --ending shed,failed
  weirgate tap --class silver --slower-than 200ms
  weirgate tap --path '/api/*' --status 5xx --client 192.0.2.0/24
  weirgate tap --sample 1% --count 1000 --format json | jq .total_ms
  weirgate tap --gateway 10.0.0.7:9900 --trust ~/.weirgate

Exit codes:
  0  --count requests were shown, or the reader of standard output has left
  1  the gateway did not answer
  2  an option is wrong")]
pub(crate) struct Args {
    /// Admin API: HOST:PORT, http://HOST:PORT, https://HOST:PORT, or the path of a Unix socket.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9900")]
    gateway: String,
    #[command(flatten)]
    access: Access,
    /// Pattern of the name of the class or template.
    #[arg(long, value_name = "PATTERN")]
    class: Option<String>,
    /// Pattern of the name of the node that answered or failed last.
    #[arg(long, value_name = "PATTERN")]
    node: Option<String>,
    /// Address or network of the client, or `unix`.
    #[arg(long, value_name = "NETWORK")]
    client: Option<String>,
    /// Pattern of the path without its query, such as `/api/*`.
    #[arg(long, value_name = "PATTERN")]
    path: Option<String>,
    /// Status: `503`, `5xx`, `500-504`, or several of these with commas.
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// How it ended: `served`, `shed`, `failed`, `refused`, `left`, `tunnelled`, `redirected`, `challenge`, or
    /// `would_shed` for requests of observed classes. Several with commas.
    #[arg(long, value_name = "WORDS")]
    ending: Option<String>,
    /// Requests that took at least this time, such as `200ms`.
    #[arg(long, value_name = "TIME")]
    slower_than: Option<String>,
    /// Share of the matching requests to show, such as `1%`.
    #[arg(long, value_name = "SHARE")]
    sample: Option<String>,
    /// End after this number of requests.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// `text` for people, `json` for the lines of the access log.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let wanted = wanted(args);
    if let Err(why) = Filter::new(&wanted) {
        let (field, rest) = why.split_once(": ").unwrap_or((&why, ""));
        exit::say(&format!("tap: --{}: {rest}", field.replace('_', "-")));
        return ExitCode::from(USAGE);
    }
    match AdminApi::new(&args.gateway, &args.access).and_then(|api| follow(&api, &wanted, args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => exit::fail(&format!("tap: {why}")),
    }
}

fn wanted(args: &Args) -> Wanted {
    Wanted {
        class: args.class.clone(),
        node: args.node.clone(),
        client: args.client.clone(),
        path: args.path.clone(),
        status: args.status.clone(),
        ending: args.ending.clone(),
        slower_than: args.slower_than.clone(),
        sample: args.sample.clone(),
    }
}

/// Shows requests until there are enough, the reader has left, or the gateway no longer answers.
fn follow(api: &AdminApi, wanted: &Wanted, args: &Args) -> Result<(), String> {
    let first = format!("/tap?{}", query(wanted));
    let mut viewer: Option<String> = None;
    let mut shown = Shown { format: args.format, left: args.count, ended: None };
    let clock = Clock::start();
    loop {
        let path = viewer.as_ref().map_or_else(|| first.clone(), |id| format!("/tap?viewer={id}"));
        let (mut lines, mut accepted, began) = (Lines::default(), None, clock.now());
        let head = |id: Option<&str>| {
            accepted = Some(id.map(str::to_owned));
            if viewer.is_none() && args.format == Format::Text {
                exit::say("requests are shown as they end. Ctrl-C stops");
            }
        };
        let answer = api.pieces(&path, VIEWER, head, |piece| shown.piece(lines.add(piece)));
        if let Some(ended) = shown.ended.take() {
            return ended.map_err(|error| format!("cannot write to standard output: {error}"));
        }
        match (answer, accepted) {
            (Ok(true), Some(id)) => viewer = id,
            (Err(why), Some(id)) => {
                exit::say(&format!("tap: {why}: connecting again"));
                viewer = id;
            }
            (Ok(false), None) if viewer.take().is_some() => {
                exit::say("tap: requests may be missing: the gateway has restarted, or was out of reach for too long");
            }
            (Ok(_), _) => return Err("this gateway has no /tap: it is of an older version".to_owned()),
            (Err(why), None) => return Err(why),
        }
        if clock.now() - began < PAUSE {
            weirgate_clock::pause(PAUSE);
        }
    }
}

/// Returns the options as a query.
fn query(wanted: &Wanted) -> String {
    let fields = serde_json::to_value(wanted).unwrap_or_default();
    let pairs = fields.as_object().into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(name, value)| format!("{name}={}", encoded(value.as_str().unwrap_or_default()))).collect();
    pairs.join("&")
}

/// Encodes a value of a query (RFC 3986, Sec. 2.1).
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The lines of one response, as far as they have come.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Adds a piece and returns the lines that are whole now.
    fn add(&mut self, piece: &[u8]) -> Vec<u8> {
        self.0.extend_from_slice(piece);
        let Some(end) = self.0.iter().rposition(|byte| *byte == b'\n') else {
            // No gateway sends such a line. Memory stays bounded with any other program.
            if self.0.len() > MAX_LINE {
                self.0.clear();
            }
            return Vec::new();
        };
        let rest = self.0.split_off(end + 1);
        std::mem::replace(&mut self.0, rest)
    }
}

/// A line about lines that were lost.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lost {
    lost: u64,
}

/// The requests shown so far.
struct Shown {
    format: Format,
    /// Number of requests that are still to be shown. `None` is without end.
    left: Option<u64>,
    /// Set at the end.
    ended: Option<io::Result<()>>,
}

impl Shown {
    /// Shows whole lines.
    fn piece(&mut self, lines: Vec<u8>) -> ControlFlow<()> {
        let mut out = String::new();
        for line in String::from_utf8_lossy(&lines).lines() {
            if self.left == Some(0) {
                break;
            }
            if let Ok(Lost { lost }) = serde_json::from_str(line) {
                exit::say(&format!(
                    "tap: {lost} more requests matched, too many to show. Narrow the options, or add --sample 1%"
                ));
                continue;
            }
            match (self.format, serde_json::from_str::<LoggedRequest<'_>>(line)) {
                (Format::Text, Ok(request)) => out += &text::line(&request),
                _ => out += line,
            }
            out.push('\n');
            self.left = self.left.map(|left| left - 1);
        }
        let mut to = io::stdout().lock();
        let written = to.write_all(out.as_bytes()).and_then(|()| to.flush());
        self.ended = match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Some(Ok(())),
            Err(error) => Some(Err(error)),
            Ok(()) => (self.left == Some(0)).then_some(Ok(())),
        };
        if self.ended.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_a_query_that_says_the_same() {
        let wanted = Wanted {
            path: Some("/a b/*&x=ü%".into()),
            slower_than: Some("200ms".into()),
            status: Some("5xx,200".into()),
            ..Wanted::default()
        };
        assert_eq!(query(&wanted), "path=%2Fa%20b%2F%2A%26x%3D%C3%BC%25&slower_than=200ms&status=5xx%2C200");
        assert_eq!(query(&Wanted::default()), "");
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        let text = "{\"a\":1}\n{\"b\":\"ü\"}\n{}\n";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let whole: Vec<u8> = text.as_bytes().chunks(size).flat_map(|piece| lines.add(piece)).collect();
            assert_eq!((whole, lines.0.len()), (text.as_bytes().to_vec(), 0));
        }
        let mut lines = Lines::default();
        for _ in 0..1000 {
            assert!(lines.add(&[b'x'; 1000]).is_empty());
            assert!(lines.0.len() <= MAX_LINE + 1000);
        }
    }
}
