//! Apache: the pages of mod_status.
//!
//! The page for people (`/server-status`) has a line for each worker with its mode. While `ExtendedStatus` is
//! on, as it is by default, the line also has the request. Static and dynamic requests can then be
//! distinguished by their paths. The page for programs (`?auto`) has only the modes.
//!
//! The count includes workers that serve a request: sending (`W`, which covers all handling of a request),
//! DNS lookup (`D`), logging (`L`) and finishing gracefully (`G`). It excludes workers that read a request,
//! wait for the next one, or close a connection. Requests for the status page itself are excluded. The page
//! has two gaps. Apache keeps only 63 bytes of a request line, so a longer path may lose its ending.
//! Responses that the event module still sends without a worker appear on no line.

use weirgate_wire::Active;

use crate::glob::Globs;

/// Modes of workers that serve a request.
const BUSY: [&str; 4] = ["W", "D", "L", "G"];

/// Counts the requests being served, from the page for people, except requests for `own`, the path of the
/// page itself. Requests with a path that matches `dynamic` are dynamic.
///
/// # Errors
/// `page` is not that page.
pub fn active(page: &str, own: &str, dynamic: &Globs) -> Result<Active, String> {
    let table = page.find("<th>Srv</th>").and_then(|at| page.get(at..)).and_then(|rest| rest.split("</table>").next());
    let mut rows = table.unwrap_or_default().split("<tr>");
    let titles: Vec<&str> = rows.next().unwrap_or_default().split("<th>").map(text).collect();
    let column = |name: &str| titles.iter().position(|title| *title == name);
    let (Some(mode), Some(request)) = (column("M"), column("Request")) else {
        return Err("this is not Apache's server-status with a line per request: set `ExtendedStatus On`".to_owned());
    };
    let mut active = Active::default();
    for row in rows {
        // The text before the first cell corresponds to the text before the first title.
        let cells: Vec<&str> = row.split("<td").map(|cell| cell.split_once('>').map_or("", |(_, cell)| cell)).collect();
        let cell = |column: usize| cells.get(column).copied().map_or("", text);
        let path = path(cell(request));
        if !BUSY.contains(&cell(mode)) || path == own {
            continue;
        }
        let count = if dynamic.fit(&path) { &mut active.dynamic_content } else { &mut active.static_content };
        *count = count.saturating_add(1);
    }
    Ok(active)
}

/// Counts the requests being served, from the page for programs, except the request for this page.
///
/// # Errors
/// `page` is not that page.
pub fn busy(page: &str) -> Result<u32, String> {
    let board = page.lines().find_map(|line| line.strip_prefix("Scoreboard: "));
    let board = board.ok_or("this is not Apache's server-status?auto: it has no Scoreboard")?;
    let busy = board.chars().filter(|mode| BUSY.iter().any(|busy| busy.starts_with(*mode))).count();
    Ok(u32::try_from(busy).unwrap_or(u32::MAX).saturating_sub(1))
}

/// Returns the text of a cell, up to its end tag and without emphasis.
fn text(cell: &str) -> &str {
    let inner = cell.split("</t").next().unwrap_or_default().trim();
    let inner = inner.strip_prefix("<b>").unwrap_or(inner);
    inner.strip_suffix("</b>").unwrap_or(inner).trim()
}

/// Returns the path of a request line in HTML.
fn path(line: &str) -> String {
    let target = line.split(' ').nth(1).unwrap_or_default();
    let plain = target.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    plain.split('?').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Apache 2.4 with the event module while it sent `/big.bin` to a slow client and ran
    /// `/cgi-bin/slow.sh?a=<b>`.
    const PAGE: &str = include_str!("pages/apache.html");

    fn globs(patterns: &[&str]) -> Globs {
        Globs::new(patterns.iter().map(ToString::to_string).collect()).expect("sound")
    }

    fn counted(page: &str, own: &str, patterns: &[&str]) -> (u32, u32) {
        let active = active(page, own, &globs(patterns)).expect("it is the page");
        (active.static_content, active.dynamic_content)
    }

    #[test]
    fn requests_are_told_apart_by_their_paths() {
        assert_eq!(counted(PAGE, "/server-status", &["*.php", "/cgi-bin/*"]), (1, 1));
        assert_eq!(counted(PAGE, "/server-status", &["*.bin", "*.sh"]), (0, 2));
        assert_eq!(counted(PAGE, "/elsewhere", &["/cgi-bin/*"]), (2, 1), "the page itself would count");
    }

    #[test]
    fn an_idle_class_does_not_count() {
        for idle in ["_", "R", "K", "C", "S", "I", "."] {
            let page = PAGE.replace("<b>W</b>", &format!("<b>{idle}</b>"));
            assert_eq!(counted(&page, "/server-status", &["*"]), (0, 0), "{idle}");
        }
        let logging = PAGE.replace("<b>W</b>", "L");
        assert_eq!(counted(&logging, "/server-status", &["*"]), (0, 2));
    }

    #[test]
    fn older_versions_have_fewer_columns() {
        let page = "<table border=\"0\"><tr><th>Srv</th><th>M</th><th>Request</th></tr>\n\
                    <tr><td><b>0-0</b></td><td><b>W</b>\n</td><td nowrap>GET /x.php?a&amp;b HTTP/1.0</td></tr>\n\
                    <tr><td><b>1-0</b></td><td><b>W</b>\n</td></tr>\n</table>";
        assert_eq!(counted(page, "/server-status", &["*.php"]), (1, 1), "a request that is not known is a file");
    }

    #[test]
    fn programs_get_the_modes_alone() {
        assert_eq!(busy(include_str!("pages/apache-auto.txt")), Ok(2));
        assert_eq!(busy("Scoreboard: _.SRKCI\n"), Ok(0));
        assert_eq!(busy("Scoreboard: WDLG_\n"), Ok(3));
    }

    #[test]
    fn other_pages_are_refused() {
        let short = PAGE.split("<th>Srv</th>").next().expect("a start");
        for page in ["", "<html>It works!</html>", short, "<th>Srv</th></table>"] {
            assert!(active(page, "/server-status", &globs(&[])).expect_err(page).contains("ExtendedStatus"));
        }
        assert!(busy(PAGE).expect_err("people's page").contains("Scoreboard"));
    }
}
