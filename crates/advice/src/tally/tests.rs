//! Tests of the counts.

use std::borrow::Cow;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn request(second: i64, host: &str, path: &str) -> Request<'static> {
    Request {
        ended_ms: second * 1000,
        host: Some(Cow::Owned(host.to_owned())),
        path: Some(Cow::Owned(path.to_owned())),
        client: Some(Cow::Owned(format!("10.0.0.{}", second % 7))),
        status: Some(200),
        service: Some(Duration::from_millis(20)),
        response: Some(Duration::from_millis(30)),
        ..Request::default()
    }
}

#[test]
fn memory_is_bounded_whatever_clients_send() {
    let mut tally = Tally::default();
    for n in 0..200_000i64 {
        tally.add(&request(n, &format!("h{n}.test"), &format!("/{n}/x")));
        tally.add(&request(n, "shop.test", "/cart"));
        // As many names as rows, each seen often enough for one.
        tally.add(&request(n, &format!("s{}.test", n / 20), &format!("/{}", n / 20)));
    }
    assert!(tally.rows.len() <= MAX_ROWS && tally.seen.len() <= MAX_SEEN && tally.index.len() <= MAX_ROWS);
    assert_eq!(tally.requests(), 600_000);
    let cart = tally.index[&Key { host: Some("shop.test".into()), segment: Some("cart".into()) }];
    assert!(tally.rows[cart].count >= 199_000, "what matters stays: {}", tally.rows[cart].count);
    assert!(tally.windows.all().all(|window| window.cell(cart).count <= 10));
    assert!(tally.windows.all().map(|window| window.cell(cart).count).max() == Some(10));
}

#[test]
fn crawlers_are_in_no_other_row() {
    let mut tally = Tally::default();
    for second in 0..100 {
        tally.add(&Request { agent: Some(Cow::Borrowed("Googlebot/2.1")), ..request(second, "a.test", "/") });
    }
    assert_eq!((tally.rows[SITE].count, tally.rows[CRAWLERS].count, tally.rows.len()), (100, 100, 2));
}

proptest! {
    /// The order of lines and of files does not matter to windows.
    #[test]
    fn windows_do_not_depend_on_the_order(mut seconds in prop::collection::vec(0i64..2_000, 1..300)) {
        let counts = |seconds: &[i64]| {
            let mut tally = Tally::default();
            seconds.iter().for_each(|second| tally.add(&request(*second, "a.test", "/")));
            tally.windows.all().map(|window| window.cell(SITE).count).collect::<Vec<_>>()
        };
        let one = counts(&seconds);
        seconds.sort_unstable();
        prop_assert_eq!(&one, &counts(&seconds));
        prop_assert_eq!(one.iter().sum::<u32>() as usize, seconds.len());
    }
}
