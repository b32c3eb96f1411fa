//! Watches over the command: passes signals on, and stops it before the lease can be somebody else's.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;

use super::super::clock::{Instant, sleep_until};
use super::super::say::say;
use super::group::{Change, Group};
use super::guard::Guard;
use super::hold::Hold;
use super::signals::Signals;
use super::terminal::Terminal;

/// How often to look whether what the command left behind is gone; nobody tells us.
const LOOK: Duration = Duration::from_millis(20);
/// What was killed may have been about to fork.
const KILL_AGAIN: Duration = Duration::from_millis(100);
/// The status of a command that was killed.
const KILLED: u8 = 128 + 9;
/// How long processes that the command leaves behind may take to end by themselves.
const AFTERGLOW: Duration = Duration::from_secs(1);

/// How long the command gets between TERM and KILL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    /// As asked for.
    pub(super) asked: Duration,
    /// Before the lease ends unrenewed: less, if the lease is short, so that there is time to renew it first.
    pub(super) at_expiry: Duration,
}

/// How it ended.
#[derive(Debug)]
pub(super) struct End {
    /// The command's status, as a shell gives it.
    pub(super) status: u8,
    /// Why the command was stopped before it had ended, if it was.
    pub(super) stopped: Option<String>,
}

/// All that watching over a command needs.
pub(super) struct Watch {
    pub(super) group: Group,
    pub(super) guard: Guard,
    pub(super) terminal: Terminal,
    pub(super) signals: Signals,
    pub(super) children: unix::Signal,
    pub(super) hold: watch::Receiver<Hold>,
    pub(super) grace: Grace,
}

/// The command was asked to end, and is killed at the latest then.
struct Stop {
    /// Or when the lease ends, if that is sooner.
    kill_at: Option<Instant>,
    reason: Option<String>,
}

/// Tells of children that stop or end.
///
/// # Errors
/// If a handler could not be set.
pub(super) fn children() -> io::Result<unix::Signal> {
    unix::signal(SignalKind::child())
}

impl Watch {
    /// Lets the command begin, and returns when nothing of it is left.
    pub(super) async fn until_the_end(mut self) -> End {
        let mut stop: Option<Stop> = None;
        let mut ended: Option<(u8, Instant)> = None;
        let mut begun = false;
        let mut guarded = true;
        let mut renewing = true;
        let status = loop {
            let mut resume = false;
            match self.group.poll() {
                Some(Change::Ended(status)) => {
                    ended = Some((status, Instant::now()));
                    if stop.is_none() && status == KILLED && self.guard.has_struck() {
                        // While this process was stopped or asleep.
                        let reason = "its lease was over".to_owned();
                        say(format_args!("the command was killed: {reason}"));
                        stop = Some(Stop { kill_at: None, reason: Some(reason) });
                    }
                }
                Some(Change::Stopped(_)) if !begun => {
                    begun = true;
                    self.terminal.lend_at_start(self.group.id());
                    resume = true;
                }
                Some(Change::Stopped(signal)) => resume = self.stopped(signal),
                None => {}
            }
            if let Some((status, _)) = ended
                && !self.group.is_alive()
            {
                break status;
            }
            let hold = self.hold.borrow_and_update().clone();
            if guarded && let Err(error) = self.guard.watch(self.group.id(), hold.good_until) {
                guarded = false;
                say(format_args!("the guard is gone ({error}): going on without it"));
            }
            let now = Instant::now();
            let ended_at = ended.map(|(_, at)| at);
            if stop.is_none()
                && let Some(reason) = self.reason_to_stop(&hold, now, ended_at)
            {
                stop = Some(self.stop(reason, &hold, now, ended_at.is_some()));
                // A stopped process would not hear that it is to end.
                resume = true;
            }
            let kill_at = match &stop {
                _ if hold.lost.is_some() => now,
                Some(Stop { kill_at: Some(at), .. }) => hold.good_until.min(*at),
                _ => hold.good_until,
            };
            let mut next = kill_at;
            if now >= kill_at {
                self.group.signal(Signal::KILL);
                next = now + KILL_AGAIN;
            } else if resume {
                self.group.signal(Signal::CONT);
            }
            match ended_at {
                // Nobody tells us when what was left behind is gone.
                Some(_) => next = next.min(now + LOOK),
                None if stop.is_none() => next = next.min(hold.good_until.before(self.grace.at_expiry)),
                None => {}
            }
            tokio::select! {
                biased;
                _ = self.children.recv() => {}
                changed = self.hold.changed(), if renewing => renewing = changed.is_ok(),
                signal = self.signals.next() => self.pass_on(signal),
                () = sleep_until(next) => {}
            }
        };
        self.terminal.take_back(self.group.id());
        self.guard.end();
        End { status, stopped: stop.and_then(|stop| stop.reason) }
    }

    /// Why what is running must stop now, if it must.
    fn reason_to_stop(&self, hold: &Hold, now: Instant, ended: Option<Instant>) -> Option<String> {
        if let Some(reason) = &hold.lost {
            Some(format!("the lease is lost ({reason})"))
        } else if hold.breaking {
            Some("an operator breaks the lease".to_owned())
        } else if now >= hold.good_until {
            Some("the lease is over".to_owned())
        } else if now >= hold.good_until.before(self.grace.at_expiry) {
            Some("the lease is about to end and could not be renewed".to_owned())
        } else {
            ended.filter(|&at| now >= at + AFTERGLOW).map(|_| "the command has ended".to_owned())
        }
    }

    fn stop(&self, reason: String, hold: &Hold, now: Instant, has_ended: bool) -> Stop {
        self.group.signal(Signal::TERM);
        let what = if has_ended { "what the command left behind" } else { "the command" };
        say(format_args!("stopping {what}: {reason}"));
        Stop {
            // A break gives all of its grace; otherwise a renewal that comes too late does not lengthen the end.
            kill_at: (!hold.breaking).then(|| now + self.grace.asked),
            // It is no concern of a command that had ended by itself.
            reason: (!has_ended).then_some(reason),
        }
    }

    /// The leader was stopped by this signal. Returns whether it is to go on.
    fn stopped(&self, signal: i32) -> bool {
        let group = self.group.id();
        let wants_terminal = signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw();
        if wants_terminal && self.terminal.lend(group) {
            return true;
        }
        if wants_terminal || signal == Signal::TSTP.as_raw() {
            // The job stops as a whole: the shell learns of it by our stopping too, and its `fg` or `bg` wakes us.
            self.terminal.take_back(group);
            let woken = suspend();
            self.terminal.lend_at_start(group);
            if wants_terminal && !woken {
                // No shell will ever give it the terminal.
                self.group.signal(Signal::HUP);
            }
            return true;
        }
        // Somebody wanted it to pause: the lease is kept meanwhile.
        false
    }

    fn pass_on(&self, signal: Signal) {
        // These have no meaning to helpers that the command may have started, and would end them.
        if signal == Signal::USR1 || signal == Signal::USR2 {
            self.group.signal_leader(signal);
        } else {
            self.group.signal(signal);
        }
    }
}

/// Stops this process until a shell lets it go on. Returns whether it was stopped: where no shell could wake it, the
/// kernel ignores this signal.
fn suspend() -> bool {
    let before = Instant::now();
    let sent = kill_process(getpid(), Signal::TTIN).is_ok();
    sent && Instant::now().since(before) > Duration::from_millis(1)
}
