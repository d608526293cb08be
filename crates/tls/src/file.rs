//! PEM files and their faults.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};

/// Maximum size of a file. The largest ones are bundles of authorities and revocation lists of large authorities.
const MAX_BYTES: u64 = 16 << 20;

/// A file among those of a listener or node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The chain of the certificate with this index.
    Certificate(usize),
    /// The key of the certificate with this index.
    Key(usize),
    /// The OCSP response for the certificate with this index.
    Ocsp(usize),
    /// The accepted authorities.
    Ca,
    /// The revocation lists.
    Crl,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub part: Part,
    /// Description, with the path of the file.
    pub what: String,
    /// A hint on how to fix it.
    pub hint: String,
}

impl Fault {
    pub(crate) fn new(part: Part, what: impl Into<String>, hint: impl Into<String>) -> Fault {
        Fault { part, what: what.into(), hint: hint.into() }
    }

    /// A fault of the cryptography itself, such as a system without random numbers.
    pub(crate) fn odd(error: &dyn std::fmt::Display) -> Fault {
        Fault::new(Part::Certificate(0), format!("TLS cannot be set up: {error}"), "report this")
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.what, self.hint)
    }
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is too large.
pub(crate) fn read(path: &Path, part: Part) -> Result<Vec<u8>, Fault> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(Fault::new(
            part,
            format!("`{shown}` cannot be read: {error}"),
            "write the path of a file that this user may read, from the root or from the folder of the policy",
        )),
        Ok(_) if bytes.len() as u64 > MAX_BYTES => {
            Err(Fault::new(part, format!("`{shown}` is longer than 16 MiB"), "is it the right file?"))
        }
        Ok(_) => Ok(bytes),
    }
}

/// Reads the parts of one kind in a PEM file. There may be none.
///
/// # Errors
/// As for [`read`], and if the file is no PEM file.
pub(crate) fn parts<T: PemObject>(path: &Path, part: Part) -> Result<Vec<T>, Fault> {
    let bytes = read(path, part)?;
    T::pem_slice_iter(&bytes).collect::<Result<_, _>>().map_err(|error| not_pem(path, part, &error))
}

/// Reports a file that is not in PEM format.
pub(crate) fn not_pem(path: &Path, part: Part, error: &pem::Error) -> Fault {
    let what = format!("`{}` is no sound PEM file: {error}", path.display());
    Fault::new(part, what, "it needs lines such as `-----BEGIN CERTIFICATE-----`")
}

/// Returns all faults in one line.
pub fn told(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
