//! Golden files of the peers' configurations: an example policy, and the text that each peer must get for it.
//!
//! `UPDATE_GOLDEN=1 cargo test -p weirgate-lab --lib golden` rewrites the files. Read the difference before
//! you commit it. Every start of a peer checks its text with the peer's own checker.

use std::net::SocketAddr;
use std::path::Path;

use weirgate_experiment::{Experiment, load_experiment};

use super::Setting;

/// A guaranteed class, a class with three times its load, and a class without a guarantee. They share two
/// servers of eight workers, and the second server has half the weight.
const EXAMPLE: &str = include_str!("golden/example.yaml");

pub(super) fn example(overrides: &[&str]) -> Experiment {
    let overrides: Vec<_> = overrides.iter().map(|text| text.parse().expect("an override")).collect();
    load_experiment("example.yaml", EXAMPLE, Path::new(""), &overrides).unwrap_or_else(|e| panic!("{e}")).experiment
}

/// Returns the addresses of the example's servers.
pub(super) fn addresses() -> Vec<SocketAddr> {
    vec![([127, 0, 0, 1], 8001).into(), ([127, 0, 0, 1], 8002).into()]
}

/// Returns a setting that starts nothing.
pub(super) fn setting<'a>(experiment: &'a Experiment, addresses: &'a [SocketAddr]) -> Setting<'a> {
    Setting { experiment, addresses, directory: Path::new("/results"), source: None, cpu: None }
}

/// Returns the address of the peer itself.
pub(super) fn own_address() -> SocketAddr {
    ([127, 0, 0, 1], 8000).into()
}

/// Compares `text` with the golden file `name`.
pub(super) fn golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gateways/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        std::fs::write(&file, text).expect("the file can be written");
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(golden == text, "{} differs; UPDATE_GOLDEN=1 rewrites it. It is now:\n{text}", file.display());
}
