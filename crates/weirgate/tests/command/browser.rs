//! A real browser for tests of pages: Chromium, driven over WebDriver (W3C), which is JSON over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use weirgate_clock::becomes_true;
use weirgate_http_client::Request;

use crate::run::ask;

/// Time for a change to appear, far more than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum number of starts of chromedriver. It takes a free port of IPv4, and then ends if the same port of IPv6 is in
/// use, as it may be while other tests run.
const STARTS: usize = 5;

/// Widths of a telephone, a laptop and a wall, in pixels.
const WIDTHS: [u32; 3] = [375, 1280, 1920];

/// Runs axe and returns each fault with its first element.
const FAULTS: &str = "const done = arguments[arguments.length - 1]; \
    axe.run(document, { resultTypes: ['violations'] }).then((found) => done(found.violations.map((fault) => \
    `${fault.id}: ${fault.nodes[0].html} ${fault.nodes[0].failureSummary}`)), (error) => done([String(error)]));";

/// Returns the script of axe, which finds faults of accessibility, or tells that it is missing.
fn axe() -> Option<String> {
    // The program is in a folder of a profile in the target folder.
    let program = Path::new(env!("CARGO_BIN_EXE_weirgate"));
    let file = program.parent()?.parent()?.join("axe/node_modules/axe-core/axe.min.js");
    let script = std::fs::read_to_string(&file).ok();
    if script.is_none() {
        let line = "SKIPPED: accessibility of a page: axe-core is missing; `cargo xtask packages` fetches it with npm";
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    script
}

/// A browser, driven by chromedriver. Both end with it.
pub(crate) struct Driver {
    process: Child,
    address: SocketAddr,
    session: String,
}

impl Driver {
    /// Starts the browser, or tells why the test is skipped.
    pub(crate) fn start() -> Option<Driver> {
        let driver = (0..STARTS).find_map(|_| Driver::listening().transpose());
        let Ok(mut driver) = driver.expect("chromedriver says its port") else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: a page in a browser: chromedriver is not installed");
            return None;
        };
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=375,800",
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let begun = driver.call("/session", &wanted);
        driver.session = begun["sessionId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
        Some(driver)
    }

    /// Starts chromedriver. `None` if it ended before it listened.
    fn listening() -> std::io::Result<Option<Driver>> {
        let mut command = Command::new("chromedriver");
        let mut process = command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let out = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut driver = Driver { process, address: ([127, 0, 0, 1], 0).into(), session: String::new() };
        let port = out.lines().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        Ok(port.map(|port| {
            driver.address.set_port(port);
            driver
        }))
    }

    /// Sends a command and returns its value.
    fn call(&self, path: &str, body: &Value) -> Value {
        let request = Request::post(&self.address.to_string(), path, body.to_string());
        let answer = ask(self.address, request.field("content-type", "application/json"));
        let value: Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(answer.status, 200, "{path}: {value}");
        value["value"].clone()
    }

    pub(crate) fn open(&self, url: &str) {
        self.call(&format!("/session/{}/url", self.session), &json!({ "url": url }));
    }

    pub(crate) fn run(&self, script: &str, args: &[&str]) -> Value {
        self.call(&format!("/session/{}/execute/sync", self.session), &json!({ "script": script, "args": args }))
    }

    /// Waits until the page shows `text`.
    pub(crate) fn shows(&self, text: &str) {
        assert!(becomes_true(PATIENCE, || self.text().contains(text)), "{text:?} is not on the page:\n{}", self.text());
    }

    /// Returns the text that the page shows.
    pub(crate) fn text(&self) -> String {
        self.run("return document.body.innerText", &[]).as_str().unwrap_or_default().to_owned()
    }

    /// Enters the token that the page asks for.
    pub(crate) fn enter(&self, token: &str) {
        self.run(
            "document.getElementById('secret').value = arguments[0]; document.querySelector('#token button').click();",
            &[token],
        );
    }

    /// Checks the page at all [`WIDTHS`], light and dark: it is not wider than the screen, and axe finds no fault.
    pub(crate) fn looks_right(&self) {
        let axe = axe();
        for (width, scheme) in WIDTHS.into_iter().flat_map(|width| [(width, "light"), (width, "dark")]) {
            self.devtools(
                "Emulation.setEmulatedMedia",
                &json!({ "features": [
                { "name": "prefers-color-scheme", "value": scheme },
            ] }),
            );
            self.devtools(
                "Emulation.setDeviceMetricsOverride",
                &json!({
                    "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false,
                }),
            );
            let wide = self.run("return document.documentElement.scrollWidth - window.innerWidth", &[]);
            assert!(wide.as_i64().is_some_and(|more| more <= 0), "at {width} px the page is wider by {wide}");
            let Some(axe) = &axe else { continue };
            let found = self.call(
                &format!("/session/{}/execute/async", self.session),
                &json!({ "script": format!("{axe}; {FAULTS}"), "args": [] }),
            );
            assert_eq!(found, json!([]), "at {width} px, {scheme}");
        }
    }

    /// Calls a method of the DevTools protocol.
    fn devtools(&self, method: &str, parameters: &Value) {
        let path = format!("/session/{}/goog/cdp/execute", self.session);
        self.call(&path, &json!({ "cmd": method, "params": parameters }));
    }

    /// Checks that the browser reports no error. An answer of 401, before there is a token, is logged by the browser.
    pub(crate) fn complains_of_the_missing_token_alone(&self) {
        for entry in self.log() {
            let text = entry["message"].as_str().unwrap_or_default();
            assert!(entry["level"] != "SEVERE" || text.contains("401"), "{entry}");
        }
    }

    /// Returns the messages of the browser.
    fn log(&self) -> Vec<Value> {
        let log = self.call(&format!("/session/{}/se/log", self.session), &json!({ "type": "browser" }));
        log.as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The browser ends with its session. An error leaves nothing else to do.
        if let Ok(mut stream) = TcpStream::connect(self.address) {
            let request = format!("DELETE /session/{} HTTP/1.1\r\nHost: {}\r\n\r\n", self.session, self.address);
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.read(&mut [0]);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
