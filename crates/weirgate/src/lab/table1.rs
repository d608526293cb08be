//! `weirgate lab cluster-reserves-table1`: the paper's example of the resource coordinator, call by call.
//!
//! Source: Cluster Reserves, Sec. 3.1, Table 1: two nodes, two classes that reserve half of the cluster
//! each. The paper prints calls 1 to 6 and 27. Between them every class uses all of its share everywhere,
//! so the use in each call equals the shares of the last one.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use weirgate_reserves::{Problem, solve};
use weirgate_verdict::report::{Column, Table};

use crate::exit;

/// Print Table 1 of the Cluster Reserves paper, call by call, with the optimiser's answers.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {}

/// Per node: the use of both classes, whether node and class are a sink, and the shares that the paper
/// prints.
type Call = [([f64; 2], [bool; 2], [f64; 2]); 2];

/// The calls that the paper prints with a use of their own.
const PRINTED: [Call; 6] = [
    [([50.0, 50.0], [true, true], [50.0, 50.0]), ([50.0, 50.0], [true, true], [50.0, 50.0])],
    [([40.0, 60.0], [false, true], [40.0, 60.0]), ([50.0, 50.0], [true, true], [60.0, 40.0])],
    [([40.0, 60.0], [true, true], [41.0, 59.0]), ([60.0, 40.0], [true, true], [59.0, 41.0])],
    [([41.0, 59.0], [true, true], [42.0, 58.0]), ([59.0, 41.0], [true, true], [58.0, 42.0])],
    [([40.0, 60.0], [false, true], [40.0, 60.0]), ([58.0, 42.0], [true, true], [60.0, 40.0])],
    [([40.0, 60.0], [true, true], [41.0, 59.0]), ([60.0, 40.0], [true, true], [59.0, 41.0])],
];

/// The paper's last call, and the shares after it.
const LAST: (usize, [[f64; 2]; 2]) = (27, [[49.0, 51.0], [51.0, 49.0]]);

/// The paper prints whole numbers.
const ROUNDING: f64 = 0.5;

pub(super) fn run(_: &Args) -> ExitCode {
    let ours = ["call", "node", "used 1", "used 2", "share 1", "share 2"].map(Column::numbers);
    let mut table = Table::new(ours.into_iter().chain(["paper", "holds"].map(Column::words)));
    let mut last = [[50.0; 2]; 2];
    let mut held = true;
    for call in 1..=LAST.0 {
        let printed = PRINTED.get(call - 1);
        let used = printed.map_or(last, |call| call.map(|(used, ..)| used));
        let sink = printed.map_or([[true; 2]; 2], |call| call.map(|(_, sink, _)| sink));
        let paper = printed.map(|call| call.map(|(.., shares)| shares)).or((call == LAST.0).then_some(LAST.1));
        let problem =
            Problem { desired: vec![50.0; 2], usage: used.map(Vec::from).to_vec(), sink: sink.map(Vec::from).to_vec() };
        let shares = match solve(&problem) {
            Ok(solution) => solution.allocation,
            Err(error) => return exit::fail(&format!("call {call}: {error}")),
        };
        for node in 0..2 {
            let ours = [shares[node][0], shares[node][1]];
            let mut row = vec![if node == 0 { call.to_string() } else { String::new() }, (node + 1).to_string()];
            let sinks = |class: usize| if sink[node][class] { "1" } else { "0" };
            row.extend((0..2).map(|class| format!("{:.1} ({})", used[node][class], sinks(class))));
            row.extend(ours.map(|share| format!("{share:.2}")));
            if let Some(paper) = paper.map(|paper| paper[node]) {
                let holds = ours.iter().zip(paper).all(|(ours, paper)| (ours - paper).abs() <= ROUNDING + 1e-9);
                held &= holds;
                row.extend([format!("{:.0} {:.0}", paper[0], paper[1]), (if holds { "✔" } else { "✘" }).to_owned()]);
            }
            table.row(row);
            last[node] = ours;
        }
    }
    let printed = exit::print(&format!(
        "Cluster Reserves, Table 1: shares of two nodes for two classes that reserve 50 % each.\n\
         In brackets 1 if the class could use more.\n{}",
        table.text("  ")
    ));
    if held { printed } else { ExitCode::from(exit::NO) }
}
