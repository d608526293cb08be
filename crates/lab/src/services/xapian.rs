//! Xapian's Omega, a program that a page of PHP runs once for each search.

use super::apache::{self, Cgi};
use super::index::Index;
use super::instance::Place;

/// Path of Omega in Debian.
pub(super) const PROGRAM: &str = "/usr/lib/cgi-bin/omega/omega";

/// Writes the configuration of Apache and Omega, and the page.
pub(super) fn prepare(place: &Place, index: &Index) -> Result<(), String> {
    let directory = place.directory.text()?;
    let database = index.directory.to_str().ok_or_else(|| format!("{}: not UTF-8", index.directory.display()))?;
    let cgi = Cgi { page: "search.php", program: PROGRAM, variable: "OMEGA_CONFIG_FILE", configuration: "omega.conf" };
    apache::prepare_cgi(place, &cgi)?;
    let words = [("DIRECTORY", directory), ("INDEX", database)];
    place.directory.write("omega.conf", include_str!("omega.conf"), &words)
}
