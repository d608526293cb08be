//! Classes of bytes (RFC 9110 Sec. 5.6, RFC 3986 Sec. 2), as tables built at compile time.

/// `tchar`: may stand in a method or a field name.
pub(super) const TOKEN: u8 = 1;
/// May stand in a field value: visible, obs-text, space, tab.
pub(super) const VALUE: u8 = 2;
/// May stand in a request target: visible ASCII without what no URI contains and some reader takes for
/// an end of it.
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

/// Whether `byte` is of `class`.
pub(super) fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Whether all of `text` is of `class`.
pub(super) fn all(text: &[u8], class: u8) -> bool {
    text.iter().fold(class, |left, &b| left & CLASSES[usize::from(b)]) != 0
}

/// How many bytes at the front of `text` are of `class`.
pub(super) fn span(text: &[u8], class: u8) -> usize {
    text.iter().position(|&b| !is(b, class)).unwrap_or(text.len())
}
