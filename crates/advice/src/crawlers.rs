//! Crawlers, told by their `User-Agent`.
//!
//! This is best effort: a crawler that names itself like a browser is not found, and a program whose name has one of
//! these words is. One list serves the count in a log and the condition in the policy.

/// Words in the names of crawlers, in lower case. Most crawlers name themselves with one of the first three.
const WORDS: [&str; 7] = ["bot", "crawl", "spider", "slurp", "archiver", "facebookexternalhit", "feedfetcher"];

/// Returns whether a `User-Agent` names a crawler.
pub(crate) fn is_crawler(agent: &str) -> bool {
    let lower = agent.to_ascii_lowercase();
    WORDS.iter().any(|word| lower.contains(word))
}

/// Returns the regular expression of the policy that means the same.
pub(crate) fn pattern() -> String {
    format!("(?i).*({}).*", WORDS.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crawlers_name_themselves() {
        assert!(is_crawler("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"));
        assert!(is_crawler("Baiduspider"));
        assert!(!is_crawler("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"));
        assert!(!is_crawler(""));
    }
}
