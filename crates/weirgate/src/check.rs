//! `weirgate check`: every error of every file at once, and whether the guarantees fit the nodes.

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use weirgate_config::{Errors, Loaded, MAX_BYTES, Problem, load_bytes};
use weirgate_engine::{Class, Mode, Policy};
use weirgate_experiment::{is_experiment, load_experiment};
use weirgate_spanned_yaml::errors::quoted;
use weirgate_spanned_yaml::unit::number_text;

use crate::args::{Check, Format};
use crate::exit;

/// The result for one file.
struct Checked {
    file: String,
    experiment: bool,
    /// For an experiment, the site of its policy and the warnings of the whole file.
    result: Result<Loaded, Errors>,
}

pub(crate) fn run(args: &Check) -> ExitCode {
    let checked: Vec<Checked> = args.files.iter().map(|file| check(file)).collect();
    let printed = match args.format {
        Format::Text => {
            checked.iter().for_each(explain);
            ExitCode::SUCCESS
        }
        Format::Json => exit::print_json(&checked.iter().map(Report::new).collect::<Vec<Report>>()),
    };
    if checked.iter().all(|c| c.result.is_ok()) { printed } else { ExitCode::from(exit::NO) }
}

fn check(path: &Path) -> Checked {
    let (file, read) = if path.as_os_str() == "-" {
        ("<stdin>".to_owned(), bounded(std::io::stdin()))
    } else {
        (path.display().to_string(), std::fs::File::open(path).and_then(bounded))
    };
    let mut experiment = false;
    let result = match read {
        Ok(bytes) => match str::from_utf8(&bytes).ok().filter(|text| is_experiment(text)) {
            Some(text) => {
                experiment = true;
                // Standard input has no folder: paths in it are relative to the current one.
                let folder = path.parent().unwrap_or(Path::new(""));
                let loaded = load_experiment(&file, text, folder, &[]);
                loaded.map(|loaded| Loaded { site: loaded.experiment.site, warnings: loaded.warnings })
            }
            None => load_bytes(&file, &bytes),
        },
        Err(error) => {
            let what = format!("cannot be read: {error}");
            let problem = Problem { source: None, position: None, path: String::new(), what, hint: String::new() };
            Err(Errors { file: file.clone(), problems: vec![problem], more: 0 })
        }
    };
    Checked { file, experiment, result }
}

/// Reads a policy. From an input that is too long for one, reads one byte more than allowed.
pub(crate) fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Prints one file for people: errors and warnings in the form that editors know, then the result.
fn explain(checked: &Checked) {
    let file = &checked.file;
    match &checked.result {
        Ok(loaded) => {
            loaded.warning_lines(file).iter().for_each(|line| exit::tell(&format!("{line}\n")));
            let feasibility = weirgate_config::feasibility(&loaded.site).to_string();
            feasibility.lines().for_each(|line| exit::tell(&format!("{file}: {line}\n")));
            let observed = observed(loaded);
            match observed.first() {
                Some(first) if observed.len() > 1 && is_alike(loaded, &observed) => {
                    exit::tell(&format!("{file}: {}\n", first.text("every class")));
                }
                _ => observed.iter().for_each(|one| exit::tell(&format!("{file}: {}\n", one.text(&one.subject())))),
            }
            if !observed.is_empty() && !is_declared(&loaded.site.policy) {
                let hint = "counts of what would be refused are closest if every node states its `capacity` and every \
                            class its `service_time`";
                exit::tell(&format!("{file}: {hint}\n"));
            }
            let warnings = match loaded.warnings.len() {
                0 => String::new(),
                1 => ", 1 warning".to_owned(),
                n => format!(", {n} warnings"),
            };
            let kind = if checked.experiment { " experiment" } else { "" };
            exit::tell(&format!("{file}: sound{kind}{warnings}\n"));
        }
        Err(errors) => {
            let found = errors.problems.len() + errors.more;
            exit::tell(&format!("{errors}{file}: {found} error{}\n", if found == 1 { "" } else { "s" }));
        }
    }
}

/// Whether every node and every class states the figures on which the counts of observed classes rest.
fn is_declared(policy: &Policy) -> bool {
    let times = policy.all_classes();
    policy.nodes.iter().all(|node| node.capacity.is_some()) && times.into_iter().all(|c| c.service_time.is_some())
}

/// A class that is not enforced for all its sources.
#[derive(Serialize)]
struct Observed<'a> {
    class: &'a str,
    enforced_share: f64,
}

impl Observed<'_> {
    fn subject(&self) -> String {
        format!("class {}", quoted(self.class))
    }

    fn text(&self, subject: &str) -> String {
        match self.enforced_share {
            0.0 => format!("{subject} is only observed: none of its requests is refused"),
            share => format!(
                "{subject} is enforced for {} % of its sources, and observed for the others",
                number_text(share * 100.0)
            ),
        }
    }
}

/// Whether every class has the same mode.
fn is_alike(loaded: &Loaded, observed: &[Observed]) -> bool {
    observed.len() == listed(loaded).count() && observed.iter().all(|o| o.enforced_share == observed[0].enforced_share)
}

/// Returns the classes and templates. Fallback classes are not listed: they have the mode of their class.
fn listed(loaded: &Loaded) -> impl Iterator<Item = &Class> {
    let policy = &loaded.site.policy;
    let of_class = move |index: usize| policy.classes.iter().any(|class| class.fallback == Some(index));
    policy.all_classes().enumerate().filter(move |(index, _)| !of_class(*index)).map(|(_, class)| class)
}

/// Returns the classes and templates that are not enforced for all their sources.
fn observed(loaded: &Loaded) -> Vec<Observed<'_>> {
    listed(loaded)
        .filter(|class| class.mode != Mode::Enforce)
        .map(|class| Observed { class: &class.name, enforced_share: class.mode.share() })
        .collect()
}

/// The report on one file for programs.
#[derive(Serialize)]
struct Report<'a> {
    file: &'a str,
    kind: &'static str,
    sound: bool,
    errors: Vec<Entry<'a>>,
    more_errors: usize,
    warnings: Vec<Entry<'a>>,
    /// Whether the guarantees fit the nodes. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    fits: Option<bool>,
    pools: Vec<Pool>,
    /// Classes that are not enforced for all their sources.
    observed: Vec<Observed<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u32>,
    field: &'a str,
    what: &'a str,
    hint: &'a str,
}

/// The demand on a pool and its capacity, in slot-seconds per second.
#[derive(Serialize)]
struct Pool {
    pool: String,
    demanded: f64,
    capacity: Option<f64>,
    /// Requests per second, if a page table counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    page_table: Option<Routes>,
    fits: Option<bool>,
    /// Classes that do not fit, with reasons.
    overflow: Vec<String>,
}

/// Requests per second that fit by the page table. Unknown values are absent.
#[derive(Serialize)]
struct Routes {
    guaranteed: f64,
    /// Requests per second of any route.
    always: f64,
    /// Requests per second in the best mix.
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<f64>,
}

impl<'a> Report<'a> {
    fn new(checked: &'a Checked) -> Report<'a> {
        let file = checked.file.as_str();
        let kind = if checked.experiment { "experiment" } else { "policy" };
        match &checked.result {
            Ok(loaded) => {
                let feasibility = weirgate_config::feasibility(&loaded.site);
                let pool = |p: &weirgate_config::PoolDemand| Pool {
                    pool: p.pool.clone(),
                    demanded: p.demanded,
                    capacity: p.capacity,
                    page_table: p.routes.map(|routes| Routes {
                        guaranteed: routes.guaranteed,
                        always: routes.always,
                        max: routes.max.is_finite().then_some(routes.max),
                    }),
                    fits: p.fits(),
                    overflow: p.classes.iter().filter_map(|class| p.overflow(class)).collect(),
                };
                Report {
                    file,
                    kind,
                    sound: true,
                    errors: Vec::new(),
                    more_errors: 0,
                    warnings: loaded.warnings.iter().map(Entry::new).collect(),
                    fits: feasibility.fits(),
                    pools: feasibility.pools.iter().map(pool).collect(),
                    observed: observed(loaded),
                }
            }
            Err(errors) => Report {
                file,
                kind,
                sound: false,
                errors: errors.problems.iter().map(Entry::new).collect(),
                more_errors: errors.more,
                warnings: Vec::new(),
                fits: None,
                pools: Vec::new(),
                observed: Vec::new(),
            },
        }
    }
}

impl<'a> Entry<'a> {
    fn new(problem: &'a Problem) -> Entry<'a> {
        Entry {
            line: problem.position.map(|p| p.line),
            column: problem.position.map(|p| p.column),
            field: &problem.path,
            what: &problem.what,
            hint: &problem.hint,
        }
    }
}
