//! The terminal, if there is one: whose turn it is to read from it and to get its signals.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::getpgrp;
use rustix::process::Pid;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process.
pub(super) struct Terminal {
    device: Option<File>,
    /// Our group; none if it lies outside our container.
    own: Option<Pid>,
}

impl Terminal {
    /// Finds it.
    pub(super) fn open() -> Self {
        Self {
            device: File::options().read(true).write(true).open("/dev/tty").ok(),
            own: Pid::from_raw(getpgrp().as_raw()),
        }
    }

    /// Whether our own group has it, as when a person has just typed the command.
    fn is_ours(&self) -> bool {
        self.own.is_some_and(|own| self.belongs_to(own))
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
        if let Some(own) = self.own
            && self.belongs_to(group)
        {
            self.hand_to(own);
        }
    }

    fn hand_to(&self, group: Pid) -> bool {
        let Some(device) = &self.device else { return false };
        // Who hands it over from the background is asked by this signal to stop.
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTTOU);
        let Ok(before) = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return false };
        let handed = tcsetpgrp(device, group).is_ok();
        // It was a valid mask a moment ago.
        let _ = before.thread_set_mask();
        handed
    }
}
