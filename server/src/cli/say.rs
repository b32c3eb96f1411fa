//! Tells the person at the terminal, or the log, without ever waiting for them: a lease must be renewed and a command
//! stopped in time even if nobody reads what is written, as behind a pager that stands still.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the writing thread is told.
enum Word {
    Line(String),
    /// All before it was written.
    Answer(Sender<()>),
}

static WRITER: OnceLock<Sender<Word>> = OnceLock::new();

/// Writes a line to standard error, soon.
pub(super) fn say(message: fmt::Arguments<'_>) {
    tell(Word::Line(format!("job-leases: {message}\n")));
}

/// Waits until all was written, if somebody reads it within a second.
pub(super) fn finish() {
    if WRITER.get().is_some() {
        let (answer, written) = channel();
        tell(Word::Answer(answer));
        // Nobody reads: then nothing more can be done.
        let _ = written.recv_timeout(LAST_WORDS);
    }
}

fn tell(word: Word) {
    let writer = WRITER.get_or_init(|| {
        let (writer, words) = channel();
        thread::spawn(move || write(&words));
        writer
    });
    // The thread ends only with the process.
    let _ = writer.send(word);
}

fn write(words: &Receiver<Word>) {
    // In the background of a terminal whose user wants such output stopped (`stty tostop`), the signal would stop all
    // of this process.
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTTOU);
    let _ = mask.thread_block();
    for word in words {
        match word {
            // It may be closed; the work goes on all the same.
            Word::Line(line) => drop(io::stderr().lock().write_all(line.as_bytes())),
            Word::Answer(answer) => drop(answer.send(())),
        }
    }
}
