//! Tests of the cookie, of the standings, and of the heads that carry them.

use proptest::prelude::*;
use weirgate_http1::{Event, Limits, Responses};
use weirgate_tls::SigningKey;

use super::*;

/// Visitors whose cookies are signed by the first of these keys.
fn visitors(keys: &[&str]) -> Visitors {
    Visitors {
        cookie: "v".to_owned(),
        returning_after: Duration::from_secs(10),
        lifetime: Duration::from_secs(1000),
        keys: keys.iter().map(|key| SigningKey::new(key.as_bytes())).collect(),
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

fn request(cookies: &str) -> Request {
    Request::parse(format!("GET / HTTP/1.1\r\nHost: h\r\n{cookies}\r\n").as_bytes()).expect("it is sound")
}

/// Reads the cookie `value` at a time.
fn read(visitors: &Visitors, value: &str, now: SystemTime) -> Result<Visitor, &'static str> {
    Visitor::of(visitors, &request(&format!("Cookie: a=b; v={value}\r\n")), now)
}

/// Answers a request with the cookie `value`, and returns the value of the cookie that the response sets.
fn answer(visitors: &Visitors, value: Option<&str>, vouched: bool, now: SystemTime) -> Option<String> {
    let before = value.and_then(|value| read(visitors, value, now).ok());
    let next = Visitor::next(visitors, before.as_ref(), (vouched, now), || Some([7; 16]));
    next.and_then(|next| next.value(visitors))
}

#[test]
fn a_visitor_becomes_known_by_coming_back() {
    let visitors = visitors(&["key"]);
    let first = answer(&visitors, None, false, at(0)).expect("a cookie");
    assert_eq!(first.len(), LETTERS);
    assert_eq!(read(&visitors, &first, at(0)).map(|visitor| visitor.standing), Ok(Standing::New));
    assert_eq!(answer(&visitors, Some(&first), false, at(9)), None, "too soon");
    let second = answer(&visitors, Some(&first), false, at(10)).expect("a cookie");
    let visitor = read(&visitors, &second, at(10)).expect("it is valid");
    assert_eq!(
        (visitor.standing, visitor.id, visitor.age(at(15))),
        (Standing::Returning, [7; 16], Duration::from_secs(5))
    );
    assert_eq!(answer(&visitors, Some(&second), false, at(110)), None, "a tenth of its lifetime has not passed");
    let third = answer(&visitors, Some(&second), false, at(111)).expect("it is renewed");
    assert_eq!(read(&visitors, &third, at(1111)).map(|visitor| visitor.standing), Ok(Standing::Returning));
    assert_eq!(read(&visitors, &third, at(1112)), Err("its lifetime is over"));
    // Without a valid cookie it begins anew.
    let anew = answer(&visitors, Some(&third), false, at(1112)).expect("a cookie");
    assert_eq!(read(&visitors, &anew, at(1112)).map(|visitor| visitor.standing), Ok(Standing::New));
}

#[test]
fn an_application_vouches_at_once() {
    let visitors = visitors(&["key"]);
    let standing = |value: &str, now| read(&visitors, value, now).map(|visitor| visitor.standing);
    let first = answer(&visitors, None, true, at(0)).expect("a cookie");
    assert_eq!(standing(&first, at(1)), Ok(Standing::Vouched));
    assert_eq!(answer(&visitors, Some(&first), true, at(1)), None, "it is vouched for already");
    assert_eq!(answer(&visitors, Some(&first), false, at(50)), None, "it stays so");
    let new = answer(&visitors, None, false, at(0)).expect("a cookie");
    let vouched = answer(&visitors, Some(&new), true, at(1)).expect("a cookie");
    assert_eq!(standing(&vouched, at(1)), Ok(Standing::Vouched));
}

#[test]
fn keys_are_changed_without_a_loss() {
    let (old, both, new) = (visitors(&["old"]), visitors(&["new", "old"]), visitors(&["new"]));
    let first = answer(&old, None, false, at(0)).expect("a cookie");
    assert!(read(&new, &first, at(1)).is_err() && read(&visitors(&[]), &first, at(1)).is_err());
    let signed = answer(&both, Some(&first), false, at(5)).expect("it is signed anew");
    let visitor = read(&new, &signed, at(5)).expect("it is valid");
    assert_eq!((visitor.standing, visitor.age(at(5))), (Standing::New, Duration::from_secs(5)), "it waits no longer");
    assert_eq!(answer(&visitors(&[]), None, false, at(0)), None, "without a key there is no cookie");
}

#[test]
fn only_one_cookie_of_this_time_counts() {
    let visitors = visitors(&["key"]);
    let first = answer(&visitors, None, false, at(100)).expect("a cookie");
    assert!(read(&visitors, &first, at(40)).is_ok(), "clocks differ a little");
    assert_eq!(read(&visitors, &first, at(39)), Err("it was issued in the future"));
    let of = |cookies: &str| Visitor::of(&visitors, &request(cookies), at(100)).map(|visitor| visitor.standing);
    assert_eq!(of(""), Err("there is no such cookie"));
    assert_eq!(of(&format!("Cookie: v={first}; v={first}\r\n")), Err("there are two such cookies"));
    assert_eq!(of(&format!("Cookie: a=1\r\nCookie: v=\"{first}\"\r\n")), Ok(Standing::New));
    for wrong in ["", "x", &first[1..], &format!("{first}A"), &"A".repeat(LETTERS), &"é".repeat(LETTERS / 2)] {
        assert_eq!(of(&format!("Cookie: v={wrong}\r\n")), Err("it was not signed by a key of this gateway"), "{wrong}");
    }
}

#[test]
fn nodes_get_all_other_cookies() {
    let rest = |cookies: &str| {
        let mut out = Vec::new();
        write_other_cookies(&mut out, &request(cookies), "v");
        String::from_utf8(out).expect("text")
    };
    assert_eq!(rest("Cookie: a=1; v=2; b=\"3; \" ;;vv=4; V=5\r\n"), "cookie: a=1; b=\"3; \"; vv=4; V=5\r\n");
    assert_eq!(rest("Cookie: v=1\r\nCookie: c=2;v = 3\r\n"), "cookie: c=2\r\n");
    assert!(has_cookie(&request("Cookie: a=1; v=2\r\n"), "v") && !has_cookie(&request("Cookie: a=v\r\n"), "v"));
}

/// Returns the cookie that a response with these fields sets, and the head without it.
fn received(status: u16, fields: &str, earns: bool) -> (Option<String>, String) {
    let (visitors, start) = (visitors(&["key"]), 3);
    let text = format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: 0\r\n\r\n");
    let mut responses = Responses::new(Limits { head_bytes: 4096, fields: 50 });
    responses.expect("GET");
    assert_eq!(responses.receive(text.as_bytes()), Ok(Event::Head(text.len())));
    let mut out = b"old".to_vec();
    out.extend_from_slice(text.strip_suffix("\r\n").expect("a head").as_bytes());
    let reception = Reception { visitors: &visitors, before: None, earns, secure: true, now: at(0) };
    reception.write(&mut out, start, (responses.head(), text.as_bytes()));
    let out = String::from_utf8(out).expect("text");
    match out.split_once("set-cookie: ") {
        Some((head, cookie)) => (Some(cookie.to_owned()), head.to_owned()),
        None => (None, out),
    }
}

#[test]
fn answers_of_nodes_bring_the_cookie() {
    let (cookie, head) = received(200, "X: y\r\n", true);
    let cookie = cookie.expect("a cookie");
    assert!(cookie.starts_with("v=") && cookie.ends_with("; Path=/; Max-Age=1000; HttpOnly; Secure; SameSite=Lax\r\n"));
    assert_eq!(head, "oldHTTP/1.1 200 X\r\nX: y\r\nContent-Length: 0\r\n");
    for (status, fields, earns) in [
        (404, "", true),
        (503, "", true),
        (200, "", false),
        (200, "Cache-Control: max-age=5, Public\r\n", true),
        (200, "Cache-Control: s-maxage=5\r\n", true),
    ] {
        assert_eq!(received(status, fields, earns).0, None, "{status} {fields} {earns}");
    }
    assert!(received(200, "Cache-Control: max-age=5\r\n", true).0.is_some(), "only its own browser stores it");
    let (cookie, head) = received(403, "Weirgate-Visitor: vouched\r\n", false);
    assert_eq!((cookie.is_some(), head.as_str()), (true, "oldHTTP/1.1 403 X\r\nContent-Length: 0\r\n"));
    let (cookie, head) = received(403, "Weirgate_Visitor: maybe\r\n", false);
    assert_eq!((cookie, head.as_str()), (None, "oldHTTP/1.1 403 X\r\nContent-Length: 0\r\n"));
}

proptest! {
    /// Whatever is changed in a cookie, it is no longer valid.
    #[test]
    fn a_changed_cookie_is_not_valid(at_letter in 0..LETTERS, letter in "[A-Za-z0-9_-]") {
        let visitors = visitors(&["key", "other"]);
        let value = answer(&visitors, None, false, at(0)).expect("a cookie");
        let mut changed = value.clone();
        changed.replace_range(at_letter..=at_letter, &letter);
        prop_assert_eq!(read(&visitors, &changed, at(1)).is_ok(), changed == value);
    }

    #[test]
    fn any_value_is_read(value in "\\PC{0,100}") {
        prop_assert!(read(&visitors(&["key"]), &value.replace(['\r', '\n'], ""), at(0)).is_err());
    }
}
