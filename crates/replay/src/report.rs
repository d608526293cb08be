//! The result of a replay as a table and as JSON.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use weirgate_clock::rfc3339;
use weirgate_experiment::Experiment;
use weirgate_sim::plan::Smallest;
use weirgate_verdict::report::{Column, Table};

use crate::build::Recording;
use crate::cluster::Measured;
use crate::costs::Slots;
use crate::outages::Outage;
use crate::outcome::{ClassOutcome, Outcome};
use crate::play::Result;
use crate::read::Lines;
use crate::side::{How, Side};

/// Maximum number of machines, rules and the like that are listed one by one. Further ones are only counted.
const MAX_LISTED: usize = 10;

/// The result of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The log.
    pub log: LogReport,
    /// The policies, the older one first.
    pub policies: Vec<PolicyReport>,
}

/// Facts about the log.
#[derive(Clone, Debug, Serialize)]
pub struct LogReport {
    /// Names of the files.
    pub files: Vec<String>,
    /// First arrival that is played, RFC 3339.
    pub from: String,
    /// Seconds from the first arrival to the last.
    pub seconds: f64,
    /// Number of requests that are played, including those that are missing from a sampled log.
    pub requests: u64,
    /// Number of lines that are not requests.
    pub malformed_lines: u64,
    /// The first such line, with its place and the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_malformed: Option<String>,
    /// Number of requests whose ending no policy decides, by ending.
    pub left_out: Vec<(String, u64)>,
    /// Requests outside the selected time.
    pub outside: u64,
    /// Share of the served requests that is in the log.
    pub sample: f64,
    /// Mean cost of a request on a quiet node, in milliseconds.
    pub mean_cost_ms: f64,
    /// Additional time at a node in which a request holds no slot, in milliseconds.
    pub beside_ms: f64,
    /// Number of requests whose cost was drawn at random, because they were not served.
    pub drawn_costs: u64,
    /// The machines, with the number of requests that each can work on at once at full speed.
    pub machines: Vec<MachineReport>,
    /// Times in which a machine got no requests, so the replay treats it as down.
    pub outages: Vec<OutageReport>,
    /// Figures of the log itself, with the limits of the older policy.
    pub outcome: Outcome,
}

/// A machine of the log.
#[derive(Clone, Debug, Serialize)]
pub struct MachineReport {
    /// Its name.
    pub machine: String,
    /// Its slots.
    pub slots: f64,
    /// Where the number comes from: `given`, `declared`, `estimated`, `at_least`.
    pub origin: &'static str,
}

/// The result of a policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    /// Its file.
    pub policy: String,
    /// How the classes of the requests were found.
    pub classes_by: ClassesBy,
    /// Figures.
    pub outcome: Outcome,
    /// Guarantees that were missed, in words.
    pub missed: Vec<String>,
    /// Machines. Absent if the policy has no guarantee, or if they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<MachinesReport>,
}

/// How the classes of the requests were found.
#[derive(Clone, Debug, Serialize)]
pub struct ClassesBy {
    /// Number of requests whose class follows from the rules and the log.
    pub rules: u64,
    /// Number of requests that keep the class in the log, because the rules cannot be decided from it.
    pub log: u64,
    /// Number of requests that get the first class that is certain, because earlier rules cannot be decided from the
    /// log.
    pub guess: u64,
    /// Number of requests that cannot be classified, because the line is cut or malformed.
    pub unreadable: u64,
    /// Rules that could not be decided.
    pub undecided: Vec<Undecided>,
}

/// A rule that depends on facts that no log has.
#[derive(Clone, Debug, Serialize)]
pub struct Undecided {
    /// Its class.
    pub class: String,
    /// Requests that it may match.
    pub requests: u64,
    /// The conditions that depend on such facts.
    pub conditions: Vec<String>,
}

/// Machines that a policy needs.
#[derive(Clone, Debug, Serialize)]
pub struct MachinesReport {
    /// Present number.
    pub present: usize,
    /// Smallest number with which every guarantee holds. Absent if sixteen times the present number is not enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed: Option<usize>,
    /// The guarantee that breaks with one machine fewer, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_fewer: Option<String>,
}

/// A time in which a machine was out.
#[derive(Clone, Debug, Serialize)]
pub struct OutageReport {
    /// Its name.
    pub machine: String,
    /// Start in seconds since the first arrival.
    pub from_s: f64,
    /// End. `None` if it was out to the end.
    pub until_s: Option<f64>,
}

impl LogReport {
    /// The report of a log from these files, with its own figures.
    pub fn new(files: Vec<String>, lines: &Lines, recording: &Recording, outcome: Outcome) -> LogReport {
        let Recording { requests, measured, arrivals, length } = recording;
        let Measured { capacities, costs, beside, drawn, outages } = measured;
        let first = requests.span().map_or(0, |(first, _)| first);
        let machine = |(name, slots): (&String, &Slots)| MachineReport {
            machine: name.clone(),
            slots: slots.slots,
            origin: slots.origin.as_str(),
        };
        let outage = |outage: &Outage| OutageReport {
            machine: outage.machine.clone(),
            from_s: outage.from.as_secs_f64(),
            until_s: outage.until.map(|until| until.as_secs_f64()),
        };
        let sum: f64 = costs.iter().map(|cost| *cost as f64 / 1e6).sum();
        LogReport {
            files,
            from: rfc3339(UNIX_EPOCH + Duration::from_nanos(first)),
            seconds: (length.as_secs_f64() * 1e3).round() / 1e3,
            requests: arrivals.len() as u64,
            malformed_lines: lines.malformed,
            first_malformed: lines.first_malformed.clone(),
            left_out: requests.left_out.clone(),
            outside: requests.outside,
            sample: requests.sample(),
            mean_cost_ms: (sum / costs.len().max(1) as f64 * 1e3).round() / 1e3,
            beside_ms: (*beside as f64 / 1e3).round() / 1e3,
            drawn_costs: *drawn,
            machines: capacities.known.iter().map(machine).collect(),
            outages: outages.iter().map(outage).collect(),
            outcome,
        }
    }
}

impl PolicyReport {
    /// The report of a policy.
    pub fn new(side: &Side, experiment: &Experiment, result: &Result, smallest: Option<&Smallest>) -> PolicyReport {
        let undecided = side.undecided().into_iter();
        let undecided = undecided.map(|(class, requests, conditions)| Undecided { class, requests, conditions });
        PolicyReport {
            policy: side.name.clone(),
            classes_by: ClassesBy {
                rules: side.count(How::Rules),
                log: side.count(How::Log),
                guess: side.count(How::Guess),
                unreadable: side.count(How::Unreadable),
                undecided: undecided.collect(),
            },
            outcome: result.outcome.clone(),
            missed: result.missed.iter().map(ToString::to_string).collect(),
            machines: smallest.map(|found| MachinesReport {
                present: experiment.machines.len(),
                needed: found.needed.as_ref().map(|counts| counts.iter().sum()),
                one_fewer: found.one_fewer.as_ref().map(ToString::to_string),
            }),
        }
    }
}

impl Report {
    /// The report for a terminal.
    pub fn text(&self) -> String {
        let mut text = self.log.text();
        for policy in &self.policies {
            policy.classes_by.tell(&mut text, &policy.policy);
        }
        text.push('\n');
        text += &self.table().text("  ");
        text.push('\n');
        for policy in &self.policies {
            policy.tell(&mut text);
        }
        text
    }

    /// A row for each class and each source: the log and the policies.
    fn table(&self) -> Table {
        let numbers = ["requests", "served", "late", "shed", "failed", "left", "cut off", "p50 ms", "p95 ms"];
        let columns = ["class", "under"].map(Column::words).into_iter();
        let columns = columns.chain(numbers.map(|head| Column::numbers(head).in_text(head)));
        let mut table = Table::new(columns.chain(["limit", "shed because of"].map(Column::words)));
        let policies = self.policies.iter().map(|policy| (policy.policy.as_str(), &policy.outcome));
        let sources: Vec<(&str, &Outcome)> = std::iter::once(("the log", &self.log.outcome)).chain(policies).collect();
        let mut names: Vec<&str> = Vec::new();
        // The order of the newest policy, and then classes that it does not have.
        for class in sources.iter().rev().flat_map(|(_, outcome)| &outcome.classes) {
            if !names.contains(&class.class.as_str()) {
                names.push(&class.class);
            }
        }
        for name in names {
            table.start_group();
            let mut head = name;
            for (source, outcome) in &sources {
                if let Some(class) = outcome.classes.iter().find(|class| class.class == name) {
                    table.row([head, source].map(str::to_owned).into_iter().chain(cells(class)));
                    head = "";
                }
            }
        }
        table
    }
}

/// The figures of a class.
fn cells(class: &ClassOutcome) -> Vec<String> {
    let some = |count: u64| if count > 0 { count.to_string() } else { String::new() };
    let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
    let limit = class.limited.as_ref().map_or(String::new(), |of| match of.value_ms {
        Some(value) if of.statistic != "p95" => {
            format!("{} {} ms, got {value:.1}", of.statistic, of.limit_ms)
        }
        _ => format!("{} {} ms", of.statistic, of.limit_ms),
    });
    let mut reasons: Vec<(&&str, &u64)> = class.shed_by_reason.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let reasons: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    vec![
        class.requests.to_string(),
        class.served.to_string(),
        class.late.map_or("-".to_owned(), |late| late.to_string()),
        class.shed.to_string(),
        some(class.failed),
        some(class.left),
        some(class.unfinished),
        time(class.p50_ms),
        time(class.p95_ms),
        limit,
        reasons.join(", "),
    ]
}

/// Appends a line with its name.
fn line(text: &mut String, name: &str, what: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "  {name:<9} {what}");
}

impl LogReport {
    fn text(&self) -> String {
        let LogReport { files, from, seconds, requests, .. } = self;
        let mut text = format!("{}: {requests} requests in {seconds:.1} s from {from}\n", files.join(", "));
        let mut out: Vec<String> = self.left_out.iter().map(|(ending, count)| format!("{count} {ending}")).collect();
        if self.outside > 0 {
            out.push(format!("{} outside the chosen time", self.outside));
        }
        if let Some(first) = &self.first_malformed {
            out.push(format!("{} lines that are no request, the first is {first}", self.malformed_lines));
        }
        if !out.is_empty() {
            line(&mut text, "left out", &out.join(", "));
        }
        if self.sample < 1.0 {
            let what = format!(
                "{} % of the requests, refusals and failures aside, are in the log; the others are filled in",
                (self.sample * 1e4).round() / 1e2
            );
            line(&mut text, "sample", &what);
        }
        let drawn = match self.drawn_costs {
            0 => String::new(),
            n => format!("; drawn from served requests of their kind for {n} that were not served"),
        };
        let beside = match self.beside_ms {
            0.0 => String::new(),
            ms => format!(", and {ms:.2} ms without a slot, such as the network's"),
        };
        line(&mut text, "cost", &format!("{:.2} ms on a quiet node, on average{beside}{drawn}", self.mean_cost_ms));
        // Machines alike share a line.
        let mut alike: Vec<(f64, &str, Vec<&str>)> = Vec::new();
        for MachineReport { machine, slots, origin } in &self.machines {
            match alike.iter_mut().find(|(of, from, _)| of == slots && from == origin) {
                Some((.., names)) => names.push(machine),
                None => alike.push((*slots, origin, vec![machine])),
            }
        }
        for (slots, origin, names) in alike.iter().take(MAX_LISTED) {
            let why = match *origin {
                "given" => "as the command line says",
                "declared" => "as the policy declares",
                "estimated" => "estimated from contention in the log",
                _ => "at least, because the log shows no contention; say more with --capacity",
            };
            let what = format!("{slots} at once on {}, {why}", named(names));
            line(&mut text, "machines", &what);
        }
        for OutageReport { machine, from_s, until_s } in self.outages.iter().take(MAX_LISTED) {
            let until = until_s.map_or("to the end".to_owned(), |until| format!("to {until:.1} s"));
            line(&mut text, "", &format!("{machine} was sent nothing from {from_s:.1} s {until}, so it is out then"));
        }
        if self.outages.len() > MAX_LISTED {
            line(&mut text, "", &format!("… and {} more such times", self.outages.len() - MAX_LISTED));
        }
        text
    }
}

/// Names of machines, or their number.
fn named(names: &[&str]) -> String {
    if names.len() > 4 { format!("each of {} machines", names.len()) } else { names.join(", ") }
}

impl ClassesBy {
    fn tell(&self, text: &mut String, policy: &str) {
        let mut parts = vec![format!("{} by the rules", self.rules)];
        if self.log > 0 {
            parts.push(format!("{} by the log", self.log));
        }
        if self.guess > 0 {
            parts.push(format!("{} by the first rule that is certain", self.guess));
        }
        if self.unreadable > 0 {
            parts.push(format!("{} of lines that are no valid request by the log", self.unreadable));
        }
        line(text, "classes", &format!("{policy}: {}", parts.join(", ")));
        for Undecided { class, requests, conditions } in self.undecided.iter().take(MAX_LISTED) {
            let what = format!(
                "whether {requests} requests are {class} depends on {}, which is not in the log",
                conditions.join(" and ")
            );
            line(text, "", &what);
        }
        if self.undecided.len() > MAX_LISTED {
            line(text, "", &format!("… and {} more rules", self.undecided.len() - MAX_LISTED));
        }
    }
}

impl PolicyReport {
    fn tell(&self, text: &mut String) {
        let _ = writeln!(text, "{}", self.policy);
        match self.missed.as_slice() {
            [] if self.outcome.classes.iter().all(|class| class.limited.is_none()) && self.machines.is_none() => {
                line(text, "present", "no guarantee was asked for");
            }
            [] => line(text, "present", "every guarantee holds"),
            missed => {
                for (number, missed) in missed.iter().take(MAX_LISTED).enumerate() {
                    line(text, if number == 0 { "present" } else { "" }, missed);
                }
                if missed.len() > MAX_LISTED {
                    line(text, "", &format!("… and {} more", missed.len() - MAX_LISTED));
                }
            }
        }
        let Some(MachinesReport { present, needed, one_fewer }) = &self.machines else { return };
        match needed {
            Some(needed) => {
                let s = if *needed == 1 { "" } else { "s" };
                line(text, "needed", &format!("{needed} machine{s} (now {present})"));
                match one_fewer {
                    Some(why) => line(text, "", &format!("with one machine fewer: {why}")),
                    None => line(text, "", "there is no smaller cluster"),
                }
            }
            None => {
                line(text, "needed", &format!("more than 16 times the {present} machines of now, or none is enough"))
            }
        }
    }
}
