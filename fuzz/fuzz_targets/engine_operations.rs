//! Arbitrary operations over the engine's whole interface, compared with the model of the tests. Run
//! `cargo +nightly fuzz run engine_operations`.
#![no_main]

#[path = "../../crates/engine/tests/support/operations.rs"]
mod operations;

use libfuzzer_sys::fuzz_target;
use operations::{Model, Source, VARIANTS};

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
    let mut source = Bytes(data);
    let (Some(variant), Some(seed)) = (source.below(VARIANTS), source.below(1 << 32)) else { return };
    let mut model = Model::new(variant, seed);
    while model.step(&mut source).is_some() {}
    model.drain();
});
