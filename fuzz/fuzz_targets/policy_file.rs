//! Arbitrary text as a policy file: errors, never a panic. `cargo +nightly fuzz run policy_file`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = weirgate_config::load("fuzz.yaml", text, false);
});
