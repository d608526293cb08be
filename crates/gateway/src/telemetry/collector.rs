//! Requests to the collector.
//!
//! Source: OTLP 1, "OTLP/HTTP": JSON, compressed with gzip where it crosses a network, statuses that may be tried
//! again, and partial success.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;
use tokio_rustls::rustls::ClientConfig;
use weirgate_config::{Telemetry as Config, header_fields};
use weirgate_http_client::{Address, Error, Limits, Request, exchange};

/// Limits of an export. Ten seconds are the default of OTLP's exporters. The answer is a small object.
const LIMITS: Limits = Limits::new(Duration::from_secs(10), 64 << 10);

/// Maximum of `Retry-After` that is kept to.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The way to the collector, with what is kept from one request to the next.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The settings of TLS, with the file of authorities that they come from. Reading the authorities of the system
    /// takes milliseconds.
    tls: Option<(Option<PathBuf>, Arc<ClientConfig>)>,
}

/// The way to the collector of a policy.
pub(super) struct To<'a> {
    collector: &'a mut Collector,
    config: &'a Config,
}

impl Collector {
    pub(super) fn to<'a>(&'a mut self, config: &'a Config) -> To<'a> {
        if self.tls.as_ref().is_some_and(|(ca, _)| *ca != config.ca) {
            self.tls = None;
        }
        To { collector: self, config }
    }
}

/// Why the collector has not taken something.
pub(super) struct Failure {
    pub(super) why: String,
    /// Time after which another attempt may succeed. `None` if none will.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn lasting(why: String) -> Failure {
        Failure { why, retry_after: None }
    }
}

/// What the collector has refused of an export.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) count: u64,
    pub(super) why: String,
}

impl To<'_> {
    fn address(&mut self) -> Result<Address, String> {
        let address = self.config.address.clone();
        if !self.config.https {
            return Ok(Address::Tcp(address));
        }
        if let Some((_, tls)) = &self.collector.tls {
            return Ok(Address::Https(address, Arc::clone(tls)));
        }
        let ca = self.config.ca.clone();
        let tls = weirgate_tls::https(ca.as_deref()).map_err(|faults| weirgate_tls::told(&faults))?;
        self.collector.tls = Some((ca, Arc::clone(&tls)));
        Ok(Address::Https(address, tls))
    }

    /// Sends `body`, which is JSON.
    pub(super) async fn post(&mut self, path: &str, body: String) -> Result<Refused, Failure> {
        let config = self.config;
        // Files may be replaced at any time, and be broken for a moment.
        let later = |why| Failure { why, retry_after: Some(Duration::ZERO) };
        let address = self.address().map_err(later)?;
        let fields = config.headers_file.as_deref().map(header_fields).transpose().map_err(later)?;
        let path = format!("{}{path}", config.path);
        let body = if config.https { zipped(&body) } else { body.into_bytes() };
        let mut request = Request::post(&config.address, &path, body)
            .field("content-type", "application/json")
            .field("user-agent", concat!("weirgate/", env!("CARGO_PKG_VERSION")));
        if config.https {
            request = request.field("content-encoding", "gzip");
        }
        for (name, value) in fields.unwrap_or_default() {
            request = request.field(&name, &value);
        }
        let answer = match exchange(&address, request, &LIMITS).await {
            Ok(answer) => answer,
            Err(error @ Error::Request(_)) => return Err(Failure::lasting(error.to_string())),
            Err(error) => {
                // The file with the authorities may have changed.
                self.collector.tls = None;
                return Err(later(error.to_string()));
            }
        };
        match answer.status {
            200 => Ok(refused(&answer.body)),
            // OTLP, "Retryable Response Codes".
            status @ (429 | 502 | 503 | 504) => {
                let seconds = answer.field("retry-after").and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
                // A collector that asks for more would have the spans lost by then.
                let retry_after = Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
                Err(Failure { why: format!("it answers with status {status}"), retry_after })
            }
            status @ (401 | 403) => Err(Failure::lasting(match &config.headers_file {
                Some(file) => format!("it answers with status {status}; is the key in {} right", file.display()),
                None => format!("it answers with status {status}; if it wants a key, name it in `headers_file`"),
            })),
            status => Err(Failure::lasting(format!(
                "it answers with status {status}; is `{}` the address of a receiver of OTLP over HTTP, which is \
                 usually on port 4318",
                config.address
            ))),
        }
    }
}

/// Compresses `body`. Spans shrink to a tenth, also at the fastest level.
fn zipped(body: &str) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    let _ = out.write_all(body.as_bytes());
    out.finish().unwrap_or_default()
}

/// Reads the partial success of an answer. Answers without one, and those that are not JSON, refuse nothing.
pub(super) fn refused(body: &[u8]) -> Refused {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        partial_success: Option<Partial>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    struct Partial {
        rejected_spans: serde_json::Value,
        error_message: String,
    }
    let answer = serde_json::from_slice::<Answer>(body).ok().and_then(|answer| answer.partial_success);
    let partial = answer.unwrap_or_default();
    // A string by the rules of JSON in OTLP. Readers shall take numbers, too.
    let text = partial.rejected_spans.as_str().and_then(|count| count.parse().ok());
    Refused { count: text.or(partial.rejected_spans.as_u64()).unwrap_or(0), why: partial.error_message }
}
