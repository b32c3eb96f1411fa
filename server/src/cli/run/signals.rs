//! The signals that this process gets, to be passed on.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Signals as they come. Those that were ignored when the program began stay ignored, as `nohup` wants it.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Those that ask a program to end.
    ///
    /// # Errors
    /// If a handler could not be set.
    pub(super) fn of_ending() -> io::Result<Self> {
        Self::of(&[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM])
    }

    /// Also all others that mean something to a command.
    ///
    /// # Errors
    /// If a handler could not be set.
    pub(super) fn and_all_others(mut self) -> io::Result<Self> {
        self.0.extend(Self::of(&[Signal::USR1, Signal::USR2, Signal::WINCH, Signal::TSTP])?.0);
        Ok(self)
    }

    fn of(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored();
        signals
            .iter()
            .filter(|signal| ignored & (1 << (signal.as_raw() - 1)) == 0)
            .map(|&signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that are ignored, signal n as bit n-1; none where the kernel does not tell.
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}
