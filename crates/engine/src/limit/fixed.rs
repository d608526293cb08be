//! [`crate::LoadControl::Fixed`]: a window that changes only with the number of usable nodes.

use super::{LimitView, Window};
use crate::request::Why;

/// The configured size, or `None` for no limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixed {
    pub(super) window: Option<u32>,
}

impl Fixed {
    /// Scales the windows, so that the size per usable node stays the same.
    pub(super) fn nodes_changed(&self, view: &LimitView<'_>, windows: &mut [Window]) {
        let (usable, all) = (view.nodes.all_usable(), view.nodes.nodes.len() as u32);
        for window in windows {
            self.share(window, view.now, usable, all);
        }
    }

    fn share(&self, window: &mut Window, now: crate::Time, usable: u32, all: u32) {
        if let Some(size) = self.window.filter(|_| all > 0) {
            let share = (u64::from(size) * u64::from(usable) / u64::from(all)).max(1) as u32;
            window.set(now, share, Why::Nodes { usable, all });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

    #[test]
    fn a_fixed_window_follows_the_usable_nodes() {
        let fixed = Fixed { window: Some(40) };
        let mut window = Window::new(Time::ZERO, 40);
        for (usable, size) in [(3, 30), (0, 1), (4, 40)] {
            fixed.share(&mut window, Time::ZERO, usable, 4);
            assert_eq!(window.size, size);
        }
        let mut unlimited = Window::new(Time::ZERO, u32::MAX);
        Fixed { window: None }.share(&mut unlimited, Time::ZERO, 1, 4);
        assert_eq!(unlimited.limit(), None);
    }
}
