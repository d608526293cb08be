//! Byte classes (RFC 9110 Sec. 5.6, RFC 3986 Sec. 2), as tables built at compile time.

/// `tchar`: allowed in a method or a field name.
pub(super) const TOKEN: u8 = 1;
/// Allowed in a field value: visible characters, obs-text, space and tab.
pub(super) const VALUE: u8 = 2;
/// Allowed in a request target: visible ASCII, except characters that no URI contains and that some readers
/// take for its end.
pub(super) const TARGET: u8 = 4;
/// A hexadecimal digit.
pub(super) const HEX: u8 = 8;

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
        if b.is_ascii_graphic() && !matches!(b, b'#' | b'<' | b'>' | b'`') {
            class |= TARGET;
        }
        if b.is_ascii_hexdigit() {
            class |= HEX;
        }
        table[byte] = class;
        byte += 1;
    }
    table
};

/// Returns whether `byte` belongs to `class`.
pub(super) fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Returns whether all of `text` is allowed in a field value. Checks eight bytes at a time, because values
/// are the largest part of a head.
pub(super) fn is_value(text: &[u8]) -> bool {
    let (words, rest) = text.as_chunks::<8>();
    let plain = |word: &[u8; 8]| {
        let bits = u64::from_le_bytes(*word);
        let below_space = bits.wrapping_sub(ONES * 0x20) & !bits & HIGHS;
        below_space == 0 && zero_byte(bits ^ (ONES * 0x7f)) == 0
    };
    // A tab is not a plain byte, but it is allowed.
    words.iter().all(|word| plain(word) || word.iter().all(|&b| is(b, VALUE))) && rest.iter().all(|&b| is(b, VALUE))
}

/// Returns the position of the first `byte` in `text`.
pub(super) fn find(text: &[u8], byte: u8) -> Option<usize> {
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

/// Returns the number of bytes at the front of `text` that belong to `class`.
pub(super) fn span(text: &[u8], class: u8) -> usize {
    text.iter().position(|&b| !is(b, class)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Scanning by words gives the same result as scanning by bytes.
        #[test]
        fn words_agree_with_bytes(text in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\t'), Just(b'a'), Just(0x1f), Just(0x7f), Just(0x80)], 0..40), byte: u8) {
            prop_assert_eq!(find(&text, byte), text.iter().position(|&b| b == byte));
            prop_assert_eq!(is_value(&text), text.iter().all(|&b| is(b, VALUE)));
        }

        #[test]
        fn plain_text_is_a_value(text in "[ -~\\t\u{e9}]{0,60}") {
            prop_assert!(is_value(text.as_bytes()));
        }
    }
}
