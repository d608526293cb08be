//! A report: printed line by line, and written as a page of `bench/runs`.

use std::path::Path;
use std::process::Command;

use hdrhistogram::Histogram;

/// The lines so far.
pub(crate) struct Report(String);

impl Report {
    /// Begins a report with its title, the command that makes it, and the machine.
    pub(crate) fn new(title: &str, command: &str) -> Report {
        let mut report = Report(String::new());
        let read = |program: &str, words: &[&str]| {
            let output = Command::new(program).args(words).output().map(|output| output.stdout).unwrap_or_default();
            String::from_utf8_lossy(&output).trim().to_owned()
        };
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        report.line(&format!("# {title}\n"));
        report.line(&format!(
            "`{command}`, {} UTC, commit {}, {cores} cores, Linux {}, load average {} at the start.\n",
            read("date", &["-u", "+%Y-%m-%d %H:%M"]),
            read("git", &["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short", "HEAD"]),
            read("uname", &["-r"]),
            load.split(' ').next().unwrap_or_default(),
        ));
        report
    }

    /// Prints a line and keeps it.
    pub(crate) fn line(&mut self, text: &str) {
        println!("{text}");
        self.0.push_str(text);
        self.0.push('\n');
    }

    /// Writes the page `name` into `directory`, if one is given.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, directory: Option<&Path>, name: &str) -> Result<(), String> {
        let Some(directory) = directory else { return Ok(()) };
        let file = directory.join(name);
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(&file, &self.0))
            .map_err(|error| format!("{}: {error}", file.display()))
    }
}

/// Returns p50, p95 and p99 of response times in microseconds, as milliseconds.
pub(crate) fn quantiles(times: &Histogram<u32>) -> String {
    if times.is_empty() {
        return "–".to_owned();
    }
    let at = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    format!("{:.0}/{:.0}/{:.0}", at(0.5), at(0.95), at(0.99))
}
