//! Measures the cost of a request and the capacity of an instance on this machine, so that you can scale an
//! experiment to the machine.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{Instances, Kind};
use weirgate_emulator::clock;

/// Maximum wait for a reply. A page burns at most one minute of CPU time.
const PATIENCE: Duration = Duration::from_secs(120);

/// CPU time of warm-up requests: long enough to run the loop, and quickly over.
const WARMING: Duration = Duration::from_micros(200);

/// The unloaded service time of requests, sent one after the other with nothing else in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTime {
    /// Number of measured requests.
    pub requests: usize,
    /// Mean from the request's first byte sent to the reply's last byte.
    pub mean: Duration,
    /// Its median.
    pub p50: Duration,
    /// Its 95th percentile.
    pub p95: Duration,
    /// Mean CPU time of all processes of the service. The CPU time of a single request is not known where
    /// each is a separate program, because the system counts those in ticks of 10 ms.
    pub cpu: Duration,
}

impl Instances {
    /// Sends `requests` (at least one), one at a time, to the instances in turn. Each asks for `cpu`, or
    /// for the next word, beginning with the first.
    ///
    /// # Errors
    /// A request gets an answer other than 200.
    pub fn measure(&self, requests: usize, cpu: Duration) -> Result<ServiceTime, String> {
        let before = self.cpu_time();
        let mut times = Vec::with_capacity(requests);
        for (turn, address) in (0..requests.max(1)).zip(self.addresses().iter().cycle()) {
            times.push(self.ask(*address, cpu, turn)?);
        }
        times.sort();
        let count = times.len() as u32;
        let percentile = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
        Ok(ServiceTime {
            requests: times.len(),
            mean: times.iter().sum::<Duration>() / count,
            p50: percentile(50),
            p95: percentile(95),
            cpu: self.cpu_time().saturating_sub(before) / count,
        })
    }

    /// Returns the requests per second that all instances complete together during `span`, with `clients`
    /// (at least one) clients per instance that send one request after the other. This is their capacity,
    /// if there are enough clients.
    ///
    /// # Errors
    /// A request gets an answer other than 200.
    pub fn capacity(&self, clients: usize, cpu: Duration, span: Duration) -> Result<f64, String> {
        let all = self.addresses().len() * clients.max(1);
        let start = clock::now();
        let end = start + clock::nanos(span);
        let client = |number: usize, address: SocketAddr| {
            let mut done = 0_u32;
            // Every client begins at a different word, so that no two clients send the same words for a long time.
            let mut turn = number * self.words().len() / all;
            while clock::now() < end {
                self.ask(address, cpu, turn)?;
                (done, turn) = (done + 1, turn + 1);
            }
            Ok(done)
        };
        let done: Result<Vec<u32>, String> = std::thread::scope(|scope| {
            let addresses = (0..all).zip(self.addresses().iter().cycle());
            let clients: Vec<_> = addresses.map(|(number, &to)| scope.spawn(move || client(number, to))).collect();
            let gone = || Err("a client of the calibration has panicked".to_owned());
            clients.into_iter().map(|client| client.join().unwrap_or_else(|_| gone())).collect()
        });
        Ok(f64::from(done?.iter().sum::<u32>()) / Duration::from_nanos(clock::now() - start).as_secs_f64())
    }

    /// Sends requests to each instance until further requests make no difference: for Tomcat until its code
    /// is compiled, for the others until their files are in memory.
    pub(super) fn warm(&self) -> Result<(), String> {
        let requests = match self.kind() {
            // The JVM's quick compiler compiles a method after some hundred calls.
            Kind::Tomcat => 1000,
            // Two for every process of the pool, because its processes take turns.
            Kind::ApachePhp | Kind::Xapian | Kind::Cgit | Kind::MediaWiki | Kind::Gunicorn => 2 * self.workers,
        };
        for address in self.addresses() {
            for turn in 0..requests {
                self.ask(*address, WARMING, turn)?;
            }
        }
        Ok(())
    }

    fn ask(&self, address: SocketAddr, cpu: Duration, turn: usize) -> Result<Duration, String> {
        let path = self.request(cpu, turn);
        match fetch(address, &path, PATIENCE)? {
            (200, took) => Ok(took),
            (status, _) => Err(format!("http://{address}{path} is answered with {status}")),
        }
    }
}

/// Fetches `path` over a new connection. Returns the status and the time from the first byte sent to the
/// last byte received. `patience` bounds each wait for more bytes. Connecting is not counted, because a
/// gateway's connections already exist.
pub(super) fn fetch(address: SocketAddr, path: &str, patience: Duration) -> Result<(u16, Duration), String> {
    let mut reply = Vec::new();
    let mut exchange = || -> io::Result<Duration> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        let start = clock::now();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
        // The server closes after the last byte.
        stream.read_to_end(&mut reply)?;
        Ok(Duration::from_nanos(clock::now() - start))
    };
    let took = exchange().map_err(|error| format!("http://{address}{path}: {error}"))?;
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    match head.parse(&reply) {
        Ok(httparse::Status::Complete(_)) => Ok((head.code.unwrap_or_default(), took)),
        _ => Err(format!("http://{address}{path}: no reply of HTTP/1.1")),
    }
}
