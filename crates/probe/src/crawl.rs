//! The crawl: from the home page on, one request at a time.

use url::Url;

use crate::client::{AGENT, Answer};
use crate::frontier::{Bounds, Frontier, target};
use crate::load::Load;
use crate::robots::Robots;

/// Redirects that are followed to `robots.txt`: as many as RFC 9309, Sec. 2.3.1.2, asks for.
const MOST_REDIRECTS: usize = 5;

/// What a visit of a page found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// It answers.
    Page,
    /// It has no cost, and why.
    Bad(String),
    /// There was no whole answer, and why.
    Unanswered(String),
}

/// What `robots.txt` of the node says.
///
/// # Errors
/// Why everything is closed (Sec. 2.3.1.4: the server is in trouble).
pub(crate) async fn robots(load: &mut Load, home: &Url) -> Result<Robots, String> {
    let closed = |why: String| Err(format!("/robots.txt {why}: nobody knows what is open, so nothing is probed"));
    let mut url = home.join("/robots.txt").map_err(|error| error.to_string())?;
    for _ in 0..=MOST_REDIRECTS {
        let answer = match get(load, &target(&url)).await {
            Ok(answer) => answer,
            Err(why) => return closed(format!("cannot be had ({why})")),
        };
        match answer.status {
            200..300 => return Ok(Robots::parse(&answer.text, AGENT)),
            300..400 => match redirect(&answer, &url).filter(|to| to.origin() == home.origin()) {
                Some(to) => url = to,
                // Sec. 2.3.1.2 has it followed, but other servers are not asked.
                None => {
                    let to = answer.location.as_deref().unwrap_or("nowhere");
                    return closed(format!("leads to {to}, which is not asked (let the node answer it itself)"));
                }
            },
            500.. => return closed(format!("is answered with {}", answer.status)),
            // None (Sec. 2.3.1.3).
            _ => return Ok(Robots::default()),
        }
    }
    Ok(Robots::default())
}

/// Visits a page and offers what it leads to.
pub(crate) async fn visit(
    load: &mut Load,
    page: (&str, u32),
    home: &Url,
    robots: &Robots,
    bounds: Bounds,
    frontier: &mut Frontier,
) -> Visit {
    let (path, depth) = page;
    let Ok(url) = home.join(path) else { return Visit::Bad("is no address".to_owned()) };
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
