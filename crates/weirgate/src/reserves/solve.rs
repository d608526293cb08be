//! `weirgate reserves solve`: reads cases and prints shares.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use weirgate_config::{MAX_CASE_BYTES, ReservesCase, parse_reserves_cases};
use weirgate_reserves::{Problem, Solution, is_sink, solve};
use weirgate_verdict::report::{Column, Table};

use crate::args::Format;
use crate::exit;

/// Solve cases: compute the shares that the coordinator would set from each class's guarantee and its use of
/// each node.
///
/// A case is JSON with the letters of the paper, in percent: `D` per class of the cluster, `u` (used) and
/// `r` (in force) per node and class, or `sink` (1 if it could use more) instead of `r`, `up` per node, and
/// a `name`. A file has one case, a list of them, or an object with a list `cases`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  weirgate reserves solve cases.json
  echo '{\"D\": [50, 50], \"r\": [[50, 50], [50, 50]], \"u\": [[40, 60], [50, 50]]}' | weirgate reserves solve

Output with --format json: a list with, per case, `name`, `V` (the part of the promises that the use cannot
meet) and `R` (the shares, null for a node that is down), or `name` and `error`.

Exit codes:
  0  every case is solved
  1  a case was refused, or the file cannot be read")]
pub(crate) struct Args {
    /// The file. Without it, or with `-`, standard input.
    file: Option<PathBuf>,
    /// Output format of the shares.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// A case and its answer.
struct Solved {
    name: String,
    result: Result<(ReservesCase, Solution), String>,
}

/// The output for programs.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    Shares {
        name: &'a str,
        #[serde(rename = "V")]
        deviation: f64,
        #[serde(rename = "R")]
        allocation: Vec<Option<&'a [f64]>>,
    },
    Refused {
        name: &'a str,
        error: &'a str,
    },
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let name = file.map_or_else(|| "<stdin>".to_owned(), |file| file.display().to_string());
    let cases = read(file).map_err(|error| error.to_string()).and_then(|bytes| parse_reserves_cases(&bytes));
    let solved: Vec<Solved> = match cases {
        Err(why) => return exit::fail(&format!("{name}:{why}")),
        Ok(cases) => cases.into_iter().map(|(name, case)| Solved { name, result: case.and_then(answer) }).collect(),
    };
    let printed = match args.format {
        Format::Text => exit::print(&solved.iter().map(Solved::text).collect::<Vec<_>>().join("\n")),
        Format::Json => match serde_json::to_string(&solved.iter().map(Solved::answer).collect::<Vec<_>>()) {
            Ok(text) => exit::print(&(text + "\n")),
            Err(error) => exit::fail(&error.to_string()),
        },
    };
    if solved.iter().all(|solved| solved.result.is_ok()) { printed } else { ExitCode::from(exit::NO) }
}

fn read(file: Option<&Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed shows that the input is too long.
    let max = MAX_CASE_BYTES as u64 + 1;
    match file {
        Some(file) => File::open(file)?.take(max).read_to_end(&mut bytes)?,
        None => io::stdin().lock().take(max).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

fn answer(case: ReservesCase) -> Result<(ReservesCase, Solution), String> {
    let live: Vec<usize> = (0..case.up.len()).filter(|node| case.up[*node]).collect();
    let problem = Problem {
        desired: case.desired.clone(),
        usage: live.iter().map(|node| case.usage[*node].clone()).collect(),
        sink: live.iter().map(|node| sinks(&case, *node)).collect(),
    };
    let solution = solve(&problem).map_err(|error| error.to_string())?;
    Ok((case, solution))
}

/// Returns, per class, whether it could use more of the node.
fn sinks(case: &ReservesCase, node: usize) -> Vec<bool> {
    match (&case.sink, &case.allocation) {
        (Some(sink), _) => sink[node].clone(),
        (None, Some(allocation)) => {
            allocation[node].iter().zip(&case.usage[node]).map(|(share, used)| is_sink(*share, *used)).collect()
        }
        (None, None) => vec![false; case.desired.len()],
    }
}

/// Returns, per node of the case, its row if the node is up.
fn rows<'a>(case: &'a ReservesCase, solution: &'a Solution) -> impl Iterator<Item = Option<&'a [f64]>> {
    let mut rows = solution.allocation.iter();
    case.up.iter().map(move |up| if *up { rows.next().map(Vec::as_slice) } else { None })
}

impl Solved {
    fn answer(&self) -> Answer<'_> {
        match &self.result {
            Err(error) => Answer::Refused { name: &self.name, error },
            Ok((case, solution)) => Answer::Shares {
                name: &self.name,
                deviation: solution.deviation,
                allocation: rows(case, solution).collect(),
            },
        }
    }

    fn text(&self) -> String {
        let (case, solution) = match &self.result {
            Err(error) => return format!("{}: refused: {error}\n", self.name),
            Ok(solved) => solved,
        };
        let mut text = self.name.clone();
        let _ = match solution.deviation < 0.005 {
            true => writeln!(text, ": the use meets every promise"),
            false => writeln!(text, ": the use misses the promises by {:.2} % of a node", solution.deviation),
        };
        let of_class = |class: usize| Column::numbers(format!("class {class}, used -> share"));
        let mut table = Table::new([Column::words("node")].into_iter().chain((1..=case.desired.len()).map(of_class)));
        for (node, row) in rows(case, solution).enumerate() {
            let mut cells = vec![(node + 1).to_string()];
            match row {
                None => cells.push("down".to_owned()),
                Some(row) => cells.extend(
                    row.iter()
                        .zip(sinks(case, node))
                        .zip(&case.usage[node])
                        .map(|((share, sink), used)| format!("{used:.2}{} -> {share:.2}", if sink { "+" } else { "" })),
                ),
            }
            table.row(cells);
        }
        let promised = ["cluster".to_owned()].into_iter().chain(case.desired.iter().map(|share| format!("{share:.2}")));
        table.row(promised);
        text + &table.text("  ") + "  + could use more. Last line: promised share in percent of the cluster\n"
    }
}
