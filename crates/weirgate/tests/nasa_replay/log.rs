//! The log: one day of requests to NASA's Kennedy Space Center in August 1995 (Internet Traffic Archive),
//! kept outside the repository.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

/// One logged request, with the page that the origin needs to give the same answer.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Log time since the first request. Requests of one second are spread over it.
    pub(crate) at: Duration,
    pub(crate) method: String,
    pub(crate) url: String,
    /// The status that the server answered.
    pub(crate) status: u16,
    /// Size of the page, which identifies its version. A page that changed during the day has several.
    pub(crate) size: u64,
}

/// Returns every request of `../shared/data/nasa_19950801.tsv.gz` next to the repository, if the file
/// exists.
pub(crate) fn load() -> Option<Vec<Entry>> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "..", "shared", "data", "nasa_19950801.tsv.gz"].iter().collect();
    let file = std::fs::File::open(path).ok()?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("the log is gzip and text");
    // The first row has the column names: logname, time, method, url, response, bytes, referer, useragent.
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    Some(entries(&rows))
}

fn entries(rows: &[Vec<&str>]) -> Vec<Entry> {
    let second = |row: &Vec<&str>| row[1].parse::<u64>().expect("times are whole seconds");
    let first = rows.first().map_or(0, second);
    let mut in_second: HashMap<u64, u32> = HashMap::new();
    for row in rows {
        *in_second.entry(second(row)).or_default() += 1;
    }
    let (mut sizes, mut place) = (HashMap::new(), (0, 0));
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let now = second(row);
        place = if place.0 == now { (now, place.1 + 1) } else { (now, 0) };
        let share = f64::from(place.1) / f64::from(in_second[&now]);
        let status = row[4].parse().expect("statuses are numbers");
        let (method, url) = (row[2].to_owned(), row[3].to_owned());
        let logged: u64 = row[5].parse().unwrap_or(0);
        if status == 200 && method != "HEAD" {
            sizes.insert(url.clone(), logged);
        }
        // The log has no size if no body was sent. The page then had the size of its last reply.
        let size = if status == 200 && method != "HEAD" { logged } else { sizes.get(&url).copied().unwrap_or(logged) };
        let at = Duration::from_secs(now - first) + Duration::from_secs_f64(share);
        all.push(Entry { at, method, url, status, size });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_entries() {
        let rows = [
            vec!["-", "100", "GET", "/a", "200", "7", "", ""],
            vec!["-", "101", "GET", "/a", "304", "0", "", ""],
            vec!["-", "101", "HEAD", "/a", "200", "0", "", ""],
        ];
        let entries = entries(&rows);
        let seen: Vec<_> = entries.iter().map(|e| (e.at.as_millis(), e.status, e.size)).collect();
        assert_eq!(seen, [(0, 200, 7), (1000, 304, 7), (1500, 200, 7)]);
    }
}
