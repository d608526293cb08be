//! How the command ends: 0 done, 1 the answer is no or it cannot be done, 2 the command line is wrong
//! (clap's own).

use std::io::{self, Write};
use std::process::ExitCode;

/// The answer is no, or it cannot be done.
pub(crate) const NO: u8 = 1;

/// Prints `text` to standard output. A reader that has left (`| head`) is no error.
pub(crate) fn print(text: &str) -> ExitCode {
    match write(text) {
        Err(error) => fail(&format!("cannot write to standard output: {error}")),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Writes `text` to standard output. A reader that has left is no error.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Says on standard error why it cannot be done.
pub(crate) fn fail(why: &str) -> ExitCode {
    say(why);
    ExitCode::from(NO)
}

/// Says something to people, each line with the program's name.
pub(crate) fn say(text: &str) {
    text.lines().for_each(|line| tell(&format!("weirgate: {line}\n")));
}

/// Says something to people as it is. That nobody listens is no reason to stop.
pub(crate) fn tell(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
