//! The live view.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table, Wrap};
use weirgate_wire::admin::{Class, EventKind};

use super::{Look, site, table};
use crate::keys::asked_to_end;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// Time between two readings of the keyboard: a key is obeyed at once.
const KEYS: Duration = Duration::from_millis(50);

/// Maximum number of gateways in the table of the site, and the number that is shown on any terminal.
const GATEWAYS: (usize, usize) = (10, 2);

/// Lines for the parts that have no figures of their own: the head, the changes, borders and titles.
const FRAME: usize = 14;

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
    let in_flight_and_known: Vec<String> = windows.into_iter().chain(table::followed(look)).collect();
    let height = |lines: usize| u16::try_from(lines).unwrap_or(u16::MAX);
    let below = match refusals.len() + unusable.len() + observed.len() {
        0 => 0,
        lines => height(lines).min(8) + 2,
    };
    let classes = height(look.classes.len()) + 3;
    let of_site = site_lines(frame.area(), look, look.classes.len() + usize::from(below) + in_flight_and_known.len());
    let site = if of_site.is_empty() { 0 } else { height(of_site.len()) + 2 };
    let rows = [
        Constraint::Length(3),
        Constraint::Max(classes),
        Constraint::Length(below),
        Constraint::Length(height(in_flight_and_known.len()).min(8) + 2),
        Constraint::Length(site),
        Constraint::Min(3),
    ];
    let [head, classes, refused, in_flight, site, changes] = Layout::vertical(rows).areas(frame.area());
    draw_head(frame, head, look, lost);
    draw_classes(frame, classes, look);
    let warn = Style::new().fg(Color::Yellow);
    let lines = refusals.into_iter().chain(unusable).chain(observed);
    let lines = lines.map(|text| Line::styled(text, warn)).collect();
    block(frame, refused, " refused, not usable, observed ", lines);
    block(frame, in_flight, " in flight ", in_flight_and_known.into_iter().map(Line::from).collect());
    let border = Block::bordered().title(" site ").border_style(Style::new().fg(Color::DarkGray));
    frame.render_widget(Paragraph::new(of_site).block(border), site);
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

/// Returns the lines of the site, each within the width of the block. `others` is the number of other lines.
fn site_lines(area: Rect, look: &Look, others: usize) -> Vec<Line<'static>> {
    let width = usize::from(area.width.saturating_sub(2)).max(1);
    let mut lines: Vec<Line<'_>> =
        site::lines(look).iter().flat_map(|line| wrapped(line, width)).map(Line::from).collect();
    let room = usize::from(area.height).saturating_sub(FRAME + others + lines.len());
    let table = site::table(look, width, room.clamp(GATEWAYS.1, GATEWAYS.0));
    let last = table.len().saturating_sub(1);
    let style = |index| match index {
        0 | 1 => Style::new().fg(Color::DarkGray),
        _ if index == last => Style::new().add_modifier(Modifier::BOLD),
        _ => Style::new(),
    };
    lines.extend(table.into_iter().enumerate().map(|(index, line)| Line::styled(line, style(index))));
    lines
}

/// Returns a text in lines of at most `width` characters, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if last.is_empty() {
            *last += word;
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            *last += " ";
            *last += word;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
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

/// Width below which the classes have fewer columns, so that there is room for their names.
const NARROW: u16 = 110;

/// Columns of classes on narrow terminals, by index: without limit, observed refusals, and requests waiting.
const NARROW_COLUMNS: [usize; 7] = [0, 1, 2, 3, 4, 5, 7];

fn draw_classes(frame: &mut Frame<'_>, area: Rect, look: &Look) {
    fn chosen<T, const N: usize>(columns: [T; N], is_narrow: bool) -> Vec<T> {
        let kept = |index: &usize| !is_narrow || NARROW_COLUMNS.contains(index);
        columns.into_iter().enumerate().filter(|(index, _)| kept(index)).map(|(_, column)| column).collect()
    }
    let is_narrow = area.width < NARROW;
    let line = |class: &&Class| {
        let style = match (table::misses(class), class.achieved.shed_per_second > 0.0) {
            (true, _) => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            (false, true) => Style::new().fg(Color::Yellow),
            (false, false) => Style::new(),
        };
        Row::new(chosen(table::row(class), is_narrow)).style(style)
    };
    let ordered = table::ordered(look);
    let room = usize::from(area.height.saturating_sub(3));
    let title = match (ordered.len() > room, look.more) {
        (false, false) => " classes ".to_owned(),
        _ => format!(" classes, {} of {} ", room.min(ordered.len()), look.engine.classes),
    };
    let widths = chosen(
        [
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
        ],
        is_narrow,
    );
    let header = Row::new(chosen(table::TITLES, is_narrow)).style(Style::new().fg(Color::DarkGray));
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
