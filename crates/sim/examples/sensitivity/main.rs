//! Measures the sensitivity of the discipline `weirgate` to its figures.
//!
//! ```text
//! cargo run --release -p weirgate-sim --example sensitivity -- OUTPUT_DIR
//! ```
//!
//! Each figure in turn is multiplied by 0.5 and by 1.5, while the others stay at their defaults. A figure
//! outside the range that the engine accepts is set to the end of the range. Each variant plays the
//! published experiments (`experiments/quorum-*.yaml`, seeds 1 and 2), our own ones (the other files, seed
//! 1), and the random scenarios of the swarm (seeds 0 to 99). The study reports the missed guarantees (for
//! the swarm: scenarios with any miss), the CPU work of served requests (*goodput*) and the mean response
//! time of classes within their guarantee. The last two are relative to the defaults.
//!
//! Writes `sensitivity.csv`, `sensitivity.md` and `sensitivity.svg` to OUTPUT_DIR. Takes an hour of CPU
//! time, on two threads. Run it from the root of the repository. The same tree gives the same files.

mod chart;
mod figures;
mod play;
mod report;

use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::{env, process};

use weirgate_sim::parallel::for_each_job;

use figures::ALL;
use play::{Job, Played};
use report::{Row, Variant};

/// Number of threads. The rest of the machine is left to other programs.
const THREADS: usize = 2;

const FACTORS: [f64; 2] = [0.5, 1.5];

fn main() {
    let Some(output) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: sensitivity OUTPUT_DIR");
        process::exit(2);
    };
    if let Err(error) = study(&output) {
        eprintln!("sensitivity: {error}");
        process::exit(1);
    }
}

fn study(output: &PathBuf) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(output)?;
    let jobs = Job::all(&PathBuf::from("experiments"))?;
    let variants: Vec<Variant> = [Variant::default()].into_iter().chain(variants()).collect();
    let mut rows: Vec<Row> = Vec::new();
    let mut base: Vec<Played> = Vec::new();
    play_all(&variants, &jobs, |index, played| {
        if index == 0 {
            base.clone_from(&played);
        }
        let row = Row::new(variants[index].clone(), &jobs, &base, &played);
        eprintln!("{:3} of {}: {}", index + 1, variants.len(), row.line());
        rows.push(row);
    });
    fs::write(output.join("sensitivity.csv"), report::csv(&rows))?;
    fs::write(output.join("sensitivity.md"), report::markdown(&rows))?;
    fs::write(output.join("sensitivity.svg"), chart::svg(&rows))?;
    Ok(())
}

/// Returns every figure with every factor.
fn variants() -> impl Iterator<Item = Variant> {
    ALL.iter().flat_map(|figure| {
        FACTORS.map(|factor| {
            let (figures, value, exact) = figure.scaled(factor);
            Variant { figure: Some(figure), factor, value, exact, figures }
        })
    })
}

/// Plays all jobs with all variants. Calls `on_variant` with each variant's results in the order of jobs,
/// variant after variant.
fn play_all(variants: &[Variant], jobs: &[Job], mut on_variant: impl FnMut(usize, Vec<Played>)) {
    let play = |number: usize| jobs[number % jobs.len()].play(&variants[number / jobs.len()].figures);
    let mut played: Vec<Vec<Option<Played>>> = vec![vec![None; jobs.len()]; variants.len()];
    let mut done = 0;
    for_each_job(variants.len() * jobs.len(), Some(THREADS), play, |number, result| {
        played[number / jobs.len()][number % jobs.len()] = Some(result);
        while done < variants.len() && played[done].iter().all(Option::is_some) {
            on_variant(done, played[done].drain(..).flatten().collect());
            done += 1;
        }
        ControlFlow::Continue(())
    });
}
