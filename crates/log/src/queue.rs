//! Messages that another thread writes, for code that must not wait for a slow reader of standard error.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::{Level, Message, write};

/// Maximum number of messages that wait. With lines of some hundred bytes they take less than a megabyte.
const MAX_WAITING: usize = 1024;

/// Has a message written soon, and never blocks. While standard error is read too slowly, messages are left out and
/// counted. Those of a process that ends may be lost.
pub fn pass(message: Message) {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    QUEUE.get_or_init(|| Queue::start(write)).pass(message);
}

/// Messages that wait, and the number of those that were left out.
struct Queue {
    waiting: SyncSender<Message>,
    left_out: Arc<AtomicU64>,
}

impl Queue {
    /// Starts a thread that writes messages with `write`. Without a thread all of them are left out.
    fn start(write: impl Fn(&[Message]) + Send + 'static) -> Queue {
        let (waiting, messages) = mpsc::sync_channel(MAX_WAITING);
        let left_out = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&left_out);
        let _ = thread::Builder::new().name("weirgate-log".into()).spawn(move || drain(&messages, &counted, write));
        Queue { waiting, left_out }
    }

    fn pass(&self, message: Message) {
        if self.waiting.try_send(message).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes all messages to come. The number of those left out follows once those before them are written.
fn drain(messages: &Receiver<Message>, left_out: &AtomicU64, write: impl Fn(&[Message])) {
    let mut written = 0;
    loop {
        let next = messages.try_recv();
        if next.is_err() || written >= MAX_WAITING {
            written = 0;
            match left_out.swap(0, Ordering::Relaxed) {
                0 => {}
                more => write(&[Message::new(
                    Level::Warning,
                    format!("{more} messages were left out, because standard error is read too slowly"),
                )]),
            }
        }
        let message = match next {
            Ok(message) => Ok(message),
            Err(TryRecvError::Empty) => messages.recv(),
            Err(TryRecvError::Disconnected) => return,
        };
        let Ok(message) = message else { return };
        write(&[message]);
        written += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn l2_without_a_reader_messages_are_left_out_and_counted() {
        let (go_on, may_go_on) = channel::<()>();
        let (written, lines) = channel();
        let queue = Queue::start(move |messages| {
            let _ = may_go_on.recv();
            messages.iter().for_each(|message| drop(written.send(message.text.clone())));
        });
        (0..5_000).for_each(|number| queue.pass(Message::new(Level::Info, number.to_string())));
        // The reader goes on.
        drop(go_on);
        let read = || lines.recv_timeout(Duration::from_secs(20)).expect("a message");
        let (mut told, mut left_out) = (0, 0);
        while told + left_out < 5_000 {
            match read().split_once(" messages were left out") {
                None => told += 1,
                Some((number, _)) => left_out += number.parse::<usize>().expect("a number"),
            }
        }
        assert_eq!(told + left_out, 5_000);
        // One more if it was being written when the others came.
        assert!((MAX_WAITING..=MAX_WAITING + 1).contains(&told), "{told}");
        queue.pass(Message::new(Level::Info, "later"));
        assert_eq!(read(), "later");
    }
}
