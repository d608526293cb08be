//! Free memory that the allocator keeps, and when it is asked for it.
//!
//! An allocator may keep the free pages of a thread until that thread needs memory again. A thread that has needed much
//! and rests then keeps it for ever: the one that makes configurations until the next reload, and one that serves until
//! as many clients come again. These threads ask for it themselves, because an allocator gives back the pages of the
//! thread that calls.
//!
//! A library does not know the allocator of its program, which tells how to ask. The function is one for the process,
//! as the allocator is.

use std::sync::OnceLock;

static GIVE_BACK: OnceLock<fn()> = OnceLock::new();

/// Sets the function that gives the free pages of the calling thread back to the system. Threads that rest call it. The
/// first call counts. Without one, the allocator does as it likes.
pub fn give_back_by(give_back: fn()) {
    let _ = GIVE_BACK.set(give_back);
}

/// Gives the free pages of this thread back.
pub(crate) fn give_back() {
    GIVE_BACK.get().inspect(|give_back| give_back());
}
