//! `weirgate probe`: measures the cost of each page of a server and writes it as the page table of a
//! policy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::signal::unix::{SignalKind, signal};
use weirgate_config::{HostPattern, Match, Site, agent_name};
use weirgate_files::{ORDINARY, replace_durably};
use weirgate_http_client::Address;
use weirgate_probe::frontier::Bounds;
use weirgate_probe::monitor::Monitor;
use weirgate_probe::table::Table;
use weirgate_probe::{Effort, Options, Probe, Progress, State, Target, Url, state_beside};
use weirgate_tls::trust::is_local;
use weirgate_tls::{LiveTrust, Role, Wanted};

use crate::bar::draw_as;
use crate::exit::{self, tell};

/// Time limit of a report if the policy has none: the default of policies.
const PATIENCE: Duration = Duration::from_secs(2);

/// Path of an agent's report if the policy has none.
const REPORT_PATH: &str = "/weirgate/report";

/// Measure the cost of each page of a server in CPU, disk and bandwidth, and the server's capacity of each.
///
/// Visits the site from URL on and requests every page many times, one request at a time and several at
/// once. It asks the node's agent for the resource use before and after. Then it brings the server to its
/// limits for some seconds, resource by resource. The result is the page table for `discipline: mqos`.
/// Probe a node that serves no other traffic meanwhile.
///
/// Only nodes in the policy are probed, and only with GET. robots.txt is respected (as `weirgate-probe`). A
/// stopped probe leaves FILE.state, and `--resume` continues from it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate agent --port 80 --usage-of system.slice/apache2.service    # on the node
  weirgate probe http://10.0.0.1/ --policy policy.yaml --dry-run      # only crawls, and lists the pages to probe
  weirgate probe http://10.0.0.1/ --policy policy.yaml --output pages.yaml
  weirgate probe http://shop.test/ --policy policy.yaml --node 10.0.0.1:80 --agent 10.0.0.1:9902

Exit codes:
  0  the page table is written (with --dry-run: there is something to probe)
  1  the probe failed or was stopped: standard error says why and how to fix it
  2  the command line is wrong")]
pub(crate) struct Args {
    /// The home page, such as http://10.0.0.1:8080/. Plain http only.
    url: String,
    /// The policy file (YAML) that names the node.
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// The node's address in the policy, if URL has the name of a site. A class of the policy must match
    /// that name as `host`.
    #[arg(long, value_name = "HOST:PORT")]
    node: Option<String>,
    /// Address of the node's agent. By default from the upstream's `collector`.
    #[arg(long, value_name = "HOST:PORT")]
    agent: Option<String>,
    /// Trust folder of an operator or monitor, as `weirgate pki issue operator NAME` makes it. Required for an agent on
    /// another machine.
    #[arg(long, value_name = "DIR")]
    trust: Option<PathBuf>,
    /// File for the page table.
    #[arg(short, long, value_name = "FILE", default_value = "pages.yaml")]
    output: PathBuf,
    /// Overwrite FILE and keep the old one as FILE.old. Without --resume, discard a stopped probe.
    #[arg(long)]
    force: bool,
    /// Continue the stopped probe.
    #[arg(long)]
    resume: bool,
    /// Only crawl, each page once, and list the pages that would be probed. Nothing is written.
    #[arg(long, conflicts_with_all = ["force", "resume"])]
    dry_run: bool,
    /// Maximum number of links from the home page to a page.
    #[arg(long, value_name = "N", default_value_t = 8)]
    max_depth: u32,
    /// Maximum number of pages. Of pages that look alike, four are visited.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_pages: u32,
    /// Minutes for the whole probe. At the end of the time, the table has the pages measured so far.
    #[arg(long, value_name = "MINUTES", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1440))]
    max_time: u32,
    /// Requests for a page, at each concurrency.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(8..=10_000))]
    requests: u32,
    /// Seconds for a page, at each concurrency.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    page_time: u32,
    /// Maximum number of concurrent requests for a page. The linear verification goes by powers of two.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    concurrency: u32,
    /// Maximum number of concurrent requests when the server is saturated.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(4..=64))]
    saturate: u32,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => exit::fail(&format!("probe: {why}")),
    }
}

fn start(args: &Args) -> Result<(), String> {
    let home = home(&args.url)?;
    let file = args.policy.display().to_string();
    let loaded = weirgate_config::load_file(&args.policy).map_err(|errors| {
        tell(&errors.to_string());
        format!("{file} is not sound: nothing is probed")
    })?;
    let node = permitted(&home, args.node.as_deref(), &loaded.site).map_err(|why| format!("{file}: {why}"))?;
    let monitor = monitor(args, node, &loaded.site).map_err(|why| format!("{file}: {why}"))?;
    let address = loaded.site.nodes[node].address.clone();
    let keeps = state_beside(&args.output);
    let state = match args.dry_run {
        true => State::new(home.as_str(), &address),
        false => state(args, &keeps, &home, &address)?,
    };
    let host = home.authority().to_owned();
    let options = Options {
        target: Target { address, host },
        home,
        monitor,
        bounds: Bounds { depth: args.max_depth, pages: args.max_pages as usize },
        effort: effort(args),
        saturate: args.saturate,
        time: Duration::from_secs(60 * u64::from(args.max_time)),
        state: (!args.dry_run).then(|| keeps.clone()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let shown = Shown::new();
    let show = |progress: Progress<'_>| shown.show(progress);
    let probe = Probe::new(options, state, &show);
    let done = runtime.block_on(async {
        let hear = |kind| signal(kind).map_err(|error| format!("cannot follow signals: {error}"));
        let (mut interrupt, mut terminate) = (hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?);
        let stop = async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        };
        tokio::select! {
            done = work(probe, args) => done,
            () = stop => Err("stopped".to_owned()),
        }
    });
    shown.bar.finish_and_clear();
    // Results are kept from the first page on.
    let goes_on = |why: String| match !args.dry_run && keeps.exists() {
        true => format!("{why}; --resume continues with the results in {}", keeps.display()),
        false => why,
    };
    if let Some(table) = done.map_err(goes_on)? {
        write(args, &table, &keeps)?;
    }
    Ok(())
}

fn effort(args: &Args) -> Effort {
    Effort { at_once: args.concurrency, requests: args.requests, time: Duration::from_secs(args.page_time.into()) }
}

/// Runs the whole probe, or only its crawl.
async fn work(mut probe: Probe<'_>, args: &Args) -> Result<Option<Table>, String> {
    if !args.dry_run {
        return probe.run().await.map(Some);
    }
    let (effort, known) = (effort(args), probe.crawl().await?);
    let pages = known.pages.len();
    for path in &known.pages {
        exit::write(&format!("{path}\n")).map_err(|error| error.to_string())?;
    }
    for (path, why) in &known.left_out {
        tell(&format!("weirgate: probe: left out: {path}: {why}\n"));
    }
    tell(&format!(
        "weirgate: probe: {pages} pages. Each would be requested at most {} times in about {} s, with up to {} \
         requests at once. Up to {} requests at once would saturate the server for half a minute\n",
        effort.max(),
        effort.longest().as_secs(),
        args.concurrency,
        args.saturate
    ));
    Ok(None)
}

fn write(args: &Args, table: &Table, state: &Path) -> Result<(), String> {
    let output = args.output.display();
    if args.output.exists() {
        // The file may have been written by hand meanwhile.
        if !args.force {
            return Err(format!("{output} was created during the probe; --resume --force overwrites it"));
        }
        let mut old = args.output.clone().into_os_string();
        old.push(".old");
        fs::copy(&args.output, &old).map_err(|error| format!("{}: {error}", Path::new(&old).display()))?;
    }
    let written = replace_durably(&args.output, ORDINARY, table.to_yaml().as_bytes());
    written.map_err(|error| format!("{output}: {error}"))?;
    // The state is used up. If it stayed, it would stop the next probe.
    if let Err(error) = fs::remove_file(state) {
        tell(&format!("weirgate: probe: {}: {error}\n", state.display()));
    }
    let left = match table.left_out.len() {
        0 => String::new(),
        n => format!(", {n} pages left out with their reasons"),
    };
    tell(&format!("weirgate: probe: wrote {output}: {} routes{left}\n", table.routes.len()));
    Ok(())
}

/// Returns the URL at which the crawl begins.
fn home(url: &str) -> Result<Url, String> {
    let mut home =
        Url::parse(url).map_err(|error| format!("{url:?} is not a URL ({error}); write http://HOST:PORT/"))?;
    match home.scheme() {
        "http" => {}
        "https" => {
            return Err(format!(
                "{url:?}: the probe and the gateway reach nodes over plain http; write the http address"
            ));
        }
        other => return Err(format!("{url:?}: the scheme {other} is not supported; write http://HOST:PORT/")),
    }
    if !home.username().is_empty() || home.password().is_some() {
        return Err(format!("{url:?} has a user, and logging in is not supported"));
    }
    home.set_fragment(None);
    Ok(home)
}

/// Returns the node of the policy that is to be probed.
///
/// # Errors
/// Returns an error with a hint if the policy does not name the node.
fn permitted(home: &Url, node: Option<&str>, site: &Site) -> Result<usize, String> {
    let host = home.host_str().unwrap_or_default();
    let address = format!("{host}:{}", home.port_or_known_default().unwrap_or(80));
    let sought = node.unwrap_or(&address);
    let found = site.nodes.iter().position(|node| node.address.eq_ignore_ascii_case(sought));
    let Some(found) = found else {
        let add = format!("add it as `upstreams: {{ NAME: {{ nodes: [\"{sought}\"] }} }}` if it is yours");
        return Err(format!("no upstream has the node {sought}, and only the policy's own nodes are probed; {add}"));
    };
    // A named site must be one of the policy's sites as well.
    let named = |name: &str| site.rules.iter().any(|rule| names(&rule.matches, name));
    let is_node = site.nodes.iter().any(|node| node.address.eq_ignore_ascii_case(&address));
    if is_node || named(&host.to_ascii_lowercase()) {
        return Ok(found);
    }
    Err(format!(
        "no class matches the host {host}; add one with `match: {{ host: {host} }}`, or write the URL with the node's \
         address"
    ))
}

fn names(condition: &Match, host: &str) -> bool {
    match condition {
        Match::All(inner) | Match::Either(inner) => inner.iter().any(|condition| names(condition, host)),
        Match::Host(HostPattern::Exact(name)) => name == host,
        Match::Host(HostPattern::Below(suffix)) => host.ends_with(suffix.as_str()),
        _ => false,
    }
}

/// Returns the agent of that node.
fn monitor(args: &Args, node: usize, site: &Site) -> Result<Monitor, String> {
    let address = &site.nodes[node].address;
    // A machine may be in several pools. Any of them may have the collector.
    let pools = site.nodes.iter().zip(&site.policy.nodes).filter(|(known, _)| known.address == *address);
    let collector = pools.filter_map(|(_, node)| site.pools.get(node.pool)?.collector.as_ref()).next();
    let reports = match (&args.agent, collector) {
        (Some(agent), _) => agent.clone(),
        (None, Some(collector)) => collector.at(address),
        (None, None) => {
            return Err(format!(
                "the upstream of {address} has no `collector`, which reports the use of a request; start `weirgate \
                 agent` on the server's machine, and add `collector: {{}}` to the upstream or name the agent with \
                 --agent"
            ));
        }
    };
    let trust = args.trust.as_deref().map(|folder| LiveTrust::load(folder, &[Role::Operator, Role::Monitor], None));
    let address = match trust.transpose()? {
        Some(trust) => {
            let name = agent_name(&site.policy.nodes[node].name, address, &reports).to_owned();
            Address::Trusted(reports, Arc::new(trust), Wanted { role: Role::Agent, name: Some(name) })
        }
        None if is_local(&reports) => Address::Tcp(reports),
        None => {
            return Err(format!(
                "the agent at {reports} could be anyone; name a trust folder with --trust, as `weirgate pki issue \
                 operator NAME` makes it"
            ));
        }
    };
    Ok(Monitor {
        address,
        path: collector.map_or(REPORT_PATH, |collector| collector.path.as_str()).to_owned(),
        timeout: collector.map_or(PATIENCE, |collector| collector.timeout),
    })
}

/// Returns the state from which the probe continues.
fn state(args: &Args, keeps: &Path, home: &Url, node: &str) -> Result<State, String> {
    let (output, beside) = (args.output.display(), keeps.display());
    match (args.resume, keeps.exists()) {
        (true, true) if args.output.exists() && !args.force => {
            Err(format!("{output} exists already; --resume --force continues and overwrites it at the end"))
        }
        (true, true) => State::load(keeps, home.as_str(), node),
        (true, false) => Err(format!("there is no {beside} to resume from; leave out --resume")),
        (false, true) if !args.force => {
            Err(format!("{beside} is from a probe that was stopped; --resume continues it, --force starts again"))
        }
        _ if args.output.exists() && !args.force => {
            Err(format!("{output} exists already; overwrite it with --force, or name another with --output"))
        }
        _ => Ok(State::new(home.as_str(), node)),
    }
}

/// A bar on a terminal, lines elsewhere.
struct Shown {
    bar: ProgressBar,
}

impl Shown {
    fn new() -> Shown {
        Shown { bar: ProgressBar::new_spinner() }
    }

    fn show(&self, progress: Progress<'_>) {
        match progress {
            Progress::Part(name, steps) => {
                self.line(name);
                let template = match steps {
                    Some(_) => "{bar:24} {pos}/{len} {elapsed} {wide_msg}",
                    None => "{spinner} {pos} {elapsed} {wide_msg}",
                };
                self.bar.reset();
                self.bar.set_length(steps.unwrap_or(0));
                draw_as(&self.bar, template);
            }
            Progress::Step(what) => self.bar.set_message(what),
            Progress::Done => self.bar.inc(1),
            Progress::Line(line) => self.line(&line),
        }
    }

    fn line(&self, line: &str) {
        self.bar.suspend(|| tell(&format!("weirgate: probe: {line}\n")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(upstream: &str) -> Site {
        let text = format!(
            "listen: 127.0.0.1:0\nadmin: off\nupstreams:\n  web: {upstream}\nclasses:\n  - {{ name: a, match: {{ any: [{{ host: shop.test }}, {{ host: \"*.b.test\" }}] }} }}\n  - {{ name: other }}\n"
        );
        weirgate_config::load("policy.yaml", &text).expect("sound").site
    }

    #[test]
    fn only_nodes_of_the_policy_are_probed() {
        let site = site("{ nodes: [127.0.0.1:9001, \"web1.test:80\"] }");
        let of = |url: &str, node: Option<&str>| permitted(&home(url).expect("a URL"), node, &site);
        assert_eq!(of("http://127.0.0.1:9001/x", None), Ok(0));
        assert_eq!(of("http://WEB1.test/", None), Ok(1));
        assert_eq!(of("http://shop.test/", Some("127.0.0.1:9001")), Ok(0));
        assert_eq!(of("http://a.b.test:8080/", Some("web1.test:80")), Ok(1));
        for (url, node, problem) in [
            ("http://127.0.0.1/", None, "no upstream has the node 127.0.0.1:80"),
            ("http://example.org/", None, "only the policy's own nodes are probed; add it as `upstreams:"),
            ("http://shop.test/", None, "no upstream has the node shop.test:80"),
            ("http://shop.test/", Some("10.0.0.9:80"), "no upstream has the node 10.0.0.9:80"),
            ("http://example.org/", Some("127.0.0.1:9001"), "no class matches the host example.org; add one with"),
        ] {
            let error = of(url, node).expect_err(url);
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn plain_http_is_probed() {
        for (url, problem) in [
            ("https://a.test/", "over plain http"),
            ("ftp://a.test/", "the scheme ftp is not supported"),
            ("a.test", "is not a URL"),
            ("http://", "is not a URL"),
            ("http://u:p@a.test/", "has a user"),
        ] {
            let error = home(url).expect_err(url);
            assert!(error.contains(problem), "{error}");
        }
        assert_eq!(home("http://a.test/x?y#z").map(|url| url.to_string()), Ok("http://a.test/x?y".to_owned()));
    }
}
