//! Logs of every format, valid and broken, and the two real logs in the folder next to the repository.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

/// A file that is removed after the test.
struct Trace(PathBuf);

impl Trace {
    fn new(content: &[u8]) -> Trace {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("weirgate-{}-{}.log", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        Trace(path)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn packed(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Returns the timestamps of a log, in milliseconds.
fn millis(content: impl AsRef<[u8]>) -> Vec<u128> {
    let trace = Trace::new(content.as_ref());
    let (instants, costs) = read(&trace.0, 1.0, DAY, 1000, &[]).unwrap_or_else(|error| panic!("{error:?}"));
    assert!(costs.is_empty());
    instants.iter().map(Duration::as_millis).collect()
}

/// Returns the complaint about a log, without the log's name.
fn refused(content: impl AsRef<[u8]>, max: usize) -> String {
    let trace = Trace::new(content.as_ref());
    let complaint = read(&trace.0, 1.0, DAY, max, &[]).expect_err("it is broken");
    let name = quoted(&trace.0.display().to_string());
    format!("{}; {}", complaint.what, complaint.hint).replace(&name, "T")
}

#[test]
fn access_logs_have_their_date_in_brackets() {
    let common = "\
199.72.81.55 - - [01/Aug/1995:00:00:01 -0400] \"GET /history/[1]?t=5 HTTP/1.0\" 200 6245
in24 - 17 [01/Aug/1995:06:00:04 +0200] \"GET / HTTP/1.0\" 304 0 \"-\" \"Mozilla/4.0 [en] (Win95; U)\"
uplherc - - [01/Aug/1995:04:00:02 +0000] \"GET / HTTP/1.0\" 200 1839
";
    assert_eq!(millis(common), [0, 1_000, 3_000]);
    let haproxy = "\
Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0
Feb  6 12:14:15 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.905] http-in static/srv1 10/0
";
    assert_eq!(millis(haproxy), [0, 250]);
}

#[test]
fn the_instant_is_in_the_column_of_the_first_one() {
    for (text, expected) in [
        // A header, an empty column, a number in a later column, spaces in an earlier one.
        ("host\ttime\tbytes\n-\t807256800\t5\n\t807256801.5\t7\na b\t807256803\t\n", &[0, 1_500, 3_000][..]),
        ("TIMESTAMP,Tokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n", &[0, 52]),
        ("\"GET /a,b\",\"2023-11-16 18:17:03\",5\n\"GET /\",\"2023-11-16 18:17:05\",1\n", &[0, 2_000]),
        ("{\"time\":\"2026-11-21T20:15:03.042Z\",\"us\":5}\n{\"time\":\"2026-11-21T20:15:04Z\"}\n", &[0, 958]),
        ("GET;1.5;200\r\nGET; 0.25;200\r\n", &[250, 1_500]),
        ("  x   3.5 9\ny 4.5 1\n", &[3_500, 4_500]),
        ("/a?b,c, 3.5\n/, 4.5\n", &[]),
        ("\u{feff}1.5\n2\n", &[1_500, 2_000]),
        ("#Fields: date time\n\n2019-12-04\t21:02:31\tLAX1\t392\n2019-12-04\t21:02:33\tLAX1\t39\n", &[0, 2_000]),
        ("2024-02-28T23:59:59Z\n2024-02-29T00:00:00Z\n2024-03-01T00:00:00+01:00\n", &[0, 1_000, 82_801_000]),
        ("5.5\t1700000000\n2.25\t1700000001\n", &[2_250, 5_500]),
    ] {
        if expected.is_empty() {
            assert!(refused(text, 9).contains("line 2 of the trace T has nothing where"), "{text}");
        } else {
            assert_eq!(millis(text), expected, "{text}");
        }
    }
}

#[test]
fn the_requests_of_a_whole_second_are_spread_over_it() {
    assert_eq!(millis("7\n5\n7\n7\n7\n5\n"), [5_000, 5_500, 7_000, 7_250, 7_500, 7_750]);
    assert_eq!(millis("1700000003\n1700000000\n1700000003\n"), [0, 3_000, 3_500]);
    // A single fraction shows that the log records fractions, so equal timestamps are real.
    assert_eq!(millis("7\n5\n7\n5.5\n"), [5_000, 5_500, 7_000, 7_000]);
    // A fraction after the end of the run counts too.
    assert_eq!(millis("7\n7\n100000.5\n"), [7_000, 7_000]);
}

#[test]
fn the_run_ends_also_within_a_second_and_speed_divides() {
    let trace = Trace::new(b"1700000004\n1700000000\n1700000000\n1700000001\n1700000001\n1700000001\n1700000001\n");
    let read = |speed, end| {
        let (instants, _) = read(&trace.0, speed, Duration::from_millis(end), 1000, &[]).unwrap();
        instants.iter().map(Duration::as_millis).collect::<Vec<_>>()
    };
    assert_eq!(read(1.0, 1_300), [0, 500, 1_000, 1_250]);
    assert_eq!(read(2.0, 2_001), [0, 250, 500, 625, 750, 875, 2_000]);
    assert_eq!(read(0.5, 1_000), [0]);
}

#[test]
fn gzip_is_told_by_its_first_bytes_and_may_have_several_members() {
    let mut content = packed("0.5\n");
    content.extend(packed("2.5\n"));
    assert_eq!(millis(&content), [500, 2_500]);
    assert!(refused(&content[..content.len() - 9], 9).starts_with("the trace T cannot be read: "));
    assert!(refused([&content[..], b"rubbish"].concat(), 9).ends_with("; is it a whole file, as text or gzip?"));
    // A gzip bomb of 100 MB in 100 KB is not unpacked.
    let bomb = packed(&" ".repeat(100 << 20));
    assert_eq!(refused(bomb, 9), "line 1 of the trace T has more than 64 KiB; is it a trace at all?");
}

#[test]
fn a_broken_line_is_named() {
    let hint = "write seconds, such as `12.345`, or a date, such as `2023-11-16T18:17:03Z`";
    let bracket = "write one, such as `[01/Aug/1995:00:00:01 -0400]`";
    for (text, what, hint) in [
        ("", "the trace T has no line with an instant", "is it the right file?"),
        ("time\n", "the trace T has no line with an instant", "is it the right file?"),
        ("time\nurl\n", "line 2 of the trace T has no instant, and neither has the one before", hint),
        ("a,1.5\nb,c\n", "line 2 of the trace T has `c` where the lines before it have their instant", hint),
        ("a,1.5\n\nb,,7\n", "line 3 of the trace T has nothing where the lines before it have their instant", hint),
        (
            "1.5\n31/Feb/2023:00:00:00\n",
            "line 2 of the trace T has `31/Feb/2023:00:00:00` where the lines before it have their instant",
            hint,
        ),
        (
            "h [01/Aug/1995:00:00:01 -0400] 5\nh [01/Aug/1995:24:00:01 -0400] 5\n",
            "line 2 of the trace T has no date in brackets",
            bracket,
        ),
        (
            "1700158623979,4808\n",
            "line 1 of the trace T has an instant 1700158623979 s after 1970, beyond the year 2286",
            "write seconds, not milliseconds: `1700158623.979`",
        ),
        (
            "1.5\n2023-11-16T18:17:03Z\n",
            "line 2 of the trace T has a date, and those before it have seconds from the start of the run",
            "write all in the same way",
        ),
        (
            "1700000000\n5\n",
            "line 2 of the trace T has seconds from the start of the run, and those before it have dates",
            "write all in the same way",
        ),
        (
            "90000.4\n",
            "the trace T begins at 90000 s, after the end of the run",
            "count its instants from the start of the run",
        ),
    ] {
        assert_eq!(refused(text, 9), format!("{what}; {hint}"), "{text}");
    }
    assert_eq!(refused("1\n3\n2\n", 2), "the trace T has more than 2 requests within the run; make the run shorter");
    // Requests after the end do not count.
    let trace = Trace::new(b"1\n90000\n2\n90001\n");
    assert_eq!(read(&trace.0, 1.0, DAY, 2, &[]).unwrap().0.len(), 2);
}

/// Returns a line of a log in one of the formats.
fn line(form: usize, seconds: u64, millis: u64, whole: bool) -> String {
    let fraction = if whole { String::new() } else { format!(".{millis:03}") };
    let clock = format!("{:02}:{:02}{fraction}", seconds / 60, seconds % 60);
    match form {
        0 => format!("h - 9 [29/Feb/2024:12:{clock} -0130] \"GET / HTTP/1.0\" 200 {millis}"),
        1 => format!("-\t{}{fraction}\tGET\t/\t{millis}", 1_700_000_000 + seconds),
        2 => format!("2024-02-29 23:{clock},{millis},7"),
        3 => format!("GET;2024-02-29T00:{clock}Z;{millis}"),
        _ => format!("{seconds}{fraction} GET {millis}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_lines_makes_no_difference(
        form in 0usize..5,
        whole in any::<bool>(),
        header in any::<bool>(),
        speed in 0.25f64..4.0,
        (log, other) in prop::collection::vec((0u64..3600, 0u64..1000), 1..60)
            .prop_flat_map(|log| (Just(log.clone()), Just(log).prop_shuffle())),
    ) {
        let played = |log: &[(u64, u64)]| {
            let mut text = String::from(if header { "host time bytes\n" } else { "" });
            text.extend(log.iter().map(|&(seconds, millis)| line(form, seconds, millis, whole) + "\n"));
            let trace = Trace::new(&if whole { packed(&text) } else { text.into_bytes() });
            let read = read(&trace.0, speed, Duration::from_secs(1200), 1000, &[]);
            read.map(|(instants, _)| instants).map_err(|complaint| complaint.what.replace(
                &quoted(&trace.0.display().to_string()), "T"))
        };
        let instants = played(&log);
        prop_assert_eq!(&instants, &played(&other));
        if let Ok(instants) = instants {
            prop_assert!(instants.is_sorted() && instants.len() <= log.len());
            prop_assert!(instants.iter().all(|&at| at < Duration::from_secs(1200)));
        } else {
            prop_assert_eq!(form, 4, "only plain seconds may all lie after the end");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut content in prop::collection::vec(any::<u8>(), 0..300), gzip in any::<bool>()) {
        if gzip {
            content.splice(..0, [0x1f, 0x8b, 8, 0]);
        }
        let trace = Trace::new(&content);
        for wanted in [&[][..], &[per("2", 1)]] {
            if let Err(complaint) = read(&trace.0, 1.0, DAY, 1000, wanted) {
                prop_assert!(!complaint.what.is_empty());
            }
        }
    }
}

/// Returns a file of `shared/data` in the folder next to the repository, if it exists.
fn shared(name: &str) -> Option<PathBuf> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "..", "shared", "data", name].iter().collect();
    if !path.exists() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: ../shared/data/{name} is not there");
        return None;
    }
    Some(path)
}

#[test]
fn the_log_of_kennedy_space_center_is_read() {
    let Some(path) = shared("nasa_19950801.tsv.gz") else { return };
    let wanted = [per("bytes", 1)];
    let (instants, costs) = read(&path, 1.0, DAY, 100_000, &wanted).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!((instants.len(), costs.len()), (30_969, 30_969));
    // The first replies have 1713, 8677 and 1173 bytes.
    assert_eq!(costs.iter().take(3).map(|cost| cost[1] / 1000).collect::<Vec<_>>(), [1_713, 8_677, 1_173]);
    assert_eq!((instants[0], instants[30_968].as_secs()), (Duration::ZERO, 807_303_121 - 807_256_800));
    // Timestamps of whole seconds are spread, so no two are equal.
    assert!(instants.windows(2).all(|pair| pair[0] < pair[1]));
    let hour = read(&path, 10.0, Duration::from_secs(360), 100_000, &[]);
    let (hour, _) = hour.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(hour.len(), instants.iter().filter(|at| at.as_secs() < 3600).count());
}

#[test]
fn the_log_of_a_language_model_is_read() {
    let Some(path) = shared("azure_llm_2023_code.csv.gz") else { return };
    let wanted = [per("GeneratedTokens", 20_000)];
    let (instants, costs) = read(&path, 1.0, DAY, 100_000, &wanted).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!((instants.len(), costs.len()), (8_819, 8_819));
    assert_eq!([costs[0], costs[1], costs[8_818]].map(|cost| cost[1] / 20_000_000), [10, 8, 173]);
    let (last, expected) = (instants[8_818], Duration::new(57 * 60 + 15, 948_056_000));
    assert_eq!((instants[0], instants[1], last), (Duration::ZERO, Duration::from_millis(52), expected));
}

/// Returns a number of microseconds of I/O for each unit of a column.
fn per(column: &str, micros: u64) -> Traced {
    Traced { part: 1, columns: vec![(column.to_owned(), Duration::from_micros(micros))], max: None }
}

#[test]
fn what_lines_say_stays_with_their_instants() {
    let costs = |content: &str, end: u64, column: &str| {
        let trace = Trace::new(content.as_bytes());
        let read = read(&trace.0, 1.0, Duration::from_secs(end), 1000, &[per(column, 1)]);
        let (instants, costs) = read.unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(instants.len(), costs.len());
        costs.iter().map(|cost| cost[1] / 1000).collect::<Vec<_>>()
    };
    // Lines of one instant keep their order, and those after the end are left out.
    assert_eq!(costs("time,bytes\n3,30\n1,12\n1,11\n2,-\n9,90\n", 9, "bytes"), [12, 11, 0, 30]);
    let log = "h - - [01/Aug/1995:00:00:01 -0400] \"GET /a,b HTTP/1.0\" 200 62\n\
               h - - [01/Aug/1995:00:00:00 -0400] \"GET / HTTP/1.0\" 304 -\n";
    assert_eq!(costs(log, 9, "7"), [0, 62]);
    assert_eq!(costs("#Fields: date time bytes\n2019-12-04\t21:02:31\t39\n", 9, "bytes"), [39]);
}
