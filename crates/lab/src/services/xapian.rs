//! Xapian's Omega, a program that a page of PHP runs once for each search.
//!
//! Apache could run it as a CGI program. But `mod_cgi` waits about 50 ms for a program that has written all
//! its output and is about to exit. `mod_cgid` waits for none of its programs, so that their CPU time would
//! not be counted.

use super::apache;
use super::index::Index;
use super::instance::Place;

/// Path of Omega in Debian.
pub(super) const PROGRAM: &str = "/usr/lib/cgi-bin/omega/omega";

/// Writes the configuration of Apache and Omega, and the page.
pub(super) fn prepare(place: &Place, index: &Index) -> Result<(), String> {
    let directory = place.directory.text()?;
    let database = index.directory.to_str().ok_or_else(|| format!("{}: not UTF-8", index.directory.display()))?;
    apache::prepare_page(place, "search.php", include_str!("search.php"))?;
    let words = [("DIRECTORY", directory), ("INDEX", database)];
    place.directory.write("omega.conf", include_str!("omega.conf"), &words)
}
