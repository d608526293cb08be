//! The live view of the demo: each class's throughput and response time against its guarantee, the window
//! and the queues of the gateway, and how far the demo is.

use std::io;
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph};

use super::progress::{Doing, Progress, millis};
use super::promise;
use super::scenario::Scenario;
use super::signals::Stop;
use super::stage::Stage;

/// A key or the next look at the sockets' figures: four looks a second are smooth and cost nothing.
const LOOK: Duration = Duration::from_millis(250);

/// Charts show the last so many seconds.
const SHOWN: f64 = 60.0;

/// Columns of a class's figures, left of its charts.
const FIGURES: u16 = 36;

/// Follows the run to its end in the alternate screen, which is left in any case.
///
/// # Errors
/// Those of the terminal.
pub(crate) fn follow(scenario: &Scenario, stage: &Stage, progress: &mut Progress, stop: &Stop) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = (|| {
        // Terminals without an alternate screen still show what was there.
        terminal.clear()?;
        while !stage.clients().is_finished() {
            progress.look(scenario, stage);
            terminal.draw(|frame| draw(frame, scenario, &stage.admin_address, progress))?;
            if event::poll(LOOK)? && ends(&event::read()?) {
                stop.ask();
            }
            if stop.asked() {
                stage.clients().stop();
            }
        }
        Ok(())
    })();
    ratatui::try_restore().and(result)
}

/// In raw mode Ctrl-C is a key.
fn ends(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return false };
    match code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

fn draw(frame: &mut Frame<'_>, scenario: &Scenario, admin: &str, progress: &Progress) {
    let classes = scenario.plan.classes.len();
    let mut rows = vec![Constraint::Length(3)];
    rows.extend(vec![Constraint::Fill(1); classes]);
    rows.push(Constraint::Length(4));
    let rows = Layout::vertical(rows).split(frame.area());
    head(frame, rows[0], scenario, admin, progress);
    for class in 0..classes {
        draw_class(frame, rows[class + 1], scenario, progress, class);
    }
    gateway(frame, rows[classes + 1], progress);
}

/// What is going on and how long it takes.
fn head(frame: &mut Frame<'_>, area: Rect, scenario: &Scenario, admin: &str, progress: &Progress) {
    let [title, story, gauge] = Layout::vertical([Constraint::Length(1); 3]).areas(area);
    let (at, all) = (progress.at().as_secs_f64(), scenario.plan.length().as_secs_f64());
    let name = &scenario.site.policy.discipline.name;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let line = Line::from(vec![
        Span::styled("Weirgate demo", bold),
        Span::raw(format!("  discipline {name}  admin {admin}  q ends")),
    ]);
    frame.render_widget(Paragraph::new(line), title);
    let phase = progress.phase();
    let line = Line::from(vec![
        Span::styled(format!("{}: ", scenario.plan.phases[phase].name), bold.fg(Color::Yellow)),
        Span::raw(scenario.stories[phase].clone()),
    ]);
    frame.render_widget(Paragraph::new(line), story);
    let left = (all - at).max(0.0);
    let bar = Gauge::default()
        .gauge_style(Style::new().fg(Color::Blue))
        .ratio((at / all).clamp(0.0, 1.0))
        .label(format!("{at:.0} of {all:.0} s, {left:.0} s left"));
    frame.render_widget(bar, gauge);
}

/// Colour and symbol for held and missed, so that neither has to be seen.
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

fn draw_class(frame: &mut Frame<'_>, area: Rect, scenario: &Scenario, progress: &Progress, class: usize) {
    let plan = &scenario.plan.classes[class];
    let doing = progress.doing(scenario, class);
    let title = format!(" {}: {} ", plan.name, promise(&plan.guarantee));
    let block = Block::bordered().title(title).border_style(Style::new().fg(Color::DarkGray));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let charts = inside.width > 2 * FIGURES && inside.height >= 3;
    let parts = [Constraint::Length(FIGURES), Constraint::Fill(1), Constraint::Fill(1)];
    let [text, throughput, response] =
        if charts { Layout::horizontal(parts).areas(inside) } else { [inside, Rect::ZERO, Rect::ZERO] };
    frame.render_widget(Paragraph::new(figures(scenario, progress, class, &doing)), text);
    if charts {
        let floor = plan.guarantee.throughput;
        draw_chart(frame, throughput, "served/s", series(progress, class, |p| Some(p.0)), floor, doing.floor_held);
        let limit = plan.guarantee.response_time.map(|(_, limit)| limit.as_secs_f64() * 1e3);
        draw_chart(frame, response, "ms", series(progress, class, |p| p.1), limit, doing.ceiling_held);
    }
}

fn figures(scenario: &Scenario, progress: &Progress, class: usize, doing: &Doing) -> Vec<Line<'static>> {
    let guarantee = &scenario.plan.classes[class].guarantee;
    let statistic = guarantee.response_time.map_or("p95".to_owned(), |(which, _)| which.to_string());
    let response = doing.response.map_or("-".to_owned(), millis);
    let (waiting, inside) = progress.classes.get(class).map_or((0, 0), |c| (c.waiting, c.outstanding));
    let plain = Span::raw;
    vec![
        Line::from(vec![
            plain(format!("served {:>4.0}/s of {:>4.0}/s  ", doing.served, doing.asked)),
            mark(doing.floor_held),
        ]),
        Line::from(vec![plain(format!("{statistic} {response:>9}          ")), mark(doing.ceiling_held)]),
        Line::from(format!("shed {:>4.0}/s  failed {:>4.0}/s", doing.shed, doing.failed)),
        Line::from(format!("inside {inside}, waiting {waiting}")),
    ]
}

/// One value of each point, over the time in seconds: of (served per second, response time in ms).
fn series(progress: &Progress, class: usize, value: impl Fn((f64, Option<f64>)) -> Option<f64>) -> Vec<(f64, f64)> {
    let one = |point: &weirgate_emulator::client::Point| {
        let of = point.classes[class];
        let served = of.served as f64 / point.length.as_secs_f64().max(1e-3);
        let response = of.response.map(|r| r.as_secs_f64() * 1e3);
        value((served, response)).map(|v| (point.at.as_secs_f64(), v))
    };
    progress.points.iter().filter_map(one).collect()
}

/// A line over time, with the guarantee as a straight one.
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
    let gateway = &progress.gateway;
    let block = Block::bordered().title(" gateway ").border_style(Style::new().fg(Color::DarkGray));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let window = gateway.window.map_or("no limit".to_owned(), |w| w.to_string());
    let nodes: Vec<String> = gateway.nodes.iter().map(|n| n.outstanding.to_string()).collect();
    let lines = vec![
        Line::from(format!("window {window} ({})", progress.why())),
        Line::from(format!(
            "inside {} (per node {}), waiting {}",
            gateway.outstanding,
            nodes.join(" "),
            gateway.waiting
        )),
    ];
    frame.render_widget(Paragraph::new(lines), inside);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::progress::tests::{at_start, second};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use weirgate_emulator::client::ClassPoint;

    /// The screen as text.
    fn screen(width: u16, height: u16, response: u64) -> String {
        let (scenario, mut progress) = at_start();
        let response = Some(Duration::from_millis(response));
        let gold = ClassPoint { arrivals: 240, served: 240, response, ..ClassPoint::default() };
        progress.points = (1..=12).map(|s| second(s, 1, gold)).collect();
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &scenario, "http://127.0.0.1:1", &progress)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn it_shows_figures_guarantees_and_the_time_left() {
        let text = screen(120, 30, 67);
        for part in [
            "discipline weirgate",
            "admin http://127.0.0.1:1",
            "surge: silver asks for 4 times as much",
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

    #[test]
    fn three_keys_end_it() {
        let key = |code, modifiers| ends(&Event::Key(KeyEvent::new(code, modifiers)));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL) && key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && !key(KeyCode::Char('c'), KeyModifiers::NONE));
    }
}
