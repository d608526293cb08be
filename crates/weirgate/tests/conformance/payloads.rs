//! The payloads: raw requests of other projects, kept outside the repository.

use std::path::PathBuf;

use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct Payload {
    /// Its name in the file.
    pub(crate) id: String,
    /// The bytes that a client sends.
    pub(crate) bytes: Vec<u8>,
}

/// Returns the payloads of `../shared/conformance/NAME.json` next to the repository, if the file exists.
pub(crate) fn load(name: &str) -> Option<Vec<Payload>> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "..", "shared", "conformance", &format!("{name}.json")]
            .iter()
            .collect();
    let text = std::fs::read_to_string(path).ok()?;
    let file: Value = serde_json::from_str(&text).expect("the file is JSON");
    let cases = file["cases"].as_array().expect("the file has cases");
    Some(cases.iter().map(payload).collect())
}

fn payload(case: &Value) -> Payload {
    let id = case["id"].as_str().expect("a case has an id").to_owned();
    let parts = case["send"].as_array().expect("a case has parts");
    let bytes = parts.iter().flat_map(|part| base64(part["b64"].as_str().expect("a part is base64"))).collect();
    Payload { id, bytes }
}

/// Decodes base64 by RFC 4648 Sec. 4.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|b| *b != b'=') {
        let value = ALPHABET.iter().position(|a| *a == byte).expect("base64");
        bits = bits << 6 | u32::try_from(value).expect("at most 63");
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_that_of_the_rfc() {
        assert_eq!(super::base64("Zm9vYmE="), b"fooba");
        assert_eq!(super::base64("/+8="), [0xff, 0xef]);
    }
}
