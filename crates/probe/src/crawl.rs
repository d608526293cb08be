//! The crawl: starts at the home page and sends one request at a time.

use url::Url;

use crate::client::{AGENT, Answer};
use crate::frontier::{Bounds, Frontier, target};
use crate::load::Load;
use crate::robots::Robots;

/// Maximum number of redirects followed to `robots.txt`, as required by RFC 9309, Sec. 2.3.1.2.
const MAX_REDIRECTS: usize = 5;

/// Result of a visit of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The page answers.
    Page,
    /// The page has no cost, with the reason.
    Bad(String),
    /// There was no complete response, with the reason.
    Unanswered(String),
}

/// Fetches and parses the node's `robots.txt`.
///
/// # Errors
/// The reason why everything is disallowed (Sec. 2.3.1.4: the server has a problem).
pub(crate) async fn robots(load: &mut Load, home: &Url) -> Result<Robots, String> {
    let closed = |why: String| Err(format!("/robots.txt {why}: without its rules nothing is probed"));
    let mut url = home.join("/robots.txt").map_err(|error| error.to_string())?;
    for _ in 0..=MAX_REDIRECTS {
        let answer = match get(load, &target(&url)).await {
            Ok(answer) => answer,
            Err(why) => return closed(format!("cannot be fetched ({why})")),
        };
        match answer.status {
            200..300 => return Ok(Robots::parse(&answer.text, AGENT)),
            300..400 => match redirect(&answer, &url).filter(|to| to.origin() == home.origin()) {
                Some(to) => url = to,
                // Sec. 2.3.1.2 requires it to be followed, but other servers are not contacted.
                None => {
                    let to = answer.location.as_deref().unwrap_or("nowhere");
                    return closed(format!(
                        "redirects to {to}, which is not requested (let the node answer it itself)"
                    ));
                }
            },
            500.. => return closed(format!("is answered with {}", answer.status)),
            // There is no `robots.txt` (Sec. 2.3.1.3).
            _ => return Ok(Robots::default()),
        }
    }
    Ok(Robots::default())
}

/// Visits a page and offers its links to the frontier.
pub(crate) async fn visit(
    load: &mut Load,
    page: (&str, u32),
    home: &Url,
    robots: &Robots,
    bounds: Bounds,
    frontier: &mut Frontier,
) -> Visit {
    let (path, depth) = page;
    let Ok(url) = home.join(path) else { return Visit::Bad("is not an address".to_owned()) };
    let answer = match get(load, path).await {
        Ok(answer) => answer,
        Err(why) => return Visit::Unanswered(why),
    };
    match answer.status {
        200..300 if answer.html => {
            for found in crate::links::links(&answer.text, &url) {
                frontier.offer(&found, depth + 1, &home.origin(), robots, bounds);
            }
            Visit::Page
        }
        300..400 => {
            if let Some(to) = redirect(&answer, &url) {
                frontier.offer(&to, depth, &home.origin(), robots, bounds);
            }
            Visit::Page
        }
        200..400 => Visit::Page,
        status => Visit::Bad(format!("answered {status}")),
    }
}

async fn get(load: &mut Load, path: &str) -> Result<Answer, String> {
    let mut connection = load.connection();
    let answer = connection.get(path, true).await;
    load.give_back(connection);
    answer
}

fn redirect(answer: &Answer, from: &Url) -> Option<Url> {
    let mut to = from.join(answer.location.as_deref()?).ok()?;
    to.set_fragment(None);
    Some(to)
}
