//! nginx: the page of its `stub_status` module.
//!
//! `Writing` is the number of requests being served: nginx is producing or sending the response, or waits for
//! one of its upstreams. `Active` would add `Waiting`, the idle connections kept for a next request, and
//! `Reading`, the connections on which a request has not arrived yet. The page has no paths.

/// Returns the number of requests that nginx is serving, without the one for this page.
///
/// # Errors
/// `page` is not that page.
pub fn active(page: &str) -> Result<u32, String> {
    let is_page = page.starts_with("Active connections:");
    let mut words = page.split_ascii_whitespace().skip_while(|word| *word != "Writing:").skip(1);
    let writing = words.next().filter(|_| is_page).and_then(|word| word.parse::<u32>().ok());
    let writing = writing.ok_or("this is not the page of nginx's stub_status: give it a location of its own")?;
    Ok(writing.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_counts_without_the_page_itself() {
        // nginx 1.22 while it sent one file to a slow client.
        assert_eq!(active(include_str!("pages/nginx.txt")), Ok(1));
        let busy = "Active connections: 291 \nserver accepts handled requests\n 16 16 31 \n\
                    Reading: 6 Writing: 179 Waiting: 106 \n";
        assert_eq!(active(busy), Ok(178));
        assert_eq!(active(&busy.replace("179", "0")), Ok(0));
    }

    #[test]
    fn other_pages_are_refused() {
        for page in ["", "<html>Writing: 3", "Active connections: 1 \n", "Active connections: 1\nWriting: x"] {
            assert!(active(page).expect_err(page).contains("stub_status"));
        }
    }
}
