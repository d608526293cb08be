//! The origin: nginx with files of the logged sizes.
//!
//! It serves two addresses, one for clients that come directly and one for the gateway, and keeps one
//! access log for each. In a request, `x-replay-id` is the number of its entry in the log, and
//! `x-replay-version` is the page's version then: its size, `none` (404) or `moved` (302).

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::log::Entry;
use crate::processes::{Directory, Process, free_address, program};

/// `Last-Modified` of every page, and the date that clients with a copy send: the morning of the log.
pub(crate) const MODIFIED: &str = "Tue, 01 Aug 1995 00:00:00 GMT";
/// The same in seconds since 1970.
const MODIFIED_UNIX: u64 = 807_235_200;

pub(crate) struct Origin {
    /// The address for clients.
    pub(crate) direct: SocketAddr,
    /// The address for the gateway.
    pub(crate) behind: SocketAddr,
    process: Process,
    directory: Directory,
}

/// One line of an access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) method: String,
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
}

impl Origin {
    /// Writes the files and starts nginx. `None` if it is not installed and the environment allows that.
    pub(crate) fn start(entries: &[Entry]) -> Option<Origin> {
        let mut command = program("nginx")?;
        let directory = Directory::new();
        write_files(entries, &directory.path().join("stored"));
        let (direct, behind) = (free_address(), free_address());
        let file = directory.write("nginx.conf", &configuration(direct, behind));
        command.arg("-p").arg(directory.path()).args(["-e", "stderr", "-c"]).arg(file);
        let process = Process::start(command, &directory, behind);
        Some(Origin { direct, behind, process, directory })
    }

    /// Stops nginx, so that its logs are complete, and returns the lines of both by the entry's number.
    pub(crate) fn finish(mut self) -> (HashMap<usize, Vec<Line>>, HashMap<usize, Vec<Line>>) {
        self.process.stop("QUIT");
        let read = |name| lines(&std::fs::read_to_string(self.directory.path().join(name)).expect("nginx logs"));
        (read("direct.log"), read("behind.log"))
    }
}

fn lines(text: &str) -> HashMap<usize, Vec<Line>> {
    let mut all: HashMap<usize, Vec<Line>> = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, status, bytes, method, ..] = words.as_slice() else { panic!("unknown line in an access log: {line}") };
        let Ok(id) = id.parse() else { panic!("a request without its number reached the origin: {line}") };
        let number = "nginx logs numbers";
        let (status, bytes) = (status.parse().expect(number), bytes.parse().expect(number));
        all.entry(id).or_default().push(Line { method: (*method).to_owned(), status, bytes });
    }
    all
}

/// Writes one file per page and size. No two have the same bytes at the same position, so the test notices
/// a shifted or mixed body.
fn write_files(entries: &[Entry], root: &Path) {
    let largest = entries.iter().map(|e| e.size).max().unwrap_or(0);
    let mut state = 1_u64;
    let mut noise = || {
        // Knuth's MMIX generator. Any bytes that do not repeat would do.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32).to_le_bytes()
    };
    let bytes: Vec<u8> = (0..largest / 4 + 4096).flat_map(|_| noise()[..4].to_vec()).collect();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED_UNIX);
    let mut written = HashSet::new();
    for entry in entries.iter().filter(|e| matches!(e.status, 200 | 304)) {
        let path = root.join(stored(&entry.url, entry.size));
        if !written.insert(path.clone()) {
            continue;
        }
        let start = written.len();
        let end = start + usize::try_from(entry.size).expect("pages fit into memory");
        std::fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory for the pages");
        std::fs::write(&path, &bytes[start..end]).expect("a page is written");
        let file = std::fs::File::options().write(true).open(&path).expect("it was just written");
        file.set_modified(modified).expect("its time can be set");
    }
}

/// Returns the path of the page of `url` for nginx: its path decoded, without empty segments, and the size.
fn stored(url: &str, size: u64) -> PathBuf {
    let path = url.split('?').next().unwrap_or_default().replace("%3a", ":");
    let mut plain = String::new();
    for character in path.trim_start_matches('/').chars() {
        if character != '/' || !plain.ends_with('/') {
            plain.push(character);
        }
    }
    PathBuf::from(format!("{plain}.{size}"))
}

fn configuration(direct: SocketAddr, behind: SocketAddr) -> String {
    let server = |name: &str, address: SocketAddr| {
        format!(
            "server {{ listen {address} backlog=4096; access_log {name}.log replay; absolute_redirect off;\n\
             location / {{ if ($http_x_replay_version = moved) {{ return 302 /moved; }}\n\
             rewrite ^ /stored$uri.$http_x_replay_version last; }}\n\
             location /stored/ {{ internal; root .; error_page 405 =200 $uri; }} }}\n"
        )
    };
    format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
         client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;\n\
         scgi_temp_path scgi; sendfile on; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 1000000;\n\
         log_format replay '$http_x_replay_id $status $body_bytes_sent $request';\n{}{}}}\n",
        server("direct", direct),
        server("behind", behind)
    )
}
