//! What the answers of a machine say about an assumed number of workers.
//!
//! Of an answer there are three figures. *k* is the assumed number:
//! - its *time*: ln(nanoseconds since a worker took it),
//! - its *stretch*: ln(time in flight / time since a worker took it), 0 if it did not wait, and bounded,
//! - its *crowd*: 1 − *k* / requests in flight at its release, or 0 if it did not wait.
//!
//! If *k* is right, the time does not depend on the crowd. If there are more workers, a part of the time in flight
//! that counts as a wait was none, and the time falls as the crowd grows. If there are fewer, a part of the wait
//! counts as time, which grows. With a quarter more workers, the time would fall by ln(1 + ¼) at most, so the stretch
//! counts up to that. Without the bound, one worker would explain what two of them do with a long queue: half the
//! time, but a fourteenth of the stretch. The test is halfway: *k* is too small if time + stretch / 2 falls as the
//! crowd grows, and too large if time − stretch / 2 grows. How a figure changes with the crowd is the slope of a line
//! through all answers, and its certainty is the slope in standard errors.
//!
//! The crowd is known at the release and owes nothing to the request itself. The stretch is no substitute for it: a
//! short request has a large one, because it is short.
//!
//! All figures are relative to the usual ones of the class, which follow its latest answers closely. So a class that
//! takes longer from some moment on shifts about ten answers, and not all that follow.

/// Number of answers with a larger crowd than usual, and of ones with a smaller one, from which there is a verdict.
/// With fewer, the standard error is itself uncertain.
const FEW: f64 = 10.0;

/// Number of standard errors from which a slope is certain. There is a look at each answer, so that three would be
/// reached by chance in a few minutes.
const CERTAIN: f64 = 4.0;

/// Number of answers that overtook as many others as *k* workers allow, from which on the order says as much as the
/// slopes. Times that vary much say little by their means, and much by who overtakes whom.
const OVERTAKEN: f64 = 60.0;

/// Number of answers from which on the earlier ones count for half: a number that no longer holds is noticed within
/// about as many.
const KEPT: f64 = 1000.0;

/// Smallest variance of a figure about its line: 5 % of a time. Answers that are more equal than clocks and networks
/// are would make any slope certain.
const MIN_VARIANCE: f64 = 0.05 * 0.05;

/// Weight of an answer in the usual figures of its class: ten answers leave a tenth of a change. With a quarter of it,
/// a crowd behind a database that becomes slow hides workers. With twice of it, pools of eight are found later.
const FOLLOWS: f64 = 0.2;

/// The figures of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::dispatch) struct Figures {
    pub(super) time: f64,
    pub(super) stretch: f64,
    pub(super) crowd: f64,
}

/// What the answers say about the assumed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Open,
    TooSmall,
    Right,
    TooLarge,
}

/// The answers so far, without those that have faded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    /// time + stretch / 2 along the crowd.
    lower: Line,
    /// time − stretch / 2 along the crowd.
    upper: Line,
    /// Answers with a larger and with a smaller crowd than usual.
    larger: f64,
    smaller: f64,
    overtook: f64,
}

/// A straight line through points (x, y), by their sums.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    points: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Line {
    fn add(&mut self, x: f64, y: f64) {
        self.points += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.yy += y * y;
        self.xy += x * y;
    }

    /// Returns its slope in standard errors.
    fn slope(&self) -> f64 {
        let Line { points, x, y, .. } = *self;
        let xx = self.xx - x * x / points;
        let xy = self.xy - x * y / points;
        let apart = self.yy - y * y / points - xy * xy / xx;
        xy / (apart.max(points * MIN_VARIANCE) * xx / points).sqrt()
    }

    fn halve(&mut self) {
        let Line { points, x, y, xx, yy, xy } = self;
        [points, x, y, xx, yy, xy].into_iter().for_each(|sum| *sum /= 2.0);
    }
}

impl Evidence {
    /// Adds an answer, relative to the usual ones of its class, which follow it.
    pub(super) fn add(&mut self, answer: Figures, usual: &mut Option<Figures>) {
        let Some(usual) = usual else {
            *usual = Some(answer);
            return;
        };
        let time = answer.time - usual.time;
        let stretch = answer.stretch - usual.stretch;
        let crowd = answer.crowd - usual.crowd;
        usual.time += FOLLOWS * time;
        usual.stretch += FOLLOWS * stretch;
        usual.crowd += FOLLOWS * crowd;
        self.lower.add(crowd, time + stretch / 2.0);
        self.upper.add(crowd, time - stretch / 2.0);
        self.larger += f64::from(crowd > 0.0);
        self.smaller += f64::from(crowd < 0.0);
        if self.lower.points >= KEPT {
            self.halve();
        }
    }

    /// Counts an answer that overtook as many others as the assumed workers allow.
    pub(super) fn overtook(&mut self) {
        self.overtook += 1.0;
    }

    /// Whether hardly any request has waited by the assumed number.
    pub(super) fn nobody_waits(&self) -> bool {
        self.larger < FEW
    }

    pub(super) fn verdict(&self) -> Verdict {
        if self.larger.min(self.smaller) < FEW {
            return Verdict::Open;
        }
        let lower = self.lower.slope();
        if lower < -CERTAIN {
            Verdict::TooSmall
        } else if self.upper.slope() > CERTAIN {
            Verdict::TooLarge
        } else if lower > CERTAIN || (lower > 0.0 && self.overtook >= OVERTAKEN) {
            Verdict::Right
        } else {
            Verdict::Open
        }
    }

    fn halve(&mut self) {
        [&mut self.lower, &mut self.upper].into_iter().for_each(Line::halve);
        [&mut self.larger, &mut self.smaller, &mut self.overtook].into_iter().for_each(|count| *count /= 2.0);
    }
}
