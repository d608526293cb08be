//! Report of a node's agent about the node: the JSON that a collector requests.
//!
//! Source: Andreolini et al., "QoS-aware switching policies for a locally distributed Web system", Sec. 2:
//! each server counts its active HTTP connections, with static and dynamic pages counted separately.
//! Departures: the paper does not print its format, and ours is versioned JSON over HTTP. Unknown fields are
//! skipped, so that an agent may report more than this gateway reads. The counts are of requests, not of
//! connections, because a connection that only waits for its next request is no load.
//!
//! In addition to the counts, an agent may report the used amount of the node's resources (Feng and Lin's
//! mQoS, Sec. 3.1: the resource monitor of the prober). These are counters with any start and in any unit:
//! two reports give the use between them, however far apart they are, and a lost report loses nothing.
//!
//! A report comes from another machine: its size is limited, every number in it is checked, and an error
//! names the field.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version that is written and read. It increases when a field changes its meaning, not when one is added.
pub const REPORT_VERSION: u32 = 1;

/// Longest report that is read. Counts take a hundred bytes. The rest is room for details that agents may add
/// about hundreds of cgroups.
pub const MAX_REPORT_BYTES: usize = 64 * 1024;

/// Names of the resources of [`Usage`], in its order.
pub const RESOURCE_NAMES: [&str; 3] = ["cpu", "disk", "bandwidth"];

/// Largest counter that is read: 2^64 bytes.
const MAX_USED: f64 = 18_446_744_073_709_551_616.0;

/// A report of a node's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Number of requests that the node is working on.
    pub active: Active,
    /// Used resources of the node. `None` if the agent does not count them.
    pub usage: Option<Usage>,
}

/// Used CPU, disk and bandwidth of a node, in this order ([`RESOURCE_NAMES`]). Weirgate's agents count
/// CPU-seconds, bytes read and written, and bytes sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Counters that only grow. One that falls has restarted at zero. `None` means unknown.
    pub used: [Option<f64>; 3],
    /// Capacity of the node per second, in the counter's unit. `None` if the agent does not know it.
    pub capacity: [Option<f64>; 3],
}

/// Number of requests that the node is working on, by kind of content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Active {
    /// Requests for files.
    #[serde(rename = "static")]
    pub static_content: u32,
    /// Requests for pages that are computed for each request.
    #[serde(rename = "dynamic")]
    pub dynamic_content: u32,
}

impl Report {
    /// Reads a report.
    ///
    /// # Errors
    /// Returns the error in the report, with the field's name.
    pub fn parse(bytes: &[u8]) -> Result<Report, String> {
        if bytes.len() > MAX_REPORT_BYTES {
            return Err(format!("the report has {} bytes; at most {MAX_REPORT_BYTES} are read", bytes.len()));
        }
        let whole: Value = serde_json::from_slice(bytes).map_err(|error| format!("the report is not JSON: {error}"))?;
        if !whole.is_object() {
            return Err(format!("the report is {}, not an object", kind(&whole)));
        }
        let version = count(&whole, "version", "version")?;
        if version != REPORT_VERSION {
            return Err(format!("the report has version {version}; version {REPORT_VERSION} is read here"));
        }
        let active = whole.get("active").ok_or("the report lacks `active`")?;
        if !active.is_object() {
            return Err(format!("`active` is {}, not an object", kind(active)));
        }
        Ok(Report {
            active: Active {
                static_content: count(active, "static", "active.static")?,
                dynamic_content: count(active, "dynamic", "active.dynamic")?,
            },
            usage: whole.get("usage").filter(|usage| !usage.is_null()).map(Usage::parse).transpose()?,
        })
    }

    /// Returns the report as JSON, on one line.
    pub fn to_json(&self) -> String {
        let Active { static_content, dynamic_content } = self.active;
        let active = serde_json::json!({ "static": static_content, "dynamic": dynamic_content });
        let mut whole = serde_json::json!({ "version": REPORT_VERSION, "active": active });
        if let (Some(usage), Some(fields)) = (&self.usage, whole.as_object_mut()) {
            fields.insert("usage".to_owned(), usage.to_value());
        }
        format!("{whole}\n")
    }
}

impl Usage {
    fn parse(value: &Value) -> Result<Usage, String> {
        if !value.is_object() {
            return Err(format!("`usage` is {}, not an object", kind(value)));
        }
        let mut usage = Usage::default();
        for (at, name) in RESOURCE_NAMES.into_iter().enumerate() {
            let Some(resource) = value.get(name).filter(|resource| !resource.is_null()) else { continue };
            if !resource.is_object() {
                return Err(format!("`usage.{name}` is {}, not an object", kind(resource)));
            }
            usage.used[at] = amount(resource, "used", name)?;
            usage.capacity[at] = amount(resource, "capacity", name)?;
            if usage.capacity[at] == Some(0.0) {
                return Err(format!("`usage.{name}.capacity` is 0; leave it out if it is not known"));
            }
        }
        Ok(usage)
    }

    fn to_value(self) -> Value {
        let resources = RESOURCE_NAMES.into_iter().zip(self.used.into_iter().zip(self.capacity));
        let told = resources.filter(|(_, (used, _))| used.is_some());
        let told = told.map(|(name, (used, capacity))| {
            (name.to_owned(), serde_json::json!({ "used": used, "capacity": capacity }))
        });
        Value::Object(told.collect())
    }
}

/// Returns the number `name` of the object `usage.RESOURCE`. A missing or `null` number is unknown.
fn amount(object: &Value, name: &str, resource: &str) -> Result<Option<f64>, String> {
    let Some(value) = object.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    match value.as_f64().filter(|number| (0.0..=MAX_USED).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let what = if value.is_number() { value.to_string() } else { kind(value).to_owned() };
            Err(format!("`usage.{resource}.{name}` is {what}, not a number from 0 to 2^64"))
        }
    }
}

/// Returns the whole number `name` of `object`, which is called `path` in errors.
fn count(object: &Value, name: &str, path: &str) -> Result<u32, String> {
    let value = object.get(name).ok_or_else(|| format!("the report lacks `{path}`"))?;
    value.as_u64().and_then(|count| u32::try_from(count).ok()).ok_or_else(|| {
        let what = if value.is_number() { value.to_string() } else { kind(value).to_owned() };
        format!("`{path}` is {what}, not a whole number from 0 to {}", u32::MAX)
    })
}

/// Describes the kind of a value, without repeating its text, which is untrusted.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: Report = Report { active: Active { static_content: 12, dynamic_content: 30 }, usage: None };

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(REPORT.to_json(), "{\"active\":{\"dynamic\":30,\"static\":12},\"version\":1}\n");
        assert_eq!(Report::parse(REPORT.to_json().as_bytes()), Ok(REPORT));
        let usage = Usage { used: [Some(12.25), None, Some(5e8)], capacity: [Some(2.0), None, None] };
        let report = Report { usage: Some(usage), ..REPORT };
        let text = report.to_json();
        assert!(text.contains(r#""usage":{"bandwidth":{"capacity":null,"used":500000000.0},"cpu":"#), "{text}");
        assert!(!text.contains("disk"), "unknown values must be left out: {text}");
        assert_eq!(Report::parse(text.as_bytes()), Ok(report));
    }

    #[test]
    fn usage_may_be_partly_unknown() {
        let with = |usage: &str| format!(r#"{{"version":1,"active":{{"static":12,"dynamic":30}},"usage":{usage}}}"#);
        assert_eq!(Report::parse(with("null").as_bytes()), Ok(REPORT));
        for text in ["{}", r#"{"cpu":null,"gpu":{"used":-1}}"#, r#"{"disk":{"used":null}}"#] {
            assert_eq!(Report::parse(with(text).as_bytes()), Ok(Report { usage: Some(Usage::default()), ..REPORT }));
        }
        for (usage, problem) in [
            ("7", "`usage` is a number, not an object"),
            (r#"{"cpu":3}"#, "`usage.cpu` is a number"),
            (r#"{"cpu":{"used":-1}}"#, "`usage.cpu.used` is -1, not a number from 0"),
            (r#"{"disk":{"used":"1"}}"#, "`usage.disk.used` is a text"),
            (r#"{"bandwidth":{"used":1e300}}"#, "`usage.bandwidth.used` is 1e+300"),
            (r#"{"cpu":{"used":1,"capacity":0}}"#, "`usage.cpu.capacity` is 0"),
            (r#"{"cpu":{"used":1,"capacity":[]}}"#, "`usage.cpu.capacity` is a list"),
        ] {
            let error = Report::parse(with(usage).as_bytes()).expect_err(usage);
            assert!(error.contains(problem), "{usage}: {error}");
        }
    }

    #[test]
    fn agents_may_say_more() {
        let text =
            r#"{"version":1,"cpu":{"cores":4,"busy":[0.5]},"active":{"static":12,"dynamic":30,"waiting":-1},"x":null}"#;
        assert_eq!(Report::parse(text.as_bytes()), Ok(REPORT));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, problem) in [
            ("", "not JSON: EOF"),
            ("<html>", "not JSON"),
            ("[1]", "the report is a list, not an object"),
            ("{}", "lacks `version`"),
            (r#"{"version":"1"}"#, "`version` is a text"),
            (r#"{"version":2,"active":{"static":1,"dynamic":1}}"#, "version 2; version 1 is read here"),
            (r#"{"version":1}"#, "lacks `active`"),
            (r#"{"version":1,"active":7}"#, "`active` is a number"),
            (r#"{"version":1,"active":{"static":1}}"#, "lacks `active.dynamic`"),
            (r#"{"version":1,"active":{"static":-3,"dynamic":1}}"#, "`active.static` is -3, not a whole number"),
            (r#"{"version":1,"active":{"static":1,"dynamic":1.5}}"#, "`active.dynamic` is 1.5"),
            (r#"{"version":1,"active":{"static":1,"dynamic":4294967296}}"#, "`active.dynamic` is 4294967296"),
            (r#"{"version":1,"active":{"static":"\u001b[2J","dynamic":1}}"#, "`active.static` is a text"),
            (r#"{"version":1,"active":{"static":null,"dynamic":1}}"#, "`active.static` is null"),
            (r#"{"version":1,"active":{"static":NaN,"dynamic":1}}"#, "not JSON"),
            (r#"{"version":1,"active":{"static":1e999,"dynamic":1}}"#, "not JSON"),
            (r#"{"version":1,"active":{"static":1,"dynamic":1}} {}"#, "not JSON: trailing"),
        ] {
            let error = Report::parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(problem), "{text}: {error}");
        }
        let deep = "[".repeat(MAX_REPORT_BYTES);
        assert!(Report::parse(deep.as_bytes()).is_err());
        assert!(Report::parse(&vec![b' '; MAX_REPORT_BYTES + 1]).expect_err("too long").contains("65537 bytes"));
    }
}
