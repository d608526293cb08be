//! `weirgate plan`: the cluster that an experiment's guarantees need, and the headroom of the present one.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use weirgate_experiment::{Experiment, load_experiment_file, under_discipline};
use weirgate_sim::plan::{Broken, MAX_TIMES, Plan, Question, Step, plan};
use weirgate_spanned_yaml::overrides::Override;
use weirgate_verdict::Kind;

use crate::args::Format;
use crate::bar::bar;
use crate::exit;

/// Find the smallest cluster that keeps the guarantees of an experiment, and the headroom of the present
/// one.
///
/// FILE contains the policy, the machines and the traffic. Clusters and guarantees of other sizes are
/// simulated until the limit is known. The *headroom* is the factor by which all guaranteed throughputs can
/// grow together with the traffic of their classes. Limits on response times stay as they are.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate plan experiments/quorum-fig9.yaml
  weirgate plan shop.yaml --machine db1 --seeds 8
  weirgate plan shop.yaml --set traffic.checkout.rate=900/s --format json

Exit codes:
  0  there is such a cluster, of at most 16 times the machines
  1  there is none, or FILE is not sound")]
pub(crate) struct Args {
    /// The experiment file (YAML).
    pub(crate) file: PathBuf,
    /// Number of seeds, all of which must hold. Chance differs between them, the experiment does not.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
    /// Add and remove only machines like this one. By default every group of equal machines grows and
    /// shrinks in proportion.
    #[arg(long, value_name = "NAME")]
    pub(crate) machine: Option<String>,
    /// Change a part of the experiment before it is played. Repeatable.
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = |text: &str| text.parse::<Override>())]
    pub(crate) sets: Vec<Override>,
    /// Play it under this discipline.
    #[arg(long, value_name = "NAME")]
    pub(crate) discipline: Option<String>,
    /// Output format of the plan.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

pub(crate) fn run(args: Args) -> ExitCode {
    let discipline = args.discipline.as_deref().map(under_discipline).into_iter();
    let overrides: Vec<Override> = discipline.chain(args.sets).collect();
    let loaded = match load_experiment_file(&args.file, &overrides) {
        Ok(loaded) => loaded,
        Err(errors) => {
            exit::tell(&errors.to_string());
            return ExitCode::from(exit::NO);
        }
    };
    let experiment = &loaded.experiment;
    let machine = match &args.machine {
        None => None,
        Some(name) => match experiment.machines.iter().position(|machine| is_called(&machine.name, name)) {
            Some(index) => Some(index),
            None => {
                let known: Vec<&str> = experiment.machines.iter().map(|machine| machine.name.as_str()).collect();
                return exit::fail(&format!("there is no machine `{name}`; there is {}", known.join(", ")));
            }
        },
    };
    let question = Question { experiment, seeds: (1..=args.seeds).collect(), machine };
    let bar = bar(None, "{spinner} {elapsed} {pos} sizes played: {msg}");
    bar.set_message("the present cluster");
    let planned = plan(&question, |step| {
        bar.inc(1);
        bar.set_message(progress(step));
    });
    bar.finish_and_clear();
    let plan = match planned {
        Ok(plan) => plan,
        Err(violation) => return exit::fail(&format!("the simulation is not sound, please report this: {violation}")),
    };
    let printed = match args.format {
        Format::Text => exit::print(&text(experiment, &plan, &question)),
        Format::Json => exit::print_json(&Report::new(experiment, &plan, &question)),
    };
    if plan.smallest.needed.is_some() { printed } else { ExitCode::from(exit::NO) }
}

/// Returns whether this is the machine's name. As in the file, an address may lack its port.
fn is_called(machine: &str, name: &str) -> bool {
    machine == name || machine.rsplit_once(':').is_some_and(|(host, _)| host == name)
}

fn progress(step: &Step) -> String {
    let verdict = if step.held { "holds" } else { "does not hold" };
    match step.factor == 1.0 {
        true => format!("{} {verdict}", machines(step.machines)),
        false => format!("×{:.2} {verdict}", step.factor),
    }
}

fn machines(count: usize) -> String {
    format!("{count} machine{}", if count == 1 { "" } else { "s" })
}

/// Returns the plan for people.
fn text(experiment: &Experiment, plan: &Plan, question: &Question<'_>) -> String {
    let discipline = &experiment.site.policy.discipline.name;
    let seeds = question.seeds.len();
    let mut text =
        format!("{} under {discipline}, {seeds} seed{}\n", experiment.name, if seeds == 1 { "" } else { "s" });
    let present: usize = plan.smallest.groups.iter().map(|group| group.machines.len()).sum();
    let mut line = |head: &str, what: &str| text += &format!("  {head:<9} {what}\n");
    match &plan.smallest.present {
        Ok(()) => line("present", &format!("{}: every guarantee holds", machines(present))),
        Err(broken) => line("present", &format!("{}: {broken}", machines(present))),
    }
    match &plan.smallest.needed {
        Some(counts) => {
            line("needed", &machines(counts.iter().sum()));
            for (group, count) in plan.smallest.groups.iter().zip(counts).filter(|_| counts.len() > 1) {
                let (like, pools) = (&experiment.machines[group.machines[0]].name, group.pools.join(", "));
                line("", &format!("{count} like {like} (now {}; {pools})", group.machines.len()));
            }
            match &plan.smallest.one_fewer {
                Some(broken) => line("", &format!("with one machine fewer: {broken}")),
                None => line("", "there is no smaller cluster"),
            }
        }
        None => {
            let max = match question.machine {
                Some(_) => format!("{MAX_TIMES} times as many of these machines are not enough"),
                None => format!("{} are not enough", machines(present * MAX_TIMES)),
            };
            line("needed", &max);
        }
    }
    line("headroom", &headroom(plan));
    if let Some(broken) = &plan.beyond {
        line("", &format!("above that: {broken}"));
    }
    text
}

/// Returns the headroom for people.
fn headroom(plan: &Plan) -> String {
    let percent = (plan.headroom - 1.0) * 100.0;
    let max = MAX_TIMES as f64;
    match plan.headroom {
        factor if factor >= max => format!("more than {:.0} %", percent),
        0.0 => format!("none: not even 1/{MAX_TIMES} of the guarantees and their traffic would hold"),
        factor if factor < 1.0 => {
            format!("none: {:.0} % of the guarantees and their traffic would hold", factor * 100.0)
        }
        factor => format!("{percent:.0} %: guarantees and their traffic can grow ×{factor:.2}"),
    }
}

/// The plan for programs.
#[derive(Serialize)]
struct Report<'a> {
    experiment: &'a str,
    discipline: &'a str,
    seeds: &'a [u64],
    present: Cluster<'a>,
    /// Absent if sixteen times the present cluster is not enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<Cluster<'a>>,
    headroom: Headroom<'a>,
}

/// A cluster and the guarantee that breaks.
#[derive(Serialize)]
struct Cluster<'a> {
    machines: usize,
    groups: Vec<GroupReport<'a>>,
    /// The largest miss: of the present cluster, or of a cluster with one machine fewer than needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    breaks: Option<BrokenReport<'a>>,
}

#[derive(Serialize)]
struct GroupReport<'a> {
    like: &'a str,
    pools: &'a [String],
    machines: usize,
}

#[derive(Serialize)]
struct Headroom<'a> {
    /// Largest factor that holds. 0 means less than 1/16, and 16 means at least 16.
    factor: f64,
    percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    breaks: Option<BrokenReport<'a>>,
}

#[derive(Serialize)]
struct BrokenReport<'a> {
    class: &'a str,
    phase: &'a str,
    guarantee: &'static str,
    unit: &'static str,
    promised: f64,
    /// Absent if nothing was served.
    #[serde(skip_serializing_if = "Option::is_none")]
    got: Option<f64>,
    seed: u64,
}

impl<'a> Report<'a> {
    fn new(experiment: &'a Experiment, plan: &'a Plan, question: &'a Question<'_>) -> Report<'a> {
        let cluster = |counts: Vec<usize>, breaks: Option<&'a Broken>| {
            let groups = plan.smallest.groups.iter().zip(&counts).map(|(group, count)| GroupReport {
                like: &experiment.machines[group.machines[0]].name,
                pools: &group.pools,
                machines: *count,
            });
            Cluster { machines: counts.iter().sum(), groups: groups.collect(), breaks: breaks.map(BrokenReport::new) }
        };
        let present = plan.smallest.groups.iter().map(|group| group.machines.len()).collect();
        Report {
            experiment: &experiment.name,
            discipline: &experiment.site.policy.discipline.name,
            seeds: &question.seeds,
            present: cluster(present, plan.smallest.present.as_ref().err()),
            needed: plan.smallest.needed.clone().map(|counts| cluster(counts, plan.smallest.one_fewer.as_ref())),
            headroom: Headroom {
                factor: rounded(plan.headroom),
                percent: rounded((plan.headroom - 1.0) * 100.0),
                breaks: plan.beyond.as_ref().map(BrokenReport::new),
            },
        }
    }
}

impl<'a> BrokenReport<'a> {
    fn new(broken: &'a Broken) -> BrokenReport<'a> {
        let (guarantee, unit) = match broken.kind {
            Kind::Floor => ("floor", "per_s"),
            Kind::Ceiling | Kind::Settling => ("ceiling", "ms"),
            Kind::Avoidable => ("avoidable refusals", "share"),
        };
        BrokenReport {
            class: &broken.class,
            phase: &broken.phase,
            guarantee,
            unit,
            promised: rounded(broken.promised),
            got: broken.got.is_finite().then(|| rounded(broken.got)),
            seed: broken.seed,
        }
    }
}

/// Rounds to three digits after the point.
fn rounded(x: f64) -> f64 {
    (x * 1e3).round() / 1e3
}
