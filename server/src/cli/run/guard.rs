//! A small process that outlives this one: it kills the command when the lease is over, or when `run` is.
//!
//! `run` does the same by itself. The guard is for what `run` cannot do: act while it is stopped, or once it was killed.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{SignalKind, signal};

use super::super::clock::{Instant, sleep_until};
use super::super::exit::Exit;
use super::super::say::say;
use super::group::this_program;

/// The hidden subcommand that is the guard.
pub(in super::super) const GUARD: &str = "__guard";

/// The number of the group, then the instant, both little-endian.
const ORDER: usize = 12;

/// The guard, as `run` sees it.
pub(super) struct Guard {
    child: Child,
    last: Option<Instant>,
}

impl Guard {
    /// Starts it. It has nothing to guard yet.
    ///
    /// # Errors
    /// If no process could be made.
    pub(super) fn start() -> io::Result<Self> {
        let child = Command::new(this_program()?)
            .arg(GUARD)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Apart from the terminal's signals.
            .process_group(0)
            .spawn()?;
        if let Some(pipe) = &child.stdin {
            // A guard that does not read must never hold up `run`.
            ioctl_fionbio(pipe, true)?;
        }
        Ok(Self { child, last: None })
    }

    /// Tells it to kill `group` at `until`, instead of what it was told before.
    ///
    /// # Errors
    /// If it is gone.
    pub(super) fn watch(&mut self, group: Pid, until: Instant) -> io::Result<()> {
        if self.last == Some(until) {
            return Ok(());
        }
        self.last = Some(until);
        let mut order = [0; ORDER];
        order[..4].copy_from_slice(&group.as_raw_nonzero().get().to_le_bytes());
        order[4..].copy_from_slice(&until.to_nanos().to_le_bytes());
        // So short a message is written whole or not at all.
        self.child.stdin.as_mut().map_or(Ok(()), |pipe| pipe.write_all(&order))
    }

    /// Whether the time has come at which it was told to kill.
    pub(super) fn has_struck(&self) -> bool {
        self.last.is_some_and(|until| Instant::now() >= until)
    }

    /// Ends it: there is nothing to guard any more.
    pub(super) fn end(mut self) {
        // If it is gone already, so be it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The guard itself, until its standard input ends.
pub(crate) async fn run() -> ExitCode {
    match guard().await {
        Ok(()) => Exit::Done.into(),
        Err(error) => {
            say(format_args!("the guard failed: {error}"));
            Exit::Internal.into()
        }
    }
}

async fn guard() -> io::Result<()> {
    // What is sent to all processes of a service or a session is for the command; the guard ends after it.
    let mut ignored = Vec::new();
    for kind in [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ] {
        ignored.push(signal(kind)?);
    }
    let mut orders = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut order = [0; ORDER];
    let mut filled = 0;
    let mut watched: Option<(Pid, Instant)> = None;
    loop {
        let over = async {
            match watched {
                Some((_, until)) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A newer order, if there is one, says whether the time has come.
            biased;
            read = orders.read(&mut order[filled..]) => match read? {
                0 => {
                    if let Some((group, _)) = watched
                        && kill_process_group(group, Signal::KILL).is_ok()
                    {
                        say(format_args!("the command was killed, since `run` was"));
                    }
                    return Ok(());
                }
                bytes => {
                    filled += bytes;
                    if filled == ORDER {
                        filled = 0;
                        watched = parse(&order);
                    }
                }
            },
            () = over => {
                if let Some((group, _)) = watched.take() {
                    // Where `run` is awake it does the same; in any case it will say so.
                    let _ = kill_process_group(group, Signal::KILL);
                }
            }
        }
    }
}

fn parse(order: &[u8; ORDER]) -> Option<(Pid, Instant)> {
    let (group, until) = order.split_at(4);
    let group = Pid::from_raw(i32::from_le_bytes(group.try_into().ok()?))?;
    Some((group, Instant::from_nanos(u64::from_le_bytes(until.try_into().ok()?))))
}
