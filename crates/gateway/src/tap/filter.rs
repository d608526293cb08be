//! The requests that a viewer wants: a conjunction of tests on a record.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weirgate_cgroup::fits;
use weirgate_config::{IpNet, UNIX_CLIENT};
use weirgate_engine::Would;
use weirgate_spanned_yaml::decode::FromText;
use weirgate_spanned_yaml::unit::{Share, Span};

use crate::access_log::words;
use crate::record::{AccessRecord, Ending};

/// Words of endings, as the access log has them, and `would_shed` for an observed request that would have been shed.
const ENDINGS: [&str; 9] =
    ["served", "tunnelled", "redirected", "challenge", "shed", "refused", "failed", "left", WOULD_SHED];

const WOULD_SHED: &str = "would_shed";

/// Maximum length of a field, in bytes. Names have at most 64, and a long pattern would make each request slow.
const MAX_FIELD: usize = 256;

/// A filter as people write it. Every field that is given must match. In patterns `*` stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Pattern of the name of the class or template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Pattern of the name of the node that answered or failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Address or network of the client, or `unix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Pattern of the path in its normal form, without query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Status sent to the client: `503`, `5xx`, `500-504`, or several of these with commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Words for endings, with commas: those of the access log, and `would_shed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<String>,
    /// Duration such as `200ms`, from the end of the head to the last byte to the client. Shorter requests do not
    /// match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slower_than: Option<String>,
    /// Share of the matching requests to take, such as `1%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<String>,
}

/// A parsed filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    class: Option<String>,
    node: Option<String>,
    client: Option<IpNet>,
    path: Option<String>,
    /// Empty for any status.
    status: Vec<RangeInclusive<u16>>,
    /// Words. Empty for any ending.
    ending: Vec<&'static str>,
    slower_than: Duration,
    sample: f64,
}

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// A field is wrong. The text says which one, and what to write.
    pub fn new(wanted: &Wanted) -> Result<Filter, String> {
        let fields = [
            ("class", &wanted.class),
            ("node", &wanted.node),
            ("client", &wanted.client),
            ("path", &wanted.path),
            ("status", &wanted.status),
            ("ending", &wanted.ending),
            ("slower_than", &wanted.slower_than),
            ("sample", &wanted.sample),
        ];
        let is_long = |field: &Option<String>| field.as_ref().is_some_and(|text| text.len() > MAX_FIELD);
        if let Some((name, _)) = fields.into_iter().find(|(_, field)| is_long(field)) {
            return Err(format!("{name}: it is longer than {MAX_FIELD} bytes; write a shorter one, with `*`"));
        }
        let each = |field: &Option<String>| {
            let words = field.as_deref().map(|text| text.split(',').map(|word| word.trim().to_owned()));
            words.into_iter().flatten().collect::<Vec<_>>()
        };
        let share = unit::<Share>("sample", wanted.sample.as_deref())?.map_or(1.0, |Share(share)| share);
        if share <= 0.0 {
            return Err("sample: it takes no request; write a share such as `1%`".to_owned());
        }
        Ok(Filter {
            class: wanted.class.clone(),
            node: wanted.node.clone(),
            client: wanted.client.as_deref().map(network).transpose()?,
            path: wanted.path.as_deref().map(path).transpose()?,
            status: each(&wanted.status).iter().map(|text| status(text)).collect::<Result<_, _>>()?,
            ending: each(&wanted.ending).iter().map(|text| ending(text)).collect::<Result<_, _>>()?,
            slower_than: unit::<Span>("slower_than", wanted.slower_than.as_deref())?.map_or(Duration::ZERO, |s| s.0),
            sample: share,
        })
    }

    /// Returns whether a record matches, apart from sampling.
    pub(crate) fn matches(&self, record: &AccessRecord<'_>) -> bool {
        let fits = |pattern: &Option<String>, text: &str| {
            pattern.as_deref().is_none_or(|pattern| fits(pattern.as_bytes(), text.as_bytes()))
        };
        // The cheapest comparisons come first.
        record.total >= self.slower_than
            && (self.status.is_empty() || self.status.iter().any(|range| range.contains(&record.status)))
            && (self.ending.is_empty() || self.ends(record.ending, record.would))
            && self.client.is_none_or(|network| contains(&network, record.client))
            && fits(&self.class, record.class_name)
            && fits(&self.node, record.node.unwrap_or_default())
            && fits(&self.path, record.request.path())
    }

    /// Returns whether the sample takes a request, before which `before` others matched. The sample is spread evenly.
    pub(crate) fn takes(&self, before: u64) -> bool {
        let before = before as f64;
        self.sample >= 1.0 || ((before + 1.0) * self.sample).floor() > (before * self.sample).floor()
    }

    fn ends(&self, ending: Ending, would: Option<Would>) -> bool {
        let (word, _) = words(ending);
        let would_shed = matches!(would, Some(Would::Shed(_)));
        self.ending.iter().any(|wanted| *wanted == word || *wanted == WOULD_SHED && would_shed)
    }
}

/// Clients on Unix sockets have no address, so no network has them but their own.
fn contains(network: &IpNet, client: IpAddr) -> bool {
    match client == UNIX_CLIENT {
        true => *network == IpNet::from(UNIX_CLIENT),
        false => network.contains(&client),
    }
}

fn unit<T: FromText>(field: &str, text: Option<&str>) -> Result<Option<T>, String> {
    let parsed = text.map(T::from_text).transpose();
    parsed.map_err(|complaint| format!("{field}: {}; {}", complaint.what, complaint.hint))
}

fn network(text: &str) -> Result<IpNet, String> {
    let address = || match text {
        "unix" => Some(UNIX_CLIENT),
        _ => text.parse::<IpAddr>().ok(),
    };
    text.parse::<IpNet>().ok().or_else(|| address().map(IpNet::from)).ok_or_else(|| {
        format!("client: {text:?} is no network; write an address, a network such as `192.0.2.0/24`, or `unix`")
    })
}

fn path(text: &str) -> Result<String, String> {
    match text.starts_with(['/', '*']) {
        true => Ok(text.to_owned()),
        false => Err(format!("path: {text:?} fits no path; write `/{text}` or `*{text}`")),
    }
}

fn status(text: &str) -> Result<RangeInclusive<u16>, String> {
    let number = |text: &str| text.parse::<u16>().ok().filter(|status| *status <= 599);
    let family = text.strip_suffix("xx").and_then(number).filter(|digit| (1..=5).contains(digit));
    let range = match (family, text.split_once('-')) {
        (Some(digit), _) => Some(digit * 100..=digit * 100 + 99),
        (None, Some((from, to))) => number(from).zip(number(to)).map(|(from, to)| from..=to),
        (None, None) => number(text).map(|status| status..=status),
    };
    let range = range.filter(|range| !range.is_empty());
    range.ok_or_else(|| format!("status: {text:?} is no status; write one such as `503`, `5xx` or `500-504`"))
}

fn ending(text: &str) -> Result<&'static str, String> {
    let known = ENDINGS.into_iter().find(|word| *word == text);
    known.ok_or_else(|| format!("ending: {text:?} is none; write one of {}", ENDINGS.join(", ")))
}
