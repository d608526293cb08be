//! Lines of access logs: files, standard input and gzip.
//!
//! A line that is no request is counted and left out. The first one is kept, with its place, for the message. A log of
//! another program is refused at its first line.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use weirgate_wire::access_log::LoggedRequest;

/// Longest line. The gateway cuts every field at 1 KiB, so its lines have less than 16 KiB even with all characters
/// escaped.
const MAX_LINE: u64 = 64 << 10;

/// First bytes of a gzip file: RFC 1952, sec. 2.3.1.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Where a log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, as text or gzip.
    File(PathBuf),
    /// Standard input, as text or gzip.
    Input,
}

impl Source {
    /// Returns the source that a word of the command line names. `-` is standard input.
    pub fn of(word: &Path) -> Source {
        if word.as_os_str() == "-" { Source::Input } else { Source::File(word.to_owned()) }
    }

    fn name(&self) -> String {
        match self {
            Source::File(path) => path.display().to_string(),
            Source::Input => "standard input".to_owned(),
        }
    }

    /// Returns the size of a file, for progress reports.
    pub fn bytes(&self) -> Option<u64> {
        let Source::File(path) = self else { return None };
        std::fs::metadata(path).ok().map(|facts| facts.len())
    }
}

/// Counts of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Requests read.
    pub requests: u64,
    /// Lines that are no request.
    pub malformed: u64,
    /// The first of these, with file, line and reason.
    pub first_malformed: Option<String>,
}

/// Returns the first field that a replay cannot do without and `line` does not have.
fn missing(line: &LoggedRequest<'_>) -> Option<&'static str> {
    let fields = [
        ("class", line.class.is_some()),
        ("method", line.method.is_some()),
        ("host", line.host.is_some()),
        ("path", line.path.is_some()),
        ("client", line.client.is_some()),
        ("queue_wait_ms", line.queue_wait_ms.is_some()),
        ("service_time_ms", line.service_time_ms.is_some()),
        ("total_ms", line.total_ms.is_some()),
    ];
    fields.into_iter().find(|(_, is_there)| !is_there).map(|(name, _)| name)
}

/// A reader that counts the bytes that pass.
struct Counted<'a, R> {
    inner: R,
    passed: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.passed.set(self.passed.get() + count as u64);
        Ok(count)
    }
}

/// Reads every request of `sources`, one after the other, and passes each to `take`. Memory is bounded by one line.
/// `progress` receives the number of bytes read so far, of files as they are stored.
///
/// # Errors
/// Returns the first error of `take`, or why a source cannot be read or is no access log of Weirgate.
pub fn read(
    sources: &[Source],
    mut take: impl FnMut(&LoggedRequest<'_>) -> Result<(), String>,
    mut progress: impl FnMut(u64),
) -> Result<Lines, String> {
    let mut lines = Lines::default();
    let passed = Cell::new(0);
    for source in sources {
        let name = source.name();
        let broken = |error: io::Error| format!("{name} cannot be read: {error}");
        let input: Box<dyn Read> = match source {
            Source::File(path) => Box::new(File::open(path).map_err(broken)?),
            Source::Input => Box::new(io::stdin().lock()),
        };
        let mut reader = unpacked(BufReader::new(Counted { inner: input, passed: &passed })).map_err(broken)?;
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let count = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(broken)?;
            if count == 0 {
                break;
            }
            if count as u64 == MAX_LINE {
                return Err(format!("{name}:{number}: the line has more than 64 KiB; is it an access log?"));
            }
            if number % 4096 == 0 {
                progress(passed.get());
            }
            let text = line.trim_ascii();
            if text.is_empty() {
                continue;
            }
            // The gateway writes UTF-8, and other bytes are an error of JSON.
            let is_first = lines.requests == 0 && lines.malformed == 0;
            let refused = match serde_json::from_slice::<LoggedRequest<'_>>(text) {
                Ok(request) => match missing(&request) {
                    None => {
                        take(&request)?;
                        lines.requests += 1;
                        continue;
                    }
                    Some(field) if is_first => {
                        return Err(format!(
                            "{name}:{number}: the line has no `{field}`, and without it its request cannot be \
                             replayed; add it to `fields` of `access_log` in the policy, or leave out `fields`"
                        ));
                    }
                    Some(field) => format!("the line has no `{field}`"),
                },
                Err(error) => error.to_string(),
            };
            if is_first && text.first() != Some(&b'{') {
                return Err(format!(
                    "{name}:{number}: this is no access log of Weirgate with a JSON object in each line; turn it on \
                     with `access_log: {{ file: access.log, format: json }}` in the policy"
                ));
            }
            lines.malformed += 1;
            lines.first_malformed.get_or_insert_with(|| format!("{name}:{number}: {refused}"));
        }
        progress(passed.get());
    }
    Ok(lines)
}

/// Returns the text of `reader`, decompressed if it is gzip.
fn unpacked<'a, R: Read + 'a>(mut reader: BufReader<R>) -> io::Result<Box<dyn BufRead + 'a>> {
    Ok(match reader.fill_buf()?.starts_with(GZIP) {
        true => Box::new(BufReader::new(MultiGzDecoder::new(reader))),
        false => Box::new(reader),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = r#"{"time":"2026-11-26T10:00:00.000Z","class":"gold","ending":"served","status":200,"method":"GET","host":"a.test","path":"/\"x","client":"192.0.2.1","queue_wait_ms":1.5,"service_time_ms":8.0,"total_ms":10.0,"later_field":[1]}"#;

    fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> Source {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Source::File(path)
    }

    fn all(sources: &[Source]) -> Result<(Lines, Vec<String>), String> {
        let mut paths = Vec::new();
        let keep = |request: &LoggedRequest<'_>| {
            paths.push(request.path.clone().unwrap_or_default().into_owned());
            Ok(())
        };
        read(sources, keep, |_| ()).map(|lines| (lines, paths))
    }

    #[test]
    fn text_and_gzip_are_read_and_bad_lines_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(format!("{LINE}\n{LINE}").as_bytes()).unwrap();
        let sources = [
            file(&folder, "a.log", format!("{LINE}\n\n{{\"time\":1}}\nnonsense\n{LINE}\n").as_bytes()),
            file(&folder, "b.log.gz", &packed.finish().unwrap()),
        ];
        let (lines, paths) = all(&sources).unwrap();
        assert_eq!((lines.requests, lines.malformed), (4, 2));
        let first = lines.first_malformed.unwrap();
        assert!(first.contains("a.log:3: ") && first.contains("expected a string"), "{first}");
        assert_eq!(paths, ["/\"x"; 4]);
    }

    #[test]
    fn other_logs_and_missing_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let combined = b"192.0.2.1 - - [26/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n";
        let why = all(&[file(&folder, "nginx.log", combined)]).unwrap_err();
        assert!(why.contains("nginx.log:1: this is no access log of Weirgate"), "{why}");
        let part = LINE.replace("\"total_ms\":10.0,", "");
        let why = all(&[file(&folder, "part.log", part.as_bytes())]).unwrap_err();
        assert!(why.contains("part.log:1: the line has no `total_ms`, "), "{why}");
        let later = all(&[file(&folder, "later.log", format!("{LINE}\n{part}\n").as_bytes())]).unwrap().0;
        assert_eq!((later.requests, later.malformed), (1, 1));
        assert!(later.first_malformed.is_some_and(|why| why.ends_with("later.log:2: the line has no `total_ms`")));
        let why = all(&[Source::File(folder.path().join("none"))]).unwrap_err();
        assert!(why.contains("none cannot be read"), "{why}");
        assert!(all(&[file(&folder, "long", &[b'{'; 70_000])]).unwrap_err().contains("more than 64 KiB"));
        assert_eq!(all(&[file(&folder, "empty", b"")]).unwrap().0, Lines::default());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let folder = tempfile::tempdir().unwrap();
            let _ = all(&[file(&folder, "any", &bytes)]);
            let _ = all(&[file(&folder, "any", &[GZIP, &bytes].concat())]);
        }
    }
}
