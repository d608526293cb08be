//! The access log as a policy configures it: the file, the sample, and the form of lines.

use std::path::PathBuf;

/// The access log.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLog {
    /// The file to append to. `None` means standard output.
    pub file: Option<PathBuf>,
    /// Share of served requests that are logged, 0 to 1. Shed requests and errors are always logged.
    pub sample: f64,
    /// Form of a line.
    pub format: AccessFormat,
    /// Fields of a line in JSON, in order.
    pub fields: Vec<AccessField>,
}

/// Form of a line of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFormat {
    /// A JSON object with the fields of [`AccessLog::fields`].
    Json,
    /// The common log format.
    Common,
    /// The combined log format.
    Combined,
}

/// A field of the access log. The policy reference describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it, and the policy reference describes each")]
pub enum AccessField {
    Time,
    Class,
    Ending,
    Reason,
    Would,
    WouldReason,
    Status,
    Protocol,
    Method,
    Host,
    Path,
    Client,
    Scheme,
    TlsVersion,
    ClientCertificate,
    Node,
    Retries,
    QueueWait,
    ServiceTime,
    Total,
    BytesIn,
    BytesOut,
    TraceId,
    PolicyVersion,
    Referer,
    UserAgent,
}

impl AccessField {
    /// Fields of a line unless others are chosen. Headers are not among them.
    pub const USUAL: [AccessField; 24] = [
        AccessField::Time,
        AccessField::Class,
        AccessField::Ending,
        AccessField::Reason,
        AccessField::Would,
        AccessField::WouldReason,
        AccessField::Status,
        AccessField::Protocol,
        AccessField::Method,
        AccessField::Host,
        AccessField::Path,
        AccessField::Client,
        AccessField::Scheme,
        AccessField::TlsVersion,
        AccessField::ClientCertificate,
        AccessField::Node,
        AccessField::Retries,
        AccessField::QueueWait,
        AccessField::ServiceTime,
        AccessField::Total,
        AccessField::BytesIn,
        AccessField::BytesOut,
        AccessField::TraceId,
        AccessField::PolicyVersion,
    ];
}
