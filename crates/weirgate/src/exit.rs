//! Exit codes of the command: 0 done, 1 the answer is no or the command failed, 2 the command line is wrong
//! (clap's own).

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;
use weirgate_log::Level;

/// The answer is no, or the command failed.
pub(crate) const NO: u8 = 1;

/// The command could not be run, where code 1 is kept for guarantees that were missed.
pub(crate) const CANNOT: u8 = 2;

/// Prints `text` to standard output. A reader that has left (`| head`) is no error.
pub(crate) fn print(text: &str) -> ExitCode {
    match write(text) {
        Err(error) => fail(&format!("cannot write to standard output: {error}")),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Prints a value as JSON, as [`print()`] does.
pub(crate) fn print_json(value: &impl Serialize) -> ExitCode {
    match json(value) {
        Ok(text) => print(&text),
        Err(why) => fail(&why),
    }
}

/// Returns a value as lines of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// Writes `text` to standard output. A reader that has left is no error.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Reports a failure on standard error.
pub(crate) fn fail(why: &str) -> ExitCode {
    weirgate_log::say(Level::Error, why);
    ExitCode::from(NO)
}

/// Returns the code of an answer.
pub(crate) fn answer(yes: bool) -> ExitCode {
    if yes { ExitCode::SUCCESS } else { ExitCode::from(NO) }
}

/// Writes to standard error, as [`tell`] does, why the command could not be run.
pub(crate) fn cannot_as_told(text: &str) -> ExitCode {
    tell(text);
    ExitCode::from(CANNOT)
}

/// Says on standard error why the command could not be run.
pub(crate) fn cannot(why: &str) -> ExitCode {
    say(why);
    ExitCode::from(CANNOT)
}

/// Writes a message for people to standard error, each line with the program's name.
pub(crate) fn say(text: &str) {
    weirgate_log::say(Level::Info, text);
}

/// Writes a message for people to standard error as it is. A closed standard error is no reason to stop.
pub(crate) fn tell(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
