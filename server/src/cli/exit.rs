//! The exit codes, and what leads to each.

use std::fmt;
use std::process::ExitCode;

use super::client::Failure;
use super::say::say;

/// Why the program ends; the numbers are those of sysexits.h where it has a fitting one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All was done.
    Done = 0,
    /// The arguments are wrong, or the server refused what they say.
    Usage = 64,
    /// There is no such lease, key or token, or nothing to break or lift.
    Nothing = 66,
    /// The server could not be reached, or is too busy to answer.
    Unavailable = 69,
    /// The server, or this program, has a fault.
    Internal = 70,
    /// The key is held, cools, breaks or is quarantined, or the wait was over first.
    Busy = 73,
    /// The lease is lost.
    Lost = 75,
    /// The token is missing, unknown, or not allowed to do this.
    NotAllowed = 77,
    /// The configuration cannot be used: the address, or the file with the token.
    Configuration = 78,
}

/// What `--help` says of them.
pub(crate) const HELP: &str = "\
Exit codes:
   0  done
  64  the arguments are wrong, or the server refuses what they say
  66  no such lease, key or token; nothing to break or to lift
  69  the server cannot be reached, or is too busy to answer
  70  a fault of the server or of this program
  73  the key is not to be had: held, cooling, breaking or quarantined
  75  the lease is lost
  77  the token is missing, unknown, or not allowed to do this
  78  the address or the token's file cannot be used

Without a token, the file is read that a server with the default database wrote
for this user. Lengths of time are written like 500ms, 30s, 5m or 1h30m.";

/// The end of a command that did not do what was asked.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Problem {
    /// What is to be said.
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    /// All was said already.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, message: String::new() }
    }

    /// Says it, and gives the exit code.
    pub(crate) fn end(self) -> ExitCode {
        if self.exit != Exit::Done && !self.message.is_empty() {
            say(format_args!("{}", self.message));
        }
        self.exit.into()
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self { exit: failure.exit(), message: failure.to_string() }
    }
}

/// Output that nobody reads any more is no fault: `job-leases watch | head` ends quietly.
impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        let exit = if error.kind() == std::io::ErrorKind::BrokenPipe { Exit::Done } else { Exit::Internal };
        Self { exit, message: error.to_string() }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Prints what clap has to say (help, version, or what is wrong with the arguments) and gives the exit code.
pub fn usage(error: &clap::Error) -> ExitCode {
    // Nobody is there to read it: there is nobody to tell that either.
    let _ = error.print();
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
}
