//! The live view of the demo: throughput and response time of each class against its guarantee, the window and the
//! queues of the gateway, and the time that has passed.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph};

use weirgate_lab::trial::{Outcome, Trial};

use super::progress::{Doing, Point, Progress, millis, statistic};
use super::signals::Stop;
use super::{guarantee, story};
use crate::keys::asked_to_end;

/// Length of the charts in seconds: the last minute.
const SHOWN: f64 = 60.0;

/// Width of the figures of a class, left of its charts, in columns.
const FIGURES: u16 = 36;

/// Plays the trial and draws its progress in the alternate screen, which is left in any case. Keys are read at every
/// look, twice a second.
pub(crate) fn follow(trial: &Trial<'_>, progress: &mut Progress, stop: &Stop) -> Result<Outcome, String> {
    let mut terminal = ratatui::try_init().map_err(|error| format!("terminal: {error}"))?;
    // Terminals without an alternate screen still show earlier output.
    let mut drawn = terminal.clear();
    let outcome = super::play(trial, progress, stop, |progress| {
        let look = terminal.draw(|frame| draw(frame, progress)).and_then(|_| asked_to_end());
        match look {
            Ok(false) => {}
            Ok(true) => stop.ask(),
            Err(error) => {
                drawn = Err(error);
                stop.ask();
            }
        }
    });
    let restored = ratatui::try_restore();
    drawn.and(restored).map_err(|error| format!("terminal: {error}"))?;
    outcome
}

fn draw(frame: &mut Frame<'_>, progress: &Progress) {
    let rows = progress.rows();
    let mut parts = vec![Constraint::Length(3)];
    parts.extend(vec![Constraint::Fill(1); rows]);
    parts.push(Constraint::Length(4));
    let parts = Layout::vertical(parts).split(frame.area());
    head(frame, parts[0], progress);
    for row in 0..rows {
        draw_row(frame, parts[row + 1], progress, row);
    }
    gateway(frame, parts[rows + 1], progress);
}

/// Draws the title, the phase and the time that has passed.
fn head(frame: &mut Frame<'_>, area: Rect, progress: &Progress) {
    let [title, subtitle, gauge] = Layout::vertical([Constraint::Length(1); 3]).areas(area);
    let (at, all) = (progress.at().as_secs_f64(), progress.experiment.duration().as_secs_f64());
    let name = &progress.experiment.site.policy.discipline.name;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let line = Line::from(vec![
        Span::styled("Weirgate demo", bold),
        Span::raw(format!("  discipline {name}  {}  q ends", progress.addresses)),
    ]);
    frame.render_widget(Paragraph::new(line), title);
    let phase = progress.phase();
    let line = Line::from(vec![
        Span::styled(format!("{}: ", progress.experiment.phases[phase].name), bold.fg(Color::Yellow)),
        Span::raw(story(progress, phase)),
    ]);
    frame.render_widget(Paragraph::new(line), subtitle);
    let left = (all - at).max(0.0);
    let bar = Gauge::default()
        .gauge_style(Style::new().fg(Color::Blue))
        .ratio((at / all).clamp(0.0, 1.0))
        .label(format!("{at:.0} of {all:.0} s, {left:.0} s left"));
    frame.render_widget(bar, gauge);
}

/// Returns the symbol and colour for held and missed. The symbol alone suffices, without the colour.
fn mark(held: Option<bool>) -> Span<'static> {
    match held {
        Some(true) => Span::styled("✔ held", Style::new().fg(Color::Green)),
        Some(false) => Span::styled("✘ MISSED", Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)),
        None => Span::raw(""),
    }
}

fn colour(held: Option<bool>) -> Color {
    match held {
        Some(true) => Color::Green,
        Some(false) => Color::Red,
        None => Color::Gray,
    }
}

fn draw_row(frame: &mut Frame<'_>, area: Rect, progress: &Progress, row: usize) {
    let promised = progress.guarantee(row);
    let doing = progress.doing(row);
    let title = format!(" {}: {} ", progress.name(row), guarantee(&promised));
    let block = Block::bordered().title(title).border_style(Style::new().fg(Color::DarkGray));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let charts = inner.width > 2 * FIGURES && inner.height >= 3;
    let parts = [Constraint::Length(FIGURES), Constraint::Fill(1), Constraint::Fill(1)];
    let [text, throughput, response] =
        if charts { Layout::horizontal(parts).areas(inner) } else { [inner, Rect::ZERO, Rect::ZERO] };
    frame.render_widget(Paragraph::new(figures(progress, row, &doing)), text);
    if charts {
        let floor = promised.throughput;
        draw_chart(frame, throughput, "served/s", series(progress, row, |p| Some(p.0)), floor, doing.floor_held);
        let limit = promised.response_time.map(|time| time.limit.as_secs_f64() * 1e3);
        draw_chart(frame, response, "ms", series(progress, row, |p| p.1), limit, doing.ceiling_held);
    }
}

fn figures(progress: &Progress, row: usize, doing: &Doing) -> Vec<Line<'static>> {
    let statistic = statistic(&progress.guarantee(row));
    let response = doing.response.map_or("-".to_owned(), millis);
    let of = |figures: &[u32]| figures.get(progress.class_of(row)).copied().unwrap_or(0);
    let (waiting, in_flight) = (of(&progress.state.waiting), of(&progress.state.outstanding_of));
    let plain = Span::raw;
    vec![
        Line::from(vec![
            plain(format!("served {:>4.0}/s of {:>4.0}/s  ", doing.served, doing.sent)),
            mark(doing.floor_held),
        ]),
        Line::from(vec![plain(format!("{statistic} {response:>9}          ")), mark(doing.ceiling_held)]),
        Line::from(format!("shed {:>4.0}/s  failed {:>4.0}/s", doing.shed, doing.failed)),
        Line::from(format!("in flight {in_flight}, waiting {waiting}")),
    ]
}

/// Returns one value of each point over the time in seconds. `value` chooses from the requests served per second and
/// the response time in ms.
fn series(progress: &Progress, row: usize, value: impl Fn((f64, Option<f64>)) -> Option<f64>) -> Vec<(f64, f64)> {
    let one = |point: &Point| {
        let of = point.rows[row];
        let served = of.served as f64 / point.length.as_secs_f64().max(1e-3);
        let response = of.response.map(|r| r.as_secs_f64() * 1e3);
        value((served, response)).map(|v| (point.at.as_secs_f64(), v))
    };
    progress.points.iter().filter_map(one).collect()
}

/// Draws values over time, and the guarantee as a straight line.
fn draw_chart(
    frame: &mut Frame<'_>,
    area: Rect,
    unit: &str,
    values: Vec<(f64, f64)>,
    guarantee: Option<f64>,
    held: Option<bool>,
) {
    let last = values.last().map_or(0.0, |v| v.0);
    let from = (last - SHOWN).max(0.0);
    let to = last.max(from + 10.0);
    let top = values.iter().filter(|v| v.0 >= from).map(|v| v.1).chain(guarantee).fold(1.0, f64::max) * 1.1;
    let promised = guarantee.map(|g| [(from, g), (to, g)]);
    let line = Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line);
    let mut lines = Vec::new();
    if let Some(promised) = &promised {
        lines.push(line.clone().style(Style::new().fg(Color::Yellow)).data(promised));
    }
    lines.push(line.style(Style::new().fg(colour(held))).data(&values));
    let labels = ["0".to_owned(), format!("{top:.0} {unit}")];
    let chart = Chart::new(lines)
        .x_axis(Axis::default().bounds([from, to]))
        .y_axis(Axis::default().bounds([0.0, top]).labels(labels).style(Style::new().fg(Color::DarkGray)))
        .legend_position(None);
    frame.render_widget(chart, area);
}

fn gateway(frame: &mut Frame<'_>, area: Rect, progress: &Progress) {
    let state = &progress.state;
    let block = Block::bordered().title(" gateway ").border_style(Style::new().fg(Color::DarkGray));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let window = state.window.map_or("no limit".to_owned(), |window| window.to_string());
    let nodes: Vec<String> = state.outstanding_at.iter().map(ToString::to_string).collect();
    let waiting: u32 = state.waiting.iter().sum();
    let lines = vec![
        Line::from(format!("window {window} ({})", state.moved)),
        Line::from(format!("in flight {} (per node {}), waiting {waiting}", state.outstanding, nodes.join(" "))),
    ];
    frame.render_widget(Paragraph::new(lines), inner);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::demo::progress::RowPoint;
    use crate::demo::progress::tests::{at_start, second};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(width: u16, height: u16, response: u64) -> String {
        let mut progress = at_start();
        let response = Some(Duration::from_millis(response));
        let gold = RowPoint { sent: 240, served: 240, response, ..RowPoint::default() };
        progress.points = (1..=12).map(|s| second(s, gold)).collect();
        progress.state.moved = "first window: 10".to_owned();
        progress.addresses = "gateway http://127.0.0.1:1".to_owned();
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &progress)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn it_shows_figures_guarantees_and_the_time_left() {
        let text = screen(120, 30, 67);
        for part in [
            "discipline weirgate",
            "gateway http://127.0.0.1:1",
            "surge: gold 240/s of 10 ms, silver 800/s of 10 ms",
            "12 of 40 s, 28 s left",
            "gold: at least 300/s and p95 at most 300 ms",
            "served  240/s of  240/s  ✔ held",
            "67 ms",
            "(first window: ",
        ] {
            assert!(text.contains(part), "{part:?} is missing:\n{text}");
        }
        assert!(!text.contains("MISSED"), "{text}");
        assert!(screen(120, 30, 301).contains("✘ MISSED"));
    }

    #[test]
    fn it_fits_any_terminal() {
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            screen(width, height, 67);
        }
        assert!(screen(80, 24, 67).contains("✔ held"));
    }
}
