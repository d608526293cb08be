//! The live view.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table, Wrap};
use weirgate_wire::admin::{Class, EventKind};

use super::{Look, table};
use crate::keys::asked_to_end;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// Time between two readings of the keyboard: a key is obeyed at once.
const KEYS: Duration = Duration::from_millis(50);

/// Shows looks until a key ends it. If the gateway does not answer, the last look stays, with the reason.
pub(super) fn follow(first: Look, mut look: impl FnMut() -> Result<Look, String>) -> Result<(), String> {
    let mut terminal = ratatui::try_init().map_err(|error| format!("terminal: {error}"))?;
    let (mut shown, mut lost) = (first, None);
    let mut show = || -> std::io::Result<()> {
        loop {
            terminal.draw(|frame| draw(frame, &shown, lost.as_deref()))?;
            let clock = weirgate_clock::Clock::start();
            while clock.now() < EVERY {
                if asked_to_end()? {
                    return Ok(());
                }
                weirgate_clock::pause(KEYS);
            }
            match look() {
                Ok(look) => (shown, lost) = (look, None),
                Err(why) => lost = Some(why),
            }
        }
    };
    let ended = show();
    ended.and(ratatui::try_restore()).map_err(|error| format!("terminal: {error}"))
}

fn draw(frame: &mut Frame<'_>, look: &Look, lost: Option<&str>) {
    let (refusals, windows, unusable) = (table::refusals(look), table::windows(look), table::unusable(look));
    let observed = table::observed(look);
    let in_flight_and_known: Vec<String> =
        windows.into_iter().chain(table::site(look)).chain(table::followed(look)).collect();
    let height = |lines: usize| u16::try_from(lines).unwrap_or(u16::MAX);
    let below = match refusals.len() + unusable.len() + observed.len() {
        0 => 0,
        lines => height(lines).min(8) + 2,
    };
    let classes = height(look.classes.len()) + 3;
    let rows = [
        Constraint::Length(3),
        Constraint::Max(classes),
        Constraint::Length(below),
        Constraint::Length(height(in_flight_and_known.len()).min(8) + 2),
        Constraint::Min(3),
    ];
    let [head, classes, refused, in_flight, changes] = Layout::vertical(rows).areas(frame.area());
    draw_head(frame, head, look, lost);
    draw_classes(frame, classes, look);
    let warn = Style::new().fg(Color::Yellow);
    let lines = refusals.into_iter().chain(unusable).chain(observed);
    let lines = lines.map(|text| Line::styled(text, warn)).collect();
    block(frame, refused, " refused, not usable, observed ", lines);
    block(frame, in_flight, " in flight ", in_flight_and_known.into_iter().map(Line::from).collect());
    block(
        frame,
        changes,
        " changes ",
        look.events
            .events
            .iter()
            .rev()
            .map(|event| {
                Line::from(vec![
                    Span::styled(
                        format!("{:>8} ago ", table::ago(look, event.at_seconds)),
                        Style::new().fg(Color::DarkGray),
                    ),
                    Span::styled(event.text.clone(), tone(event.kind)),
                ])
            })
            .collect(),
    );
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, look: &Look, lost: Option<&str>) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let verdict = match (lost, look.holds()) {
        (Some(why), _) => Span::styled(format!("no answer, the figures are old: {why}"), bold.fg(Color::Red)),
        (None, true) => Span::styled("✔ all guarantees are held", bold.fg(Color::Green)),
        (None, false) => Span::styled("✘ guarantees are MISSED", bold.fg(Color::Red)),
    };
    let title = vec![Span::styled("Weirgate ", bold), Span::raw(table::title(look)), Span::raw("  q ends")];
    let lines = vec![Line::from(title), Line::from(verdict), Line::from(table::summary(look))];
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_classes(frame: &mut Frame<'_>, area: Rect, look: &Look) {
    let line = |class: &&Class| {
        let style = match (table::misses(class), class.achieved.shed_per_second > 0.0) {
            (true, _) => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            (false, true) => Style::new().fg(Color::Yellow),
            (false, false) => Style::new(),
        };
        Row::new(table::row(class)).style(style)
    };
    let ordered = table::ordered(look);
    let room = usize::from(area.height.saturating_sub(3));
    let title = match (ordered.len() > room, look.more) {
        (false, false) => " classes ".to_owned(),
        _ => format!(" classes, {} of {} ", room.min(ordered.len()), look.engine.classes),
    };
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(6),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(14),
        Constraint::Length(13),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(11),
    ];
    let header = Row::new(table::TITLES).style(Style::new().fg(Color::DarkGray));
    let rows = ordered.iter().take(room).map(line);
    let block = Block::bordered().title(title).border_style(Style::new().fg(Color::DarkGray));
    frame.render_widget(Table::new(rows, widths).header(header).block(block), area);
}

fn block(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<Line<'_>>) {
    if area.height > 0 {
        let block = Block::bordered().title(title).border_style(Style::new().fg(Color::DarkGray));
        frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }).block(block), area);
    }
}

fn tone(kind: EventKind) -> Style {
    use EventKind::{
        GuaranteeHeld, GuaranteeMissed, LimitImpossible, LimitPossible, NodeAppeared, NodeDown, NodeEjected, NodeUp,
        SheddingEnded, UpstreamUnusable, UpstreamUsable,
    };
    match kind {
        NodeUp | NodeAppeared | UpstreamUsable | SheddingEnded | GuaranteeHeld | LimitPossible => {
            Style::new().fg(Color::Green)
        }
        NodeDown | NodeEjected | UpstreamUnusable | GuaranteeMissed | LimitImpossible => Style::new().fg(Color::Red),
        _ => Style::new(),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
