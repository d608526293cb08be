//! Xapian's Omega, a program that a page of PHP runs once for each search.
//!
//! Apache can run it itself, as a CGI. But `mod_cgi` waits some 50 ms for a program that has written all and is
//! about to end, and nobody waits for the programs of `mod_cgid`, so that their CPU time is lost.

use super::apache;
use super::index::Index;
use super::instance::Place;

/// Where Debian has it.
pub(super) const PROGRAM: &str = "/usr/lib/cgi-bin/omega/omega";

/// Writes the configuration of Apache and Omega, and the page.
pub(super) fn prepare(place: &Place, index: &Index) -> Result<(), String> {
    let directory = place.directory.text()?;
    let database = index.directory.to_str().ok_or_else(|| format!("{}: not UTF-8", index.directory.display()))?;
    apache::prepare(place, "search.php", include_str!("search.php"))?;
    let words = [("DIRECTORY", directory), ("INDEX", database)];
    place.directory.write("omega.conf", include_str!("omega.conf"), &words)
}
