//! Byte classes (RFC 9110 Sec. 5.6, RFC 3986 Sec. 2), as tables built at compile time.

/// `tchar`: allowed in a method or a field name.
pub(crate) const TOKEN: u8 = 1;
/// Allowed in a field value: visible characters, obs-text, space and tab.
pub(crate) const VALUE: u8 = 2;
/// Allowed in a request target: visible ASCII but `#`, which some readers take for its end. Browsers and scripts send
/// `"`, `<`, `>`, `` ` ``, `{`, `|` and others in queries as they are, although no URI contains them (RFC 3986
/// Sec. 2). HAProxy and nginx pass them on, and they cannot end a request line.
pub(crate) const TARGET: u8 = 4;
/// A hexadecimal digit.
pub(crate) const HEX: u8 = 8;
/// Allowed in the name of a host: as in DNS and certificates, and `_`, which names in use have.
pub(crate) const NAME: u8 = 16;

static CLASSES: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut byte = 0usize;
    while byte < 256 {
        let b = byte as u8;
        let mut class = 0;
        if b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            )
        {
            class |= TOKEN;
        }
        if b == b'\t' || b == b' ' || b.is_ascii_graphic() || b >= 0x80 {
            class |= VALUE;
        }
        if b.is_ascii_graphic() && b != b'#' {
            class |= TARGET;
        }
        if b.is_ascii_hexdigit() {
            class |= HEX;
        }
        if b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_') {
            class |= NAME;
        }
        table[byte] = class;
        byte += 1;
    }
    table
};

/// Returns whether `byte` belongs to `class`.
pub(crate) fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Returns the position of the first byte at or after `from` that a field value must not have, or the length of
/// `text`. Checks eight bytes at a time, because values are the largest part of a head.
pub(crate) fn value_end(text: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        while let Some(word) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let bits = u64::from_le_bytes(*word);
            let below_space = bits.wrapping_sub(ONES * 0x20) & !bits & HIGHS;
            // False bits are above a true one only, so the lowest bit of both is in the first such byte.
            let found = below_space | (zero_byte(bits ^ (ONES * 0x7f)) & HIGHS);
            if found != 0 {
                at += found.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        // The last bytes, and a tab, which is below space and allowed.
        while let Some(&byte) = text.get(at) {
            if !is(byte, VALUE) {
                return at;
            }
            at += 1;
            if byte == b'\t' {
                break;
            }
        }
        if at >= text.len() {
            return text.len();
        }
    }
}

/// Returns the position of the first `byte` in `text`.
pub(crate) fn find(text: &[u8], byte: u8) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = zero_byte(u64::from_le_bytes(*word) ^ (ONES * u64::from(byte)));
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(|&b| b == byte).map(|at| words.len() * 8 + at)
}

/// 1 in every byte.
const ONES: u64 = u64::MAX / 255;
/// The highest bit of every byte.
const HIGHS: u64 = ONES << 7;

/// Returns a value other than zero if a byte of `bits` is zero. The lowest bit set is in the first such byte
/// (Mycroft's test).
fn zero_byte(bits: u64) -> u64 {
    bits.wrapping_sub(ONES) & !bits & HIGHS
}

/// Returns the position of the first byte at or after `from` that does not belong to `class`, or the length of `text`.
pub(crate) fn span(text: &[u8], from: usize, class: u8) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    rest.iter().position(|&b| !is(b, class)).map_or(text.len(), |at| from + at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Scanning by words gives the same result as scanning by bytes.
        #[test]
        fn words_agree_with_bytes(text in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\t'), Just(b'a'), Just(0x1f), Just(0x7f), Just(0x80)], 0..150), byte: u8) {
            prop_assert_eq!(find(&text, byte), text.iter().position(|&b| b == byte));
            for from in 0..=text.len() {
                let end = text[from..].iter().position(|&b| !is(b, VALUE)).map_or(text.len(), |at| from + at);
                prop_assert_eq!(value_end(&text, from), end);
            }
        }

        #[test]
        fn plain_text_is_a_value(text in "[ -~\\t\u{e9}]{0,60}") {
            prop_assert_eq!(value_end(text.as_bytes(), 0), text.len());
        }
    }
}
