//! The command as a process group of its own: started, signalled, waited for.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, kill_process_group, test_kill_process_group,
    waitpgid, waitpid,
};

use super::super::exit::Exit;
use super::super::say::say;

/// The hidden subcommand that becomes the command.
pub(in super::super) const START: &str = "__start";

/// What a shell answers for a command that it cannot find, and for one that it cannot run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// A process group whose leader is our child.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    /// Its leader was waited for: the number may be anybody's once the group is empty.
    reaped: bool,
}

/// What became of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Stopped by this signal.
    Stopped(i32),
    /// Over, with this status as a shell would give it.
    Ended(u8),
}

/// This very program, even if its file has been replaced since.
pub(super) fn this_program() -> io::Result<PathBuf> {
    let itself = PathBuf::from("/proc/self/exe");
    if itself.exists() { Ok(itself) } else { std::env::current_exe() }
}

impl Group {
    /// Makes the group. Its leader stops itself before it becomes the command; [`Signal::CONT`] lets it.
    ///
    /// # Errors
    /// If no process could be made.
    pub(super) fn start(command: &[OsString], environment: &[(&str, String)]) -> io::Result<Self> {
        let child = Command::new(this_program()?)
            .arg(START)
            .arg(getpid().to_string())
            .arg("--")
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .spawn()?;
        Ok(Self { leader: pid_of(&child)?, reaped: false })
    }

    /// Its number, which is that of its leader.
    pub(super) fn id(&self) -> Pid {
        self.leader
    }

    /// What has happened to the leader since the last call, if anything.
    pub(super) fn poll(&mut self) -> Option<Change> {
        if self.reaped {
            return None;
        }
        let (_, status) = waitpid(Some(self.leader), WaitOptions::NOHANG | WaitOptions::UNTRACED).ok()??;
        if let Some(signal) = status.stopping_signal() {
            return Some(Change::Stopped(signal));
        }
        let code = shell_status(status)?;
        self.reaped = true;
        Some(Change::Ended(code))
    }

    /// Whether anything of it still runs.
    pub(super) fn is_alive(&self) -> bool {
        if !self.reaped {
            return true;
        }
        // Orphans are ours if this is the first process of a container: it must bury them.
        while let Ok(Some(_)) = waitpgid(self.leader, WaitOptions::NOHANG) {}
        // Not being allowed to signal what is there is a way of being there.
        !matches!(test_kill_process_group(self.leader), Err(Errno::SRCH)) && !all_are_dead(self.leader)
    }

    /// Sends a signal to all of it.
    pub(super) fn signal(&self, signal: Signal) {
        // Gone already is as good.
        let _ = kill_process_group(self.leader, signal);
        if !self.reaped && signal == Signal::KILL {
            // A leader that has moved to another group.
            let _ = kill_process(self.leader, signal);
        }
    }

    /// Sends a signal to its leader only.
    pub(super) fn signal_leader(&self, signal: Signal) {
        if !self.reaped {
            let _ = kill_process(self.leader, signal);
        }
    }
}

/// Whether those that are left of a group have ended and only wait to be buried, as far as the kernel tells: the first
/// process of a container may never do that.
fn all_are_dead(group: Pid) -> bool {
    let group = group.to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let mut seen = false;
    for process in processes.flatten() {
        // `number (name) state parent group ...`, and a name may hold anything.
        let Ok(stat) = fs::read_to_string(process.path().join("stat")) else { continue };
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let state = fields.next().unwrap_or_default();
        if fields.nth(1) == Some(group.as_str()) {
            if !matches!(state, "Z" | "X") {
                return false;
            }
            seen = true;
        }
    }
    // Where nothing of it is to be seen, the kernel does not tell.
    seen
}

/// The number of a child.
pub(super) fn pid_of(child: &std::process::Child) -> io::Result<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("a process without a number"))
}

/// The status as a shell gives it.
fn shell_status(status: WaitStatus) -> Option<u8> {
    if let Some(code) = status.exit_status() {
        return u8::try_from(code & 0xff).ok();
    }
    status.terminating_signal().and_then(|signal| u8::try_from(128 + signal).ok())
}

/// Becomes the command, once told to go on: until then nothing of the command has happened, and its keeper could put
/// everything in place. `keeper` is the process that must live as long as the command.
#[derive(Debug, clap::Args)]
pub struct Start {
    keeper: i32,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

impl Start {
    /// Returns only if the command could not be run.
    pub(crate) fn run(self) -> ExitCode {
        // Should the keeper be killed outright, the kernel kills the command. This outlives exec.
        #[cfg(target_os = "linux")]
        if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
            say(format_args!("the kernel would not watch over the command: {error}"));
            return Exit::Internal.into();
        }
        if getppid() != Pid::from_raw(self.keeper) || kill_process(getpid(), Signal::STOP).is_err() {
            return Exit::Internal.into();
        }
        let Some((program, arguments)) = self.command.split_first() else { return Exit::Usage.into() };
        let error = Command::new(program).args(arguments).exec();
        say(format_args!("{}: {error}", program.display()));
        ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE })
    }
}
