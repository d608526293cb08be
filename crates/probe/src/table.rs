//! The page table as written: YAML that people can read, check and change.
//!
//! Source: Feng and Lin, Sec. 3.1: the prober records addresses and percentages for the classifier and the
//! scheduler. Here each line also has its confidence and, as a comment, the resource that it uses most. Pages
//! that were left out are listed at the end, each with its reason.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use weirgate_clock::rfc3339_seconds;
use weirgate_wire::RESOURCE_NAMES;

use crate::capacity::Capacity;
use crate::fold::Route;

/// Content of a page table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Time of the probe, in seconds since 1970.
    pub probed: u64,
    /// Address of the probed server.
    pub server: String,
    /// Capacity for CPU, disk and bandwidth.
    pub capacity: [Option<Capacity>; 3],
    /// Routes, sorted.
    pub routes: Vec<Route>,
    /// Pages without a line, with the reasons.
    pub left_out: Vec<(String, String)>,
}

impl Table {
    /// Returns the text of the file.
    pub fn to_yaml(&self) -> String {
        let mut text = String::from(
            "# Costs of requests, in percent of a second of the whole server's resource. Written by `weirgate \
             probe`.\n# Change any figure that you know better.\n",
        );
        let _ = writeln!(
            text,
            "version: 1\nprobed: {}\nserver: {}",
            rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(self.probed)),
            self.server
        );
        for (at, (name, capacity)) in RESOURCE_NAMES.iter().zip(&self.capacity).enumerate() {
            match capacity {
                None => {
                    let _ = writeln!(text, "# {name}: no request used it");
                }
                Some(capacity) if capacity.is_told => {
                    let _ = writeln!(text, "# {name}: from the agent, because it was not saturated");
                }
                Some(capacity) if !capacity.is_reached => {
                    let _ = writeln!(
                        text,
                        "# {name}: a lower bound, because another resource or the prober itself was saturated first"
                    );
                }
                Some(_) => {}
            }
            if let Some(told) = capacity.and_then(|capacity| capacity.missed) {
                let _ = writeln!(
                    text,
                    "# {name}: the agent says {}, but a quota, too few workers, or other waiting keeps the server \
                     below that",
                    amount(at, told)
                );
            }
        }
        let known = RESOURCE_NAMES.iter().zip(&self.capacity).enumerate();
        let known = known
            .filter_map(|(at, (name, capacity))| Some(format!("{name}: {}", amount(at, capacity.as_ref()?.amount))));
        let _ = writeln!(text, "capacity: {{ {} }}", known.collect::<Vec<_>>().join(", "));
        let lines: Vec<(String, usize)> = self.routes.iter().map(|route| (line(route), route.tendency())).collect();
        let width = lines.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
        text += if lines.is_empty() { "routes: {}\n" } else { "routes:\n" };
        for (line, tendency) in lines {
            let _ = writeln!(text, "{line:width$}  # {}", RESOURCE_NAMES[tendency]);
        }
        if !self.left_out.is_empty() {
            text += "# Left out. Where no route above matches, the `cost` of the class counts:\n";
        }
        for (target, why) in &self.left_out {
            let _ = writeln!(text, "#   {target}: {}", why.replace(['\n', '\r'], " "));
        }
        text
    }
}

fn line(route: &Route) -> String {
    let shares = RESOURCE_NAMES.iter().zip(route.share).map(|(name, share)| format!("{name}: {}", percent(share)));
    let shares = shares.collect::<Vec<_>>().join(", ");
    // Addresses have neither quotes nor unescaped backslashes. Otherwise the reader of the file would report
    // an error.
    let pattern = serde_json::Value::String(route.to_string());
    format!(
        "  {pattern}: {{ {shares}, confidence: {:.0}%, samples: {} }}",
        (route.confidence * 100.0).floor(),
        route.samples
    )
}

/// Maximum share in a page table: four seconds of the whole server. A longer request cannot be scheduled.
const MAX: f64 = 4.0;

/// Formats a share with three significant digits.
pub fn percent(share: f64) -> String {
    format!("{}%", digits(share.clamp(0.0, MAX) * 100.0))
}

/// Formats an amount of a resource in its unit: CPUs, or bytes.
pub fn amount(resource: usize, amount: f64) -> String {
    match (resource, amount) {
        (0, _) => digits(amount),
        (_, bytes) if bytes >= 1_048_576.0 => format!("{}MiB", digits(bytes / 1_048_576.0)),
        (_, bytes) if bytes >= 1024.0 => format!("{}KiB", digits(bytes / 1024.0)),
        (_, bytes) => format!("{bytes:.0}B"),
    }
}

fn digits(number: f64) -> String {
    // Less than a millionth of a percent is irrelevant for scheduling.
    let places = if number <= 0.0 { 0.0 } else { (2.0 - number.log10().floor()).clamp(0.0, 6.0) };
    let text = format!("{number:.0$}", places as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_lines_for_people() {
        let capacity = |amount, is_reached, is_told, missed| Some(Capacity { amount, is_reached, is_told, missed });
        let table = Table {
            probed: 1_795_353_600,
            server: "http://10.0.0.1:80".to_owned(),
            capacity: [capacity(0.5, true, false, Some(2.0)), capacity(20.0 * 1_048_576.0, false, false, None), None],
            routes: vec![
                Route::of("/", [0.0001, 0.0, 0.00002], 1.0, 40),
                Route::of("/album.php?id=7", [0.008, 0.0251, 0.0], 0.9871, 120),
            ],
            left_out: vec![("/broken".to_owned(), "answered\n500".to_owned())],
        };
        let text = table.to_yaml();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "version: 1",
                "probed: 2026-11-22T13:20:00Z",
                "server: http://10.0.0.1:80",
                "# cpu: the agent says 2, but a quota, too few workers, or other waiting keeps the server below that",
                "# disk: a lower bound, because another resource or the prober itself was saturated first",
                "# bandwidth: no request used it",
                "capacity: { cpu: 0.5, disk: 20MiB }",
                "routes:",
                "  \"/\": { cpu: 0.01%, disk: 0%, bandwidth: 0.002%, confidence: 100%, samples: 40 }              # cpu",
                "  \"/album.php?id=7\": { cpu: 0.8%, disk: 2.51%, bandwidth: 0%, confidence: 98%, samples: 120 }  # disk",
                "# Left out. Where no route above matches, the `cost` of the class counts:",
                "#   /broken: answered 500",
            ]
        );
        assert!(Table::default().to_yaml().contains("\nroutes: {}\n"));
    }

    #[test]
    fn numbers_have_three_digits_that_say_something() {
        for (share, text) in [
            (0.09, "9%"),
            (0.012345, "1.23%"),
            (1.0, "100%"),
            (12.34, "400%"),
            (1e-6, "0.0001%"),
            (1e-12, "0%"),
            (-1.0, "0%"),
        ] {
            assert_eq!(percent(share), text);
        }
        for (bytes, text) in [(512.0, "512B"), (2048.0, "2KiB"), (12_478_054.4, "11.9MiB"), (150e6, "143MiB")] {
            assert_eq!(amount(1, bytes), text);
        }
        assert_eq!(amount(0, 1.996), "2");
    }
}
