//! The facts about a site from which figures are derived.

/// A class with the observations about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassSeen {
    pub(crate) name: String,
    /// The condition as YAML. `None` matches everything.
    pub(crate) matches: Option<String>,
    /// The key of a template as YAML.
    pub(crate) per: Option<String>,
    /// Index of the upstream.
    pub(crate) upstream: usize,
    /// Whether a promise is proposed.
    pub(crate) promised: bool,
    /// Remarks for the comment.
    pub(crate) about: Vec<String>,
    /// Share of the site's requests.
    pub(crate) share: f64,
    /// Share of the time at the servers, if times are known.
    pub(crate) work: Option<f64>,
    /// The 99th percentile of the rates in windows with such requests, per second.
    pub(crate) peak: f64,
    /// Number of these windows.
    pub(crate) windows: usize,
    pub(crate) service: Option<ServiceSeen>,
    /// The 95th percentile of the response time in seconds.
    pub(crate) p95: Option<f64>,
    /// How the percentile was found, as a sentence without a full stop.
    pub(crate) p95_from: String,
    /// The reason why a class with a promise has no service time or no limit.
    pub(crate) unknown: Option<String>,
}

/// The time of a request on quiet servers.
#[derive(Clone, Debug)]
pub(crate) struct ServiceSeen {
    /// Mean in seconds.
    pub(crate) quiet: f64,
    /// Mean of all requests in seconds.
    pub(crate) all: f64,
    /// How it was found, as sentences.
    pub(crate) from: Vec<String>,
}

/// An upstream with the observations about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamSeen {
    pub(crate) name: String,
    pub(crate) nodes: Vec<String>,
    /// Remarks for the comment.
    pub(crate) why: Vec<String>,
    /// Slot-seconds a second that the servers have shown to give. `None` without times.
    pub(crate) capacity: Option<f64>,
    /// Requests a second that the servers have shown to answer.
    pub(crate) answered: f64,
}

/// A site.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Comments at the top.
    pub(crate) about: Vec<String>,
    /// Addresses of listeners. Empty if unknown.
    pub(crate) listen: Vec<String>,
    /// Whether nothing is to be refused yet.
    pub(crate) observe: bool,
    pub(crate) upstreams: Vec<UpstreamSeen>,
    pub(crate) classes: Vec<ClassSeen>,
    /// A rate for one client that is far above the rate of the busiest one.
    pub(crate) limit_per_source: Option<(f64, String)>,
}
