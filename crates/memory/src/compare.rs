//! Compares bytes by words of sixteen, eight and four.

use core::cmp::Ordering;
use core::ffi::c_int;

/// Compares `length` bytes as numbers without a sign, and returns a value below, equal to or above zero, as the first
/// difference of `left` is below or above `right`.
///
/// # Safety
/// `length` bytes can be read at `left` and at `right`.
#[inline(always)]
pub(crate) unsafe fn compare(left: *const u8, right: *const u8, length: usize) -> c_int {
    // SAFETY: every word begins at least its size before the end.
    unsafe {
        if length >= 16 {
            let last = length - 16;
            let mut at = 0;
            while at < last {
                let (left, right) = (word(left.add(at)), word(right.add(at)));
                if left != right {
                    return order(left, right);
                }
                at += 16;
            }
            // The last word may repeat bytes of the one before. They are equal.
            return order(word(left.add(last)), word(right.add(last)));
        }
        if length >= 8 {
            return order(ends::<8>(left, length), ends::<8>(right, length));
        }
        if length >= 4 {
            return order(ends::<4>(left, length), ends::<4>(right, length));
        }
        let mut at = 0;
        while at < length {
            let (left, right) = (left.add(at).read(), right.add(at).read());
            if left != right {
                return order(left.into(), right.into());
            }
            at += 1;
        }
    }
    0
}

/// Reads the sixteen bytes at `from`. The first one is the highest, so numbers have the order of their bytes.
#[inline(always)]
unsafe fn word(from: *const u8) -> u128 {
    // SAFETY: the caller has as many there. An array of bytes lies at any address.
    u128::from_be_bytes(unsafe { from.cast::<[u8; 16]>().read() })
}

/// Reads the first and the last `N` of `length` bytes, which may overlap, as one number.
#[inline(always)]
unsafe fn ends<const N: usize>(from: *const u8, length: usize) -> u128 {
    let mut bytes = [0; 16];
    // SAFETY: the caller has at least `N` bytes. An array of bytes lies at any address.
    unsafe {
        *bytes.as_mut_ptr().cast::<[u8; N]>() = from.cast::<[u8; N]>().read();
        *bytes.as_mut_ptr().add(N).cast::<[u8; N]>() = from.add(length - N).cast::<[u8; N]>().read();
    }
    u128::from_be_bytes(bytes)
}

#[inline(always)]
fn order(left: u128, right: u128) -> c_int {
    match left.cmp(&right) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(left: &[u8], right: &[u8]) -> Ordering {
        assert_eq!(left.len(), right.len());
        // SAFETY: both have this many bytes.
        unsafe { compare(left.as_ptr(), right.as_ptr(), left.len()) }.cmp(&0)
    }

    #[test]
    fn the_first_difference_decides_at_every_length_and_place() {
        for length in 0..80 {
            let left: Vec<u8> = (0..length).map(|n| n as u8).collect();
            assert_eq!(compared(&left, &left), Ordering::Equal);
            for at in 0..length {
                let mut right = left.clone();
                // Later bytes differ the other way round.
                right[at..].fill(0);
                right[at] = left[at] + 100;
                assert_eq!(compared(&left, &right), Ordering::Less, "{length} {at}");
                assert_eq!(compared(&right, &left), Ordering::Greater, "{length} {at}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn the_order_is_that_of_slices(
            (left, right) in (0usize..70).prop_flat_map(|n| (bytes(n), bytes(n))),
            common in 0usize..70,
        ) {
            let mut right = right;
            let common = common.min(left.len());
            right[..common].copy_from_slice(&left[..common]);
            proptest::prop_assert_eq!(compared(&left, &right), left.cmp(&right));
        }
    }

    use proptest::strategy::Strategy as _;

    fn bytes(length: usize) -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0u8..=255, length)
    }
}
