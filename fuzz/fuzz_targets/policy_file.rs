//! Arbitrary text as a policy file: errors, and never a panic. Run `cargo +nightly fuzz run policy_file`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = weirgate_config::load("fuzz.yaml", text);
});
