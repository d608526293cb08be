//! Stage *observe*: export of traces and metrics to a collector, by OTLP over HTTP.
//!
//! Sources: OTLP 1 (requests, answers, retries) and OpenTelemetry's semantic conventions. `otlp` has the JSON,
//! `span` makes the span of a request, `metrics` turns the page for Prometheus into metrics, and `collector` sends
//! both.
//!
//! A request never waits for the collector. The serving thread writes the span of a sampled request as JSON and adds it
//! to a bounded list. One thread of its own sends the list once a second, and the metrics at their times. If the
//! collector is slow or gone, the list fills up, and further spans are lost and counted. Metrics are counts since the
//! start, so a missed export of them is made up for by the next one.

mod collector;
mod metrics;
mod otlp;
mod span;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use tokio::sync::Notify;
use weirgate_clock::Clock;
use weirgate_config::Telemetry as Config;
use weirgate_log::Level;

use crate::admin::{Operations, scrape};
use crate::record::{AccessRecord, Observer};
use collector::{Collector, Failure, To};
use otlp::Resource;

/// Maximum size of the spans that wait, in bytes: about 3,000 spans. Receivers accept 20 MiB by default.
const MAX_PENDING: usize = 4 << 20;

/// Time between two exports of spans, unless a half of [`MAX_PENDING`] waits. The OpenTelemetry SDKs have five seconds,
/// but a gateway has many spans, and a person who looks for one should not wait for it.
const SPANS_EVERY: Duration = Duration::from_secs(1);

/// Attempts to send spans before they are lost.
const MAX_ATTEMPTS: u32 = 5;

/// Time after the first attempt that failed. It doubles with each further one, to 8 s: 15 s together, which a restart
/// of a collector takes.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Maximum time for which the end of the process waits for the last export. A collector that does not answer must not
/// block it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Traces and metrics for a collector. They are exported while the policy has `telemetry`.
#[derive(Debug)]
pub struct Telemetry {
    pending: Mutex<Pending>,
    /// Signals the end of the exporter.
    ended: Condvar,
    /// Wakes the exporter before its time.
    wake: Notify,
    /// Start of the counts, in nanoseconds since 1970.
    start: u64,
    exported: AtomicU64,
    lost: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct Pending {
    spans: Vec<String>,
    bytes: usize,
    /// Whether there is an exporter that has not ended.
    serving: bool,
    closing: bool,
}

impl Default for Telemetry {
    fn default() -> Telemetry {
        Telemetry {
            pending: Mutex::default(),
            ended: Condvar::new(),
            wake: Notify::new(),
            start: nanos(),
            exported: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }
}

impl Telemetry {
    /// Starts the thread that exports the spans of requests, and the metrics of `operations`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve(self: &Arc<Self>, operations: Arc<Operations>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let telemetry = Arc::clone(self);
        self.lock().serving = true;
        let run = move || {
            runtime.block_on(telemetry.export(&operations));
            // A name may still be looked up on a thread. Nothing waits for its result.
            runtime.shutdown_background();
            telemetry.lock().serving = false;
            telemetry.ended.notify_all();
        };
        let started = std::thread::Builder::new().name("weirgate-otlp".into()).spawn(run);
        started.map(drop).inspect_err(|_| self.lock().serving = false)
    }

    /// Exports once more, as far as possible within two seconds, and ends the exporter.
    pub fn close(&self) {
        let mut pending = self.lock();
        pending.closing = true;
        self.wake.notify_one();
        // Ignore a timeout: the exporter holds nothing that the rest of the process needs.
        let _ = self.ended.wait_timeout_while(pending, PATIENCE, |pending| pending.serving);
    }

    /// Number of spans that the collector has taken.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Number of spans lost because too many waited, or because the collector did not take them.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Number of exports of spans or metrics that failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a span, unless too many wait. Runs on the serving thread.
    fn add(&self, span: String) {
        let mut pending = self.lock();
        let before = pending.bytes;
        // The comma between two spans counts too.
        let after = before + span.len() + 1;
        if after > MAX_PENDING || pending.closing {
            drop(pending);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        pending.bytes = after;
        pending.spans.push(span);
        drop(pending);
        if before < MAX_PENDING / 2 && after >= MAX_PENDING / 2 {
            self.wake.notify_one();
        }
    }

    /// Takes the spans that wait.
    fn take(&self) -> Vec<String> {
        let mut pending = self.lock();
        pending.bytes = 0;
        std::mem::take(&mut pending.spans)
    }

    /// Exports until the end of the process.
    async fn export(&self, operations: &Operations) {
        let clock = Clock::start();
        let mut collector = Collector::default();
        let mut spans = Spans::default();
        let mut down = [false; 2];
        let mut metrics_at = Duration::ZERO;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        loop {
            // The result says only which of the two came first.
            let _ = weirgate_clock::within(SPANS_EVERY, self.wake.notified()).await;
            let closing = self.lock().closing;
            let active_config = operations.gateway().active_config();
            if let Some(config) = &active_config.site.telemetry {
                let resource =
                    Resource { service: config.service.clone(), host: host.clone(), process: std::process::id() };
                let mut to = collector.to(config);
                let sent = self.send_spans(&mut to, &resource, &mut spans, (clock.now(), closing)).await;
                self.tell(config, "traces", &mut down[0], sent);
                if let Some(every) = config.metrics_every
                    && (clock.now() >= metrics_at || closing)
                {
                    metrics_at = clock.now() + every;
                    let page = crate::metrics::render(scrape::collect(operations, false).await);
                    let metrics = metrics::of_page(&page, self.start, nanos());
                    let sent = match resource.of_metrics(&metrics) {
                        Ok(body) => to.post("/v1/metrics", body).await.map(|_| true),
                        Err(error) => Err(Failure::lasting(error.to_string())),
                    };
                    self.tell(config, "metrics", &mut down[1], sent);
                }
            } else {
                // Those of requests that began before a reload.
                let left = self.take().len() + std::mem::take(&mut spans).all.len();
                self.lost.fetch_add(left as u64, Ordering::Relaxed);
            }
            if closing {
                return;
            }
        }
    }

    /// Sends the spans that wait. Returns whether any were sent.
    async fn send_spans(
        &self,
        to: &mut To<'_>,
        resource: &Resource,
        spans: &mut Spans,
        (now, is_last): (Duration, bool),
    ) -> Result<bool, Failure> {
        if spans.all.is_empty() {
            *spans = Spans { all: self.take(), ..Spans::default() };
        }
        if spans.all.is_empty() || (now < spans.not_before && !is_last) {
            return Ok(false);
        }
        let count = spans.all.len() as u64;
        match to.post("/v1/traces", resource.of_spans(&spans.all.join(","))).await {
            Ok(refused) => {
                *spans = Spans::default();
                let lost = refused.count.min(count);
                self.exported.fetch_add(count - lost, Ordering::Relaxed);
                self.lost.fetch_add(lost, Ordering::Relaxed);
                match lost {
                    0 => Ok(true),
                    _ => Err(Failure::lasting(format!("it has refused {lost} of {count} spans: {}", refused.why))),
                }
            }
            Err(failure) => {
                spans.attempts += 1;
                match failure.retry_after {
                    Some(at_least) if spans.attempts < MAX_ATTEMPTS && !is_last => {
                        let pause = FIRST_RETRY * 2u32.saturating_pow(spans.attempts - 1);
                        spans.not_before = now + weirgate_clock::jittered(pause).max(at_least);
                    }
                    _ => {
                        *spans = Spans::default();
                        self.lost.fetch_add(count, Ordering::Relaxed);
                    }
                }
                Err(failure)
            }
        }
    }

    /// Counts a failure, and says when failures begin and end. `sent` tells whether anything was sent.
    fn tell(&self, config: &Config, what: &str, down: &mut bool, sent: Result<bool, Failure>) {
        match sent {
            Ok(true) if std::mem::take(down) => {
                let text = format!("telemetry: the collector at {} takes {what} again", config.address);
                weirgate_log::say(Level::Info, &text);
            }
            Ok(_) => {}
            Err(failure) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(down, true) {
                    let text = format!(
                        "telemetry: the collector at {} does not take {what}: {}. Requests are not affected. What it \
                         misses is counted, and this line is not repeated until it works again",
                        config.address, failure.why
                    );
                    weirgate_log::say(Level::Warning, &text);
                }
            }
        }
    }
}

impl Observer for Arc<Telemetry> {
    fn observe(&self, record: &AccessRecord<'_>) {
        let Some(ids) = record.span else { return };
        // Such a structure can always be written.
        match serde_json::to_string(&span::of(record, ids, weirgate_clock::calendar())) {
            Ok(span) => self.add(span),
            Err(_) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Spans that are being sent.
#[derive(Debug, Default)]
struct Spans {
    all: Vec<String>,
    attempts: u32,
    /// Earliest time of the next attempt.
    not_before: Duration,
}

/// Returns the calendar time in nanoseconds since 1970.
fn nanos() -> u64 {
    let since = weirgate_clock::calendar().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
