//! The admin API of a running gateway, for commands that read it.

use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weirgate_gateway::admin::TOKEN_VARIABLE;
use weirgate_http_client::{Address, Answer, Error, Limits, Request, blocking};
use weirgate_http_server::Token;
use weirgate_tls::{LiveTrust, Role, Wanted};

/// Time for an answer of the admin API, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for an answer that is sent while it is made. The admin API ends its connections within a minute.
const STREAM: Duration = Duration::from_secs(60);

/// Maximum size of an answer: a thousand classes have less than 2 MB.
const MAX_ANSWER: u64 = 16 << 20;

/// Body of an answer that is no success.
#[derive(Debug, Deserialize)]
struct Refusal {
    error: String,
}

/// How a command is let in.
#[derive(Debug, clap::Args)]
pub(crate) struct Access {
    /// File with the bearer token of the admin API.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Your trust folder, as `weirgate pki issue operator NAME` makes it. Required for a gateway on another machine.
    #[arg(long, value_name = "DIR")]
    trust: Option<PathBuf>,
}

/// The admin API of a gateway.
pub(crate) struct AdminApi {
    address: Address,
    host: String,
    token: Option<Token>,
}

impl AdminApi {
    /// Returns the API at an address: HOST:PORT, a URL, or the path of a Unix socket.
    pub(crate) fn new(address: &str, access: &Access) -> Result<AdminApi, String> {
        let variable = std::env::var(TOKEN_VARIABLE).ok().map(|value| (TOKEN_VARIABLE, value));
        let token = Token::find("admin", access.token_file.as_deref(), variable).map_err(|error| error.to_string())?;
        let trust = access.trust.as_deref();
        let trust = trust.map(|folder| LiveTrust::load(folder, &[Role::Operator, Role::Monitor], None));
        let trust = trust.transpose()?.map(Arc::new);
        let given = ["https://", "http://"].iter().find_map(|scheme| address.strip_prefix(scheme));
        let given = given.unwrap_or(address).trim_end_matches('/');
        let (address, host) = match address.starts_with(['/', '.']) {
            true => (Address::Unix(PathBuf::from(address)), "localhost".to_owned()),
            false if !given.contains(':') => {
                return Err(format!("{given:?} has no port: write HOST:PORT, or the path of a Unix socket"));
            }
            false => match trust {
                None => (Address::Tcp(given.to_owned()), given.to_owned()),
                Some(trust) => {
                    let wanted = Wanted { role: Role::Gateway, name: None };
                    (Address::Trusted(given.to_owned(), trust, wanted), given.to_owned())
                }
            },
        };
        Ok(AdminApi { address, host, token })
    }

    /// Returns the answer to a path. The error names the address.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.answered(path, self.request(path))
    }

    /// Returns the answer to a request that changes something. The error names the address.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, String> {
        let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
        let request = Request::post(&self.host, path, body).field("content-type", "application/json");
        self.answered(path, self.authorized(request))
    }

    fn answered<T: DeserializeOwned>(&self, path: &str, request: Request) -> Result<T, String> {
        let answer = blocking::exchange(&self.address, request, &Limits::new(PATIENCE, MAX_ANSWER));
        let answer = answer.map_err(|error| self.unanswered(&error))?;
        match answer.status {
            200 => serde_json::from_slice(&answer.body)
                .map_err(|error| self.says(&format!("{path} is not as expected: {error}"))),
            _ => Err(self.refused(path, &answer)),
        }
    }

    /// Passes the pieces of the answer to a path to `take` as they arrive. Before the first one it passes the header
    /// field `field` to `head`. Returns false if there is no such page. The error names the address.
    pub(crate) fn pieces(
        &self,
        path: &str,
        field: &str,
        head: impl FnOnce(Option<&str>),
        take: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, String> {
        let limits = Limits::new(STREAM, u64::MAX);
        let mut accepted = false;
        let head = |answer: &Answer| {
            accepted = true;
            head(answer.field(field));
        };
        let answer = blocking::exchange_in_pieces(&self.address, self.request(path), &limits, head, take);
        let answer = answer.map_err(|error| if accepted { self.says(&error) } else { self.unanswered(&error) })?;
        match answer.status {
            200 => Ok(true),
            404 => Ok(false),
            _ => Err(self.refused(path, &answer)),
        }
    }

    fn request(&self, path: &str) -> Request {
        self.authorized(Request::get(&self.host, path))
    }

    fn authorized(&self, request: Request) -> Request {
        match &self.token {
            Some(token) => request.authorization(&token.authorization()),
            None => request,
        }
    }

    fn says(&self, why: &dyn Display) -> String {
        format!("{}: {why}", self.address)
    }

    fn unanswered(&self, error: &Error) -> String {
        self.says(&format!("{error}; is this the admin API of a gateway, as `weirgate run` prints it?"))
    }

    /// Returns the reason of an answer that is no success.
    fn refused(&self, path: &str, answer: &Answer) -> String {
        match answer.status {
            400 if answer.text().contains("mutual TLS") => self.says(&"speaks mutual TLS: give --trust"),
            401 => self.says(&format!("needs the admin token: give --token-file, or set {TOKEN_VARIABLE}")),
            status => {
                let reason = serde_json::from_slice::<Refusal>(&answer.body).ok();
                let reason = reason.map(|refusal| format!(": {}", refusal.error)).unwrap_or_default();
                self.says(&format!("{path} has status {status}{reason}"))
            }
        }
    }
}
