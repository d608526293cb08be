//! The keys that end a live view in the terminal.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Reads the keys that were pressed, and returns whether one of them ends the view.
pub(crate) fn asked_to_end() -> io::Result<bool> {
    let mut asked = false;
    while event::poll(Duration::ZERO)? {
        asked |= ends(&event::read()?);
    }
    Ok(asked)
}

/// Whether the key ends the view. In raw mode Ctrl-C is a key.
fn ends(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return false };
    match code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_keys_end_it() {
        let key = |code, modifiers| ends(&Event::Key(KeyEvent::new(code, modifiers)));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL) && key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && !key(KeyCode::Char('c'), KeyModifiers::NONE));
    }
}
