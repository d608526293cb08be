//! Reports of agents: arbitrary bytes as a report, and reports of arbitrary figures to a learner, with the
//! checks of the tests. Run `cargo +nightly fuzz run agent_report`.
#![no_main]

#[path = "../../crates/wire/tests/support/reports.rs"]
mod reports;

use libfuzzer_sys::fuzz_target;
use reports::{Model, Source, parsed};

/// The fuzzer's bytes as numbers, four at a time.
struct Bytes<'a>(&'a [u8]);

impl Source for Bytes<'_> {
    fn below(&mut self, n: u64) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u64::from(u32::from_le_bytes(*head)) % n)
    }
}

fuzz_target!(|data: &[u8]| {
    parsed(data);
    let (mut source, mut model) = (Bytes(data), Model::new());
    while model.step(&mut source).is_some() {}
});
