//! A text with placeholders (marks), such as `/?demand={us}us`. It is parsed once and filled in for every request.

/// A text, split at its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Plain(Box<[u8]>),
    /// Index of a mark.
    Mark(usize),
}

impl Text {
    /// Splits `text` at every occurrence of one of `marks`.
    pub fn cut(text: &str, marks: &[&str]) -> Text {
        let mut pieces = Vec::new();
        let mut rest = text;
        loop {
            let found = marks.iter().enumerate().filter_map(|(mark, name)| Some((rest.find(name)?, mark, name.len())));
            let next = found.min();
            let plain = next.map_or(rest, |(at, ..)| &rest[..at]);
            if !plain.is_empty() {
                pieces.push(Piece::Plain(plain.as_bytes().into()));
            }
            let Some((at, mark, length)) = next else { return Text(pieces) };
            pieces.push(Piece::Mark(mark));
            rest = &rest[at + length..];
        }
    }

    /// Whether the text contains mark number `mark`.
    pub fn has(&self, mark: usize) -> bool {
        self.0.contains(&Piece::Mark(mark))
    }

    /// Appends the text to `out`. For each mark, `fill` gets the mark's number and appends its value.
    pub fn write(&self, out: &mut Vec<u8>, mut fill: impl FnMut(usize, &mut Vec<u8>)) {
        for piece in &self.0 {
            match piece {
                Piece::Plain(bytes) => out.extend_from_slice(bytes),
                Piece::Mark(mark) => fill(*mark, out),
            }
        }
    }
}

/// Appends a number in decimal digits.
pub fn digits(mut number: u64, out: &mut Vec<u8>) {
    // `u64::MAX` has 20 digits.
    let mut digits = [0; 20];
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return out.extend_from_slice(&digits[from..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_filled_in_and_the_rest_stays() {
        let filled = |text: &str| {
            let mut out = Vec::new();
            Text::cut(text, &["{a}", "{bb}"]).write(&mut out, |mark, out| digits(mark as u64 + 7, out));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(filled("x{a}y{bb}{bb}{c}"), "x7y88{c}");
        assert_eq!(filled("{a}"), "7");
        assert_eq!(filled(""), "");
        assert!(Text::cut("x{bb}", &["{a}", "{bb}"]).has(1) && !Text::cut("x{bb}", &["{a}", "{bb}"]).has(0));
    }

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            let mut out = Vec::new();
            digits(number, &mut out);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
