//! The run directory: writes it, reads it, and writes it again from `run.json`.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use weirgate_files::ORDINARY;

use super::run_file::{ConfigFile, RunFile, VERSION};

/// Size in bytes above which the page links to a configuration file instead of showing it. Hand-written
/// files are far shorter.
const MAX_SHOWN: u64 = 64 << 10;

/// Writes everything except `config/` into `dir`, and creates `dir` if needed. Existing files are replaced,
/// so that a run can be written after each trial, and an old one again with the pages of a newer program.
/// Returns the run as written, with its numbers rounded.
///
/// # Errors
/// A file cannot be written, or the run could not be read back, for example because a number is not finite
/// or a trial occurs twice. In the latter case nothing is written.
pub fn write(dir: &Path, run: &RunFile) -> Result<RunFile, String> {
    let json = json(run).map_err(|error| format!("run.json cannot be made: {error}"))?;
    // The page is made from the rounded run, so that making it again gives the same page.
    let run = parse("run.json, as it would be written", &json)?;
    fs::create_dir_all(dir).map_err(|error| format!("{} cannot be made: {error}", dir.display()))?;
    let files = [
        ("experiment.yaml", run.experiment_file.clone()),
        ("latency.csv", latency(&run)),
        ("index.html", super::page(&run)),
        // `run.json` comes last, so that a directory with it is complete.
        ("run.json", json),
    ];
    for (name, text) in files {
        let path = dir.join(name);
        let put = weirgate_files::replace(&path, ORDINARY, text.as_bytes());
        put.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    Ok(run)
}

/// Reads `run.json` of a run directory.
///
/// # Errors
/// The file is missing or cannot be read, or it is not a `run.json` of this version. The message has the system's
/// reason, or path, line and column.
pub fn read(dir: &Path) -> Result<RunFile, String> {
    let path = dir.join("run.json");
    let text = fs::read_to_string(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    parse(&path.display().to_string(), &text)
}

/// Parses the run in `text`. `name` is its name in messages.
pub(super) fn parse(name: &str, text: &str) -> Result<RunFile, String> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    let head: Head = from_json(name, text)?;
    if head.version != VERSION {
        let at = text.find("\"version\"").unwrap_or(0);
        let line = text[..at].matches('\n').count() + 1;
        let column = at - text[..at].rfind('\n').map_or(0, |line| line + 1) + 1;
        return Err(format!(
            "{name}:{line}:{column}: this file has version {} of the format, and this program reads version \
             {VERSION}: use the weirgate that wrote it",
            head.version
        ));
    }
    let run: RunFile = from_json(name, text)?;
    match run.nonsense() {
        Some(what) => Err(format!("{name}: {what}")),
        None => Ok(run),
    }
}

/// Parses JSON. The error names line and column.
pub(super) fn from_json<'a, T: Deserialize<'a>>(name: &str, text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let told = error.to_string();
        let what = told.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&told);
        format!("{name}:{line}:{column}: {what}")
    })
}

/// Returns every file under `config/` of a run directory, in order of their paths. The directory below
/// `config` is the approach.
///
/// # Errors
/// A file or directory cannot be read. If `config/` is missing, the result is empty.
pub fn configuration(dir: &Path) -> io::Result<Vec<ConfigFile>> {
    let mut files = Vec::new();
    let mut left = vec![dir.join("config")];
    while let Some(next) = left.pop() {
        let entries: Vec<DirEntry> = match fs::read_dir(&next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?.collect::<io::Result<_>>()?,
        };
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                files.extend(config_file(dir, &entry.path(), entry.metadata()?.len())?);
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn config_file(dir: &Path, file: &Path, length: u64) -> io::Result<Option<ConfigFile>> {
    let Ok(path) = file.strip_prefix(dir) else { return Ok(None) };
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    // A file belongs to the directory of an approach. One directly in `config/` is ignored.
    let [_, approach, _, ..] = parts.as_slice() else { return Ok(None) };
    let text = if length <= MAX_SHOWN { String::from_utf8(fs::read(file)?).ok() } else { None };
    Ok(Some(ConfigFile { approach: approach.clone(), path: parts.join("/"), text }))
}

/// Returns the default directory for a run of `experiment` that began at `date` (RFC 3339).
pub fn default_directory(date: &str, experiment: &str) -> PathBuf {
    // Colons in paths have a meaning to many programs.
    Path::new("lab-runs").join(format!("{}-{experiment}", date.replace(':', "")))
}

/// Writes objects over several lines and lists of numbers in one line, which suits readers and `diff`.
#[derive(Default)]
struct Lines(PrettyFormatter<'static>);

impl Formatter for Lines {
    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        CompactFormatter.begin_array_value(writer, first)
    }
}

fn json(run: &RunFile) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    run.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Lines::default()))?;
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// Returns `latency.csv`. Names of classes and phases contain neither commas nor quotes, but those of
/// approaches may.
fn latency(run: &RunFile) -> String {
    let mut csv = String::from("approach,seed,phase,class,count,p50_ms,p90_ms,p95_ms,p99_ms,p99.9_ms,max_ms\n");
    let word = |word: &str| {
        let plain = !word.contains([',', '"', '\n', '\r']);
        if plain { word.to_owned() } else { format!("\"{}\"", word.replace('"', "\"\"")) }
    };
    for trial in &run.trials {
        for row in &trial.latency {
            let names = [word(&trial.approach), trial.seed.to_string(), word(&row.phase), word(&row.class)];
            let times = [row.p50, row.p90, row.p95, row.p99, row.p99_9, row.max].map(|ms| format!("{ms:.3}"));
            csv += &format!("{},{},{}\n", names.join(","), row.count, times.join(","));
        }
    }
    csv
}
