//! The output of a lab run, for readers and programs.
//!
//! A run directory, by default `lab-runs/DATE-EXPERIMENT/`, holds
//!
//! - `run.json`: all results as data, see [`RunFile`]
//! - `experiment.yaml`: the experiment as it was run
//! - `config/APPROACH/`: the configuration of each gateway
//! - `latency.csv`: quantiles of the response times per trial, phase and class
//! - `index.html`: a page that needs no other file
//!
//! All but `config/` is made from the [`RunFile`] alone, so that page, [`text()`] and [`compare`] can be
//! made again long after, on another machine. Tables and figures are those of the simulator, from
//! [`weirgate_verdict::report`].

mod clients;
mod compare;
mod compare_page;
mod directory;
mod evidence;
mod figures;
mod overview;
mod page;
mod run_file;
mod text;
mod totals;

pub use compare::{Comparison, Gap, Missing, RESPONSE_BAND, Row, SERVED_BAND, Side, compare};
pub use directory::{configuration, default_directory, read, write};
pub use figures::{charts, figures};
pub use overview::overview;
pub use page::page;
pub use run_file::{
    Clients, ConfigFile, CoreUse, Evidence, Ids, Lateness, Machine, Quantiles, RunFile, Trial, VERSION,
};
pub use text::text;
