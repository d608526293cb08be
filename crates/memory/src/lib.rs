//! Memory of the program: what its allocator gives back, and copying and comparing bytes in static programs.
//!
//! The allocator is mimalloc ([ADR 19](../../../docs/adr/0019-an-allocator-that-gives-back.md)). A thread of it gives
//! free pages back when it needs memory again, 10 ms later or more. A thread that rests keeps them: [`give_back`] is
//! for those.
//!
//! A static program has musl as its C library. The compiler calls `memcpy` and `memcmp` of the C library wherever a
//! value is moved or compared that does not fit into a few registers. musl keeps both short: its `memcpy` takes 24 ns
//! for nine bytes, which are copied in one here, and its `memcmp` compares one byte at a time. A gateway copies and
//! compares a few bytes many times for each request. [ADR 31](../../../docs/adr/0031-memory-of-static-programs.md) has
//! the measurements.
//!
//! A program that names this crate has its functions instead, all libraries that are linked into it included. With
//! another C library the crate defines nothing, because theirs use all registers of the machine.
//!
//! On architectures other than x86-64 the `memcpy` of musl is fast, and stays.
// Without it the compiler may recognise the loop of a function as what the function is for, and call it.
#![no_builtins]
#![expect(unsafe_code, reason = "functions of C: the linker finds them by their names, and they take pointers")]

#[cfg(any(test, target_env = "musl"))]
mod compare;
#[cfg(all(target_arch = "x86_64", any(test, target_env = "musl")))]
mod copy;

/// Gives all free pages of the calling thread back to the system. It looks at each page of the thread, which takes some
/// milliseconds for a hundred megabytes.
pub fn give_back() {
    // SAFETY: it takes no pointer, and may be called by any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// The functions by their names in C (C17, 7.24).
#[cfg(target_env = "musl")]
mod names {
    use core::ffi::c_int;

    use crate::compare::compare;
    #[cfg(target_arch = "x86_64")]
    use crate::copy::copy;

    #[cfg(target_arch = "x86_64")]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
        // SAFETY: the caller has promised the same.
        unsafe { copy(to, from, length) };
        to
    }

    #[cfg(target_arch = "x86_64")]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
        // SAFETY: the caller has promised the same.
        unsafe { copy(to, from, length) };
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, length: usize) -> c_int {
        // SAFETY: the caller has promised the same.
        unsafe { compare(left, right, length) }
    }

    /// The compiler calls it where only equality matters.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, length: usize) -> c_int {
        // SAFETY: the caller has promised the same.
        unsafe { compare(left, right, length) }
    }
}
