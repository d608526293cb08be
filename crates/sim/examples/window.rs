//! Compares the adaptive window with the analysis in `docs/disciplines/weirgate.md`.
//!
//! ```text
//! cargo run --release -p weirgate-sim --example window
//! ```
//!
//! The load is one class that always asks for more than the capacity, on 20 CPUs, with requests of 10.8 ms.
//! Predictions follow only from the window's rule and the model X(W) = min(W, K)/K · C/D (see that page).
//! Measurements come from the simulator. Prints a table in Markdown. Takes two minutes of CPU time.

use std::error::Error;
use std::path::Path;

use weirgate_engine::{Adaptive, LoadControl};
use weirgate_experiment::{Experiment, Run, load_experiment};
use weirgate_sim::run;

/// Seconds of CPU per request, number of CPUs, and seconds that a request holds a slot without a CPU (the
/// network delay in both directions).
const DEMAND: f64 = 0.0108;
const CPUS: f64 = 20.0;
const NETWORK: f64 = 0.0002;

/// Independent runs per figure.
const SEEDS: u64 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    println!("| | predicted | measured |\n|---|---|---|");
    steady()?;
    low_gain()?;
    slow()?;
    steps()?;
    thrashing()?;
    target_of_one()?;
    Ok(())
}

/// The rule's figures and their consequences for a cluster with a sharp knee.
struct Theory {
    figures: Adaptive,
    /// ln(1 + swing).
    x: f64,
    /// Requests in flight at the knee.
    knee: f64,
    /// Completions a second beyond the knee.
    rate: f64,
}

impl Theory {
    fn new(figures: Adaptive, rate: f64) -> Theory {
        let knee = CPUS * (1.0 + NETWORK / DEMAND);
        Theory { figures, x: (1.0 + figures.swing).ln(), knee, rate }
    }

    /// Returns the lengths, in seconds, of the low and the high half in which completions count, with
    /// `in_flight` requests in flight.
    fn halves(&self, in_flight: f64) -> [f64; 2] {
        let low = self.figures.shortest.as_secs_f64().max(self.figures.computes * in_flight / self.rate);
        [low, self.figures.high * low]
    }

    /// Returns the length of a whole cycle. Each half begins with a compute time that does not count.
    fn cycle(&self, in_flight: f64) -> f64 {
        let [low, high] = self.halves(in_flight);
        low + high + 2.0 * in_flight / self.rate
    }

    fn trust(&self, in_flight: f64) -> f64 {
        (self.halves(in_flight)[0] * self.rate / self.figures.trusted).min(1.0)
    }

    /// Returns the base at which the elasticity equals the target: the low half falls short of the knee by
    /// (1 − τ)·x.
    fn base(&self) -> f64 {
        self.knee * (-(1.0 - self.figures.target) * self.x).exp()
    }

    /// Returns the utilisation. Only the low half leaves CPUs idle, and only by that shortfall.
    fn utilisation(&self) -> f64 {
        let [low, _] = self.halves(self.base());
        let share = (low + self.base() / self.rate) / self.cycle(self.base());
        1.0 - share * (1.0 - (-(1.0 - self.figures.target) * self.x).exp())
    }

    /// Returns the standard deviation of ln W without the swing. It is the noise of a step over 1 − a², with
    /// a = 1 − κ·trust, and that of whole requests.
    fn spread(&self) -> f64 {
        let gain = self.figures.gain * self.trust(self.base());
        let [low, high] = self.halves(self.base()).map(|seconds| seconds * self.rate);
        let noise = gain.powi(2) * (1.0 / low + 1.0 / high) / (1.0 - (1.0 - gain).powi(2));
        (noise + 1.0 / (12.0 * self.base().powi(2))).sqrt()
    }

    /// Returns the change of ln B per second far above the knee, with `in_flight` requests in flight.
    fn falls(&self, in_flight: f64) -> f64 {
        -self.figures.gain * self.trust(in_flight) * self.x * (1.0 - self.figures.target) / self.cycle(in_flight)
    }

    /// Returns the change of ln B per second far below the knee, with `in_flight` requests in flight.
    fn rises(&self, in_flight: f64) -> f64 {
        self.figures.gain * self.trust(in_flight) * self.x * self.figures.target / self.cycle(in_flight)
    }

    /// Returns the seconds for the first half of the way from one base to another, in logarithms, at
    /// `speed` of ln B per second, as a function of the requests in flight.
    fn way(&self, from: f64, to: f64, speed: impl Fn(f64) -> f64) -> f64 {
        const STEPS: u32 = 100;
        let length = (to / from).ln() / 2.0;
        let mean = 1.0 + self.figures.swing * self.figures.high / (1.0 + self.figures.high);
        let at = |step: u32| from * mean * (length * f64::from(step) / f64::from(STEPS)).exp();
        (0..STEPS).map(|step| length / f64::from(STEPS) / speed(at(step))).sum()
    }
}

/// The window of a run: its base and the standard deviation of ln B.
struct Window {
    base: f64,
    spread: f64,
}

/// Estimates the base. Samples see the window in either half. The share of high halves is known, so their
/// mixture can be separated: its mean is ln B + p·x, its variance that of ln B plus p(1 − p)·x².
fn window(runs: &[Run], from: f64, until: f64, theory: &Theory) -> Window {
    let logs: Vec<f64> = runs.iter().flat_map(|run| logs(run, from, until)).map(|(_, log)| log).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / logs.len() as f64;
    let [_, high] = theory.halves(theory.base());
    let share = (high + theory.base() / theory.rate) / theory.cycle(theory.base());
    let spread = (variance - share * (1.0 - share) * theory.x.powi(2)).max(0.0).sqrt();
    Window { base: (mean - share * theory.x).exp(), spread }
}

/// Returns instants and logarithms of the window.
fn logs(run: &Run, from: f64, until: f64) -> Vec<(f64, f64)> {
    let samples = run.samples.iter().map(|sample| (sample.at as f64 / 1e9, sample.window));
    let within = samples.filter(|(at, _)| (from..until).contains(at));
    within.filter_map(|(at, window)| Some((at, f64::from(window?).ln()))).collect()
}

/// Returns the CPU-seconds done over the CPU-seconds available.
fn utilisation(runs: &[Run], from: f64, until: f64) -> f64 {
    let of = |run: &Run| {
        let at = |seconds: f64| run.samples.iter().find(|sample| sample.at as f64 >= seconds * 1e9);
        let busy = |seconds: f64| at(seconds).map_or(0.0, |sample| sample.busy.iter().sum::<f64>());
        (busy(until) - busy(from)) / ((until - from) * CPUS)
    };
    runs.iter().map(of).sum::<f64>() / runs.len() as f64
}

/// Returns a cluster of `machines` with `CPUS` CPUs together and a load of one and a half times its
/// capacity.
fn experiment(machines: u32, demand: &str, rate: f64, seconds: u32, more: &str) -> Result<Experiment, Box<dyn Error>> {
    let nodes: Vec<String> = (1..=machines).map(|n| format!("n{n}:80")).collect();
    let cpus = CPUS as u32 / machines;
    // The guarantee is six tenths of the capacity. The window begins there.
    let guaranteed = 0.4 * rate;
    let each = if rate < 1000.0 { "108ms" } else { "10.8ms" };
    let yaml = format!(
        "policy:
  upstreams: {{ cluster: {{ nodes: [{}] }} }}
  classes: [{{ name: A, service_time: {each}, guarantee: {{ throughput: {guaranteed}/s, response_time: {{ avg: 1s }} }} }}]
machines: {{ cpus: {cpus}{more} }}
traffic: [{{ class: A, rate: {rate}/s, demand: {demand} }}]
phases: [{{ name: full, until: {seconds}s }}]
",
        nodes.join(", ")
    );
    let loaded = load_experiment("window.yaml", &yaml, Path::new(""), &[]).map_err(|errors| errors.to_string())?;
    Ok(loaded.experiment)
}

fn play(experiment: &Experiment) -> Vec<Run> {
    (1..=SEEDS).map(|seed| run(experiment, seed, |_| ())).collect()
}

fn row(what: &str, predicted: &str, measured: &str) {
    println!("| {what} | {predicted} | {measured} |");
}

/// Measures the base, its spread, and the cost of the swing: one machine (the model's sharp knee) and four.
fn steady() -> Result<(), Box<dyn Error>> {
    let theory = Theory::new(Adaptive::default(), CPUS / DEMAND);
    for machines in [1, 4] {
        let runs = play(&experiment(machines, "{ exponential: 10.8ms }", 2800.0, 300, "")?);
        let window = window(&runs, 30.0, 300.0, &theory);
        let where_ = format!("{machines} × {} CPUs, 1,850/s", CPUS as u32 / machines);
        row(&format!("{where_}: base"), &format!("{:.1}", theory.base()), &format!("{:.1}", window.base));
        row(
            &format!("{where_}: standard deviation of ln B"),
            &format!("{:.3}", theory.spread()),
            &format!("{:.3}", window.spread),
        );
        row(
            &format!("{where_}: utilisation"),
            &format!("{:.3}", theory.utilisation()),
            &format!("{:.3}", utilisation(&runs, 30.0, 300.0)),
        );
    }
    Ok(())
}

/// A quarter of the gain. The spread must fall with its root.
fn low_gain() -> Result<(), Box<dyn Error>> {
    let figures = Adaptive { gain: Adaptive::default().gain / 4.0, ..Adaptive::default() };
    let theory = Theory::new(figures, CPUS / DEMAND);
    let mut experiment = experiment(1, "{ exponential: 10.8ms }", 2800.0, 300, "")?;
    experiment.site.policy.discipline.load_control = LoadControl::WindowAdaptive(figures);
    let runs = play(&experiment);
    let spread = window(&runs, 60.0, 300.0, &theory).spread;
    row(
        "1 × 20 CPUs, gain 0.1: standard deviation of ln B",
        &format!("{:.3}", theory.spread()),
        &format!("{spread:.3}"),
    );
    Ok(())
}

/// A tenth of the rate, with requests ten times as long.
fn slow() -> Result<(), Box<dyn Error>> {
    let theory = Theory::new(Adaptive::default(), CPUS / (10.0 * DEMAND));
    let runs = play(&experiment(1, "{ exponential: 108ms }", 280.0, 900, "")?);
    let found = utilisation(&runs, 200.0, 900.0);
    row("1 × 20 CPUs, 185/s of 108 ms: utilisation", &format!("{:.3}", theory.utilisation()), &format!("{found:.3}"));
    Ok(())
}

/// The factor by which the steps move the knee.
const STEP: f64 = 4.0;

/// Moves the knee to the fourfold and back without notice: requests begin to wait three times as long as
/// they compute, and later stop waiting.
fn steps() -> Result<(), Box<dyn Error>> {
    let theory = Theory::new(Adaptive::default(), CPUS / DEMAND);
    let cpu = "{ exponential: 10.8ms }";
    let both = "{ cpu: { exponential: 10.8ms }, io: { exponential: 32.4ms } }";
    let demand = format!("[{cpu}, {{ at: 60s, demand: {both} }}, {{ at: 140s, demand: {cpu} }}]");
    let runs = play(&experiment(1, &demand, 2800.0, 220, "")?);
    let far = theory.base() * (STEP * DEMAND + NETWORK) / (DEMAND + NETWORK);
    let bases = [(20.0, 60.0), (110.0, 140.0), (195.0, 220.0)].map(|(from, to)| window(&runs, from, to, &theory).base);
    row(
        "knee × 4, ÷ 4: bases",
        &format!("{0:.1}, {far:.1}, {0:.1}", theory.base()),
        &format!("{:.1}, {:.1}, {:.1}", bases[0], bases[1], bases[2]),
    );
    // Below the knee the window determines the rate, above it the CPUs do.
    let below = |in_flight: f64| Theory {
        rate: in_flight / (STEP * DEMAND + NETWORK),
        ..Theory::new(Adaptive::default(), 1.0)
    };
    let up = theory.way(theory.base(), far, |in_flight| below(in_flight).rises(in_flight));
    let down = theory.way(far, theory.base(), |in_flight| theory.falls(in_flight));
    let half = STEP.sqrt() * theory.base();
    let found =
        |from, rises| crossing(&runs, from, half, rises, &theory).map_or("never".into(), |at| format!("{at:.0} s"));
    row("knee × 4: half of the way in ln B after", &format!("{up:.0} s"), &found(60.0, true));
    row("knee ÷ 4: half of the way in ln B after", &format!("{down:.0} s"), &found(140.0, false));
    Ok(())
}

/// Returns the seconds from `from` until the base, averaged over all runs, has passed `border`.
fn crossing(runs: &[Run], from: f64, border: f64, rises: bool, theory: &Theory) -> Option<f64> {
    (0..80).map(f64::from).find(|second| {
        let base = window(runs, from + second, from + second + 1.0, theory).base;
        if rises { base > border } else { base < border }
    })
}

/// Each request beyond 20 slows all down by 2 %, so more requests in flight reduce the rate. X(W) is then
/// min(W, C)/D divided by 1 + 0.02·(W − 20). Bisection finds the window at which the two halves differ by
/// (1 − τ)·x.
fn thrashing() -> Result<(), Box<dyn Error>> {
    let theory = Theory::new(Adaptive::default(), CPUS / DEMAND);
    let more = ", thrashing: { beyond: 20, penalty: 0.02 }";
    let runs = play(&experiment(1, "{ exponential: 10.8ms }", 2800.0, 300, more)?);
    let rate = |window: f64| {
        let in_flight = window * DEMAND / (DEMAND + NETWORK);
        in_flight.min(CPUS) / (1.0 + 0.02 * (in_flight - CPUS).max(0.0))
    };
    let gained = |base: f64| (rate(base * (1.0 + theory.figures.swing)) / rate(base)).ln();
    let (mut low, mut high) = (10.0, 30.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if gained(middle) > (1.0 - theory.figures.target) * theory.x { low = middle } else { high = middle }
    }
    let found = window(&runs, 30.0, 300.0, &theory).base;
    row("thrashing by 2 % for each beyond 20: base", &format!("{low:.1}"), &format!("{found:.1}"));
    Ok(())
}

/// With a target of 1, nothing pulls down a window above the knee: it is a random walk in ln B, reflected
/// at the knee.
fn target_of_one() -> Result<(), Box<dyn Error>> {
    let figures = Adaptive { target: 1.0, ..Adaptive::default() };
    let theory = Theory::new(figures, CPUS / DEMAND);
    let mut experiment = experiment(1, "{ exponential: 10.8ms }", 2800.0, 600, "")?;
    experiment.site.policy.discipline.load_control = LoadControl::WindowAdaptive(figures);
    let runs = play(&experiment);
    let found = window(&runs, 590.0, 600.0, &theory).base;
    // On its way it is about twice the knee.
    let [low, high] = theory.halves(2.0 * theory.knee).map(|seconds| seconds * theory.rate);
    let step = figures.gain * theory.trust(2.0 * theory.knee) * (1.0 / low + 1.0 / high).sqrt();
    let steps = 600.0 / theory.cycle(2.0 * theory.knee);
    let mean = step * (2.0 * steps / std::f64::consts::PI).sqrt();
    row("target 1: base after ten minutes", &format!("{:.0}", theory.knee * mean.exp()), &format!("{found:.0}"));
    Ok(())
}
