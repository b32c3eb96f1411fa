//! The terminal, if there is one: whose turn it is to read from it and to get its signals.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blockable};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process.
pub(super) struct Terminal {
    device: Option<File>,
    own: Pid,
}

impl Terminal {
    /// Finds it.
    pub(super) fn open() -> Self {
        Self { device: File::options().read(true).write(true).open("/dev/tty").ok(), own: getpgrp() }
    }

    /// Whether our own group has it, as when a person has just typed the command.
    fn is_ours(&self) -> bool {
        self.belongs_to(self.own)
    }

    fn belongs_to(&self, group: Pid) -> bool {
        self.device.as_ref().is_some_and(|device| tcgetpgrp(device).is_ok_and(|owner| owner == group))
    }

    /// Gives it to `group` if it is ours and nobody else of our own group can need it: in a pipeline somebody may, and
    /// then `group` gets it when it first asks.
    pub(super) fn lend_at_start(&self, group: Pid) {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            self.lend(group);
        }
    }

    /// Gives it to `group` if it is ours; whether `group` has it now.
    pub(super) fn lend(&self, group: Pid) -> bool {
        self.is_ours() && self.hand_to(group)
    }

    /// Takes it back if `group` has it.
    pub(super) fn take_back(&self, group: Pid) {
        if self.belongs_to(group) {
            self.hand_to(self.own);
        }
    }

    fn hand_to(&self, group: Pid) -> bool {
        self.device.as_ref().is_some_and(|device| unstopped(|| tcsetpgrp(device, group)).is_ok())
    }
}

/// Does something to the terminal for which a process in the background could be stopped: handing it over always,
/// writing to it if the user wants that (`stty tostop`). A stopped process renews no lease.
pub(super) fn unstopped<T>(act: impl FnOnce() -> T) -> T {
    let mut mask = SigSet::empty();
    mask.add(Blockable::SIGTTOU);
    let before = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let result = act();
    if let Ok(before) = before {
        // It was a valid mask a moment ago.
        let _ = before.thread_set_mask();
    }
    result
}
