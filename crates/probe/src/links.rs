//! Links of an HTML page, and the objects embedded in it.
//!
//! Source: Feng and Lin, Sec. 3.1: starting at the home page, every page is parsed for both. Forms are not
//! followed, not even with GET, because the request depends on the user's input. Requests made by scripts are
//! not followed. Sites mark links that perform an action, and these are not followed either: links that
//! robots should not follow (`rel=nofollow`), and links that a script turns into another kind of request
//! (`data-method`).

use std::collections::BTreeSet;

use html5gum::emitters::default::{DefaultEmitter, StartTag};
use html5gum::{Token, Tokenizer};
use url::Url;

/// Maximum number of addresses taken from a page. A site map with 5,000 lines is long.
const MAX_LINKS: usize = 5000;

/// Maximum length of an address, and of the base of relative ones. Servers refuse longer ones. A page could
/// also have thousands of links that each take as much memory as the base.
const LONGEST: usize = 2048;

/// Attributes that contain an address, by element.
const ADDRESSES: [(&str, &str); 15] = [
    ("a", "href"),
    ("area", "href"),
    ("link", "href"),
    ("img", "src"),
    ("script", "src"),
    ("iframe", "src"),
    ("frame", "src"),
    ("source", "src"),
    ("embed", "src"),
    ("video", "src"),
    ("video", "poster"),
    ("audio", "src"),
    ("track", "src"),
    ("input", "src"),
    ("object", "data"),
];

/// Elements with a list of addresses in `srcset`.
const LISTS: [&str; 2] = ["img", "source"];

/// Attributes with which scripts of web frameworks turn a link into a request other than GET.
const METHODS: [&str; 4] = ["data-method", "data-turbo-method", "hx-post", "hx-delete"];

/// Returns the addresses in `html`, the page at `page`: absolute, without fragments, without duplicates, in
/// page order.
pub fn links(html: &str, page: &Url) -> Vec<Url> {
    let mut emitter = DefaultEmitter::default();
    // Content of a script is not HTML.
    emitter.naively_switch_states(true);
    let mut base = None;
    let mut texts = Vec::new();
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        let Token::StartTag(tag) = token else { continue };
        let name = tag.name.as_slice();
        if name == b"base" && base.is_none() {
            base = attribute(&tag, "href").and_then(|href| page.join(href.trim()).ok()).filter(is_short);
        }
        if is_not_to_follow(&tag) {
            continue;
        }
        for (_, address) in ADDRESSES.iter().filter(|(element, _)| element.as_bytes() == name) {
            texts.extend(attribute(&tag, address));
        }
        if LISTS.iter().any(|element| element.as_bytes() == name) {
            let list = attribute(&tag, "srcset").unwrap_or_default();
            let candidates = list.split(", ").filter_map(|candidate| candidate.split_ascii_whitespace().next());
            texts.extend(candidates.take(MAX_LINKS).map(|candidate| candidate.trim_matches(',').to_owned()));
        }
        if texts.len() >= MAX_LINKS {
            break;
        }
    }
    // The first `base` applies to the whole page, including the part before it.
    let base = base.unwrap_or_else(|| page.clone());
    let mut seen = BTreeSet::new();
    let found = texts.into_iter().take(MAX_LINKS).filter_map(|text| {
        let mut url = base.join(text.trim()).ok().filter(is_short)?;
        url.set_fragment(None);
        seen.insert(url.clone()).then_some(url)
    });
    found.collect()
}

fn is_short(url: &Url) -> bool {
    url.as_str().len() <= LONGEST
}

fn is_not_to_follow(tag: &StartTag<()>) -> bool {
    let rel = attribute(tag, "rel").unwrap_or_default();
    rel.split_ascii_whitespace().any(|word| word.eq_ignore_ascii_case("nofollow"))
        || METHODS.iter().any(|method| tag.attributes.contains_key(method.as_bytes()))
}

fn attribute(tag: &StartTag<()>, name: &str) -> Option<String> {
    let value = tag.attributes.get(name.as_bytes()).filter(|value| value.len() <= LONGEST || name == "srcset")?;
    Some(String::from_utf8_lossy(value).into_owned()).filter(|value| !value.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(html: &str) -> Vec<String> {
        let page = Url::parse("http://a.test/shop/list?x=1").expect("a URL");
        links(html, &page).iter().map(Url::to_string).collect()
    }

    #[test]
    fn links_and_embedded_objects_are_found() {
        let html = r##"<!DOCTYPE html><html><head><link rel=stylesheet href=/s.css><script src="js/a.js"></script>
            <script>document.write('<a href="/no">');</script><!-- <a href=/no> --></head>
            <body background=x><A HREF='item?id=1&amp;y=2#top'>1</A><a href="item?id=1&#38;y=2">again</a>
            <img src=i.png srcset="i1.png 1x, i2.png 2x,"><iframe src="//b.test/f"></iframe><a name=x><a href="">
            <map><area href=../up></map><object data=o.bin></object><video poster=p.jpg><source src=v.mp4></video>
            <form action=/buy><input type=image src=b.gif></form><a href="mailto:x@y.z">m</a><a href='javascript:f()'>"##;
        assert_eq!(
            of(html),
            [
                "http://a.test/s.css",
                "http://a.test/shop/js/a.js",
                "http://a.test/shop/item?id=1&y=2",
                "http://a.test/shop/i.png",
                "http://a.test/shop/i1.png",
                "http://a.test/shop/i2.png",
                "http://b.test/f",
                "http://a.test/up",
                "http://a.test/shop/o.bin",
                "http://a.test/shop/p.jpg",
                "http://a.test/shop/v.mp4",
                "http://a.test/shop/b.gif",
                "mailto:x@y.z",
                "javascript:f()",
            ]
        );
    }

    #[test]
    fn the_first_base_holds() {
        let html = "<a href=a><base href='/deep/'><base href=/no/><a href=b><a href=http://[>";
        assert_eq!(of(html), ["http://a.test/deep/a", "http://a.test/deep/b"]);
    }

    #[test]
    fn what_a_page_says_not_to_follow_is_not_followed() {
        let html = "<a rel='nofollow' href=/a><a href=/b REL='external NoFollow'><a href=/c data-method=delete>\
                    <a data-turbo-method=post href=/d><a rel=next href=/e>";
        assert_eq!(of(html), ["http://a.test/e"]);
    }

    #[test]
    fn what_is_too_long_is_no_address() {
        let long = "x".repeat(LONGEST);
        assert_eq!(of(&format!("<base href='/{long}/'><a href=a>")), ["http://a.test/shop/a"], "nor a base");
        assert_eq!(
            of(&format!("<a href='/{long}'><a href=b><img srcset='/{long} 1x, c 2x'>")),
            ["http://a.test/shop/b", "http://a.test/shop/c"]
        );
    }

    #[test]
    fn tag_soup_does_no_harm() {
        for html in
            ["<", "<a", "<a href", "<a href=", "<a href='x", "</a href=x>", "<<a href=x>>", "\u{0}<a href=\u{0}>"]
        {
            assert!(of(html).len() <= 1, "{html}");
        }
        assert_eq!(of(&"<a href=x>".repeat(100_000)), ["http://a.test/shop/x"]);
        let many: String = (0..10_000).map(|n| format!("<a href={n}>")).collect();
        assert_eq!(of(&many).len(), MAX_LINKS);
    }
}
