//! Messages of the process on standard error, for people, log collectors and systemd's journal.
//!
//! All messages of a running process go through [`write()`], those of code that must not block by way of [`pass()`].
//! As text, a line begins with `weirgate: `, and the reader of standard error adds the time. As JSON, a message is one
//! object on one line. If standard error is the journal, a line also begins with its priority, `<4>` for example, which
//! the journal takes off (sd-daemon(3), `JOURNAL_STREAM` of systemd.exec(5)).
//!
//! The `tracing` library is not used: there are a few messages a second, they have no spans, and the data plane writes
//! none of them.
#![forbid(unsafe_code)]

mod queue;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

pub use queue::pass;

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Requests of clients fail because of it, or something that was asked for was not done.
    Error,
    /// It needs attention.
    Warning,
    /// All is well.
    Info,
}

/// All levels, the gravest first.
const LEVELS: [Level; 3] = [Level::Error, Level::Warning, Level::Info];

impl Level {
    /// Returns the name in messages and in the policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
        }
    }

    /// Returns the priority of syslog (RFC 5424 section 6.2.1).
    const fn priority(self) -> u8 {
        match self {
            Level::Error => 3,
            Level::Warning => 4,
            Level::Info => 6,
        }
    }
}

/// Form of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines that begin with `weirgate: `.
    Text,
    /// One object a line: `time`, `level`, `event` if it is one, and `message`.
    Json,
}

/// Which messages are written, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Their form.
    pub format: Format,
    /// The least grave level that is written.
    pub level: Level,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { format: Format::Text, level: Level::Info }
    }
}

/// A message for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// How much it matters.
    pub level: Level,
    /// The kind of the event that it tells, if it does.
    pub event: Option<String>,
    /// Whether its lines name a place in a file, as compilers do, and therefore not the program.
    pub located: bool,
    /// One or more lines.
    pub text: String,
}

impl Message {
    /// Creates a message that tells no event.
    pub fn new(level: Level, text: impl Into<String>) -> Message {
        Message { level, event: None, located: false, text: text.into() }
    }
}

/// The level and the form in force, as indices. They are independent, so no lock is needed.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static JSON: AtomicU8 = AtomicU8::new(0);

/// Puts `settings` in force for later messages of this process.
pub fn follow(settings: Settings) {
    LEVEL.store(settings.level as u8, Ordering::Relaxed);
    JSON.store(u8::from(settings.format == Format::Json), Ordering::Relaxed);
}

fn settings() -> Settings {
    let level = LEVELS.get(usize::from(LEVEL.load(Ordering::Relaxed))).copied().unwrap_or(Level::Info);
    Settings { format: if JSON.load(Ordering::Relaxed) == 1 { Format::Json } else { Format::Text }, level }
}

/// Writes `text` with the program's name. Blocks while a reader of standard error is slow.
pub fn say(level: Level, text: &str) {
    write(&[Message::new(level, text)]);
}

/// Writes lines that name a place in a file. Blocks while a reader of standard error is slow.
pub fn located(level: Level, text: &str) {
    write(&[Message { located: true, ..Message::new(level, text) }]);
}

/// Writes messages in one piece. Blocks while a reader of standard error is slow. A closed standard error is no error.
pub fn write(messages: &[Message]) {
    let mut lines = String::new();
    for message in messages {
        render(&mut lines, message, settings(), is_journal(), weirgate_clock::calendar());
    }
    let _ = io::stderr().lock().write_all(lines.as_bytes());
}

/// Returns whether standard error is the journal: its device and inode are in `JOURNAL_STREAM`. A child whose standard
/// error is something else inherits the variable, too.
fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| {
        let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
        fs::metadata("/proc/self/fd/2").is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
    })
}

/// Appends the lines of `message`, which is written at `now`. One without text has none: some are made of a list of
/// remarks, which may be empty.
fn render(lines: &mut String, message: &Message, settings: Settings, journal: bool, now: SystemTime) {
    if message.level > settings.level || message.text.trim().is_empty() {
        return;
    }
    let priority = if journal { format!("<{}>", message.level.priority()) } else { String::new() };
    // Writing to a string does not fail.
    match settings.format {
        Format::Text => {
            let name = if message.located { "" } else { "weirgate: " };
            for line in message.text.lines() {
                let _ = writeln!(lines, "{priority}{name}{line}");
            }
        }
        Format::Json => {
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            let _ = write!(lines, "{priority}{{\"time\":\"{}\"", weirgate_clock::rfc3339(now));
            let _ = write!(lines, ",\"level\":\"{}\"", message.level.as_str());
            if let Some(event) = &message.event {
                let _ = write!(lines, ",\"event\":{}", quoted(event));
            }
            let _ = writeln!(lines, ",\"message\":{}}}", quoted(message.text.trim_end()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn rendered(message: &Message, format: Format, level: Level, journal: bool) -> String {
        let mut lines = String::new();
        render(&mut lines, message, Settings { format, level }, journal, UNIX_EPOCH);
        lines
    }

    #[test]
    fn text_names_the_program_in_each_line_and_the_journal_gets_priorities() {
        let message = Message::new(Level::Warning, "one\ntwo\n");
        assert_eq!(rendered(&message, Format::Text, Level::Info, false), "weirgate: one\nweirgate: two\n");
        assert_eq!(rendered(&message, Format::Text, Level::Info, true), "<4>weirgate: one\n<4>weirgate: two\n");
        let located = Message { located: true, ..Message::new(Level::Error, "policy.yaml:4:1: wrong\n") };
        assert_eq!(rendered(&located, Format::Text, Level::Info, true), "<3>policy.yaml:4:1: wrong\n");
    }

    #[test]
    fn json_is_one_line_whatever_the_text() {
        let text = "a \"b\"\n\u{1b}[2J\u{7f}\n";
        let message = Message { event: Some("node_down".into()), ..Message::new(Level::Error, text) };
        let line = rendered(&message, Format::Json, Level::Error, false);
        assert_eq!(line.matches('\n').count(), 1);
        let json: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:00.000Z", "level": "error", "event": "node_down", "message": text.trim_end()
        });
        assert_eq!(json, expected);
        assert!(rendered(&message, Format::Json, Level::Info, true).starts_with("<3>{"));
        assert_eq!(rendered(&Message::new(Level::Error, "\n"), Format::Json, Level::Info, true), "", "nothing to say");
    }

    #[test]
    fn less_grave_messages_are_left_out() {
        for (at, wanted) in LEVELS.iter().enumerate() {
            for (nth, level) in LEVELS.iter().enumerate() {
                let line = rendered(&Message::new(*level, "x"), Format::Text, *wanted, false);
                assert_eq!(!line.is_empty(), nth <= at, "{level:?} at {wanted:?}");
            }
        }
    }

    #[test]
    fn settings_are_kept_as_they_are_given() {
        for level in LEVELS {
            for format in [Format::Json, Format::Text] {
                follow(Settings { format, level });
                assert_eq!(settings(), Settings { format, level });
            }
        }
        follow(Settings::default());
    }
}
