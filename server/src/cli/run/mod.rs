//! `job-leases run`: holds a lease for as long as a command runs, and stops the command before it could be without.

mod group;
mod guard;
mod hold;
mod signals;
mod supervise;
pub(super) mod take;
mod terminal;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use app::api::leases::{Lease, Status};
use tokio::sync::watch;

use self::group::Group;
pub(super) use self::group::START;
pub(super) use self::group::Start;
use self::guard::Guard;
pub(super) use self::guard::{GUARD, run as guard};
use self::hold::Hold;
pub(super) use self::hold::renew;
use self::signals::Signals;
use self::supervise::{End, Grace, Watch};
use self::take::{Taken, Taking, give_back};
use self::terminal::Terminal;
use super::client::Client;
use super::clock::Instant;
use super::connection::Connection;
use super::duration;
use super::exit::{Exit, Problem};
use super::holder::{Terms, key};
use super::say::say;

const RELEASE_ATTEMPTS: u32 = 4;

/// What `job-leases run --help` says at its end.
const HELP: &str = "\
The command runs in a process group of its own, with JOB_LEASE_KEY,
JOB_LEASE_ID and JOB_LEASE_FENCING_TOKEN set. The lease is renewed every third
of its ttl, and at least every 10 seconds. Whatever happens, the command is
stopped before the lease can be somebody else's:
 - if it cannot be renewed: TERM --kill-after before it ends (but at most a
   third of the ttl before), then KILL;
 - if an operator breaks it: TERM at once, KILL when the break's grace is over
   (with no grace, or if it is handed to another owner: KILL at once, a moment
   after the key was given to the next);
 - if it is lost: KILL at once. So also if this program is killed, or stopped
   or asleep until the lease is over.
HUP, INT, QUIT, TERM, USR1, USR2, WINCH and TSTP are passed on. What the command
leaves behind in its process group when it ends is stopped too, after a second;
then the lease is given back.

Exit codes: that of the command (128+n if signal n ended it; 126 or 127 if it
cannot be run or found), or
  64  the arguments are wrong, or the server refuses what they say
  69  the server cannot be reached, or is too busy to answer
  70  a fault of the server or of this program
  73  the key is not to be had: held, cooling, breaking or quarantined
  75  the lease was lost, and the command was stopped
  77  the token is missing, unknown, or not allowed to do this
  78  the address or the token's file cannot be used";

/// Run a command while holding a lease
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Run {
    /// What must not be done twice at once
    #[arg(long, short, env = "JOB_LEASES_KEY", value_parser = key)]
    key: domain::LeaseKey,
    #[command(flatten)]
    terms: Terms,
    /// How long the lease is held without a renewal
    #[arg(long, env = "JOB_LEASES_TTL", default_value = "30s", value_name = "TIME", value_parser = duration::parse)]
    ttl: Duration,
    /// How long to wait for the lease, and for a server that is away; not at all if left out
    #[arg(long, env = "JOB_LEASES_WAIT", default_value = "0", value_name = "TIME", value_parser = duration::parse)]
    #[arg(hide_default_value = true)]
    wait: Duration,
    /// How long the command gets from TERM to KILL
    #[arg(long, env = "JOB_LEASES_KILL_AFTER", default_value = "10s", value_name = "TIME")]
    #[arg(value_parser = duration::parse)]
    kill_after: Duration,
    #[command(flatten)]
    connection: Connection,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Run {
    pub(super) async fn run(self) -> Result<ExitCode, Problem> {
        let client = self.connection.client()?;
        let mut signals = Signals::of_ending()?;
        // No renewal can give more.
        let ttl = self.terms.max_hold.map_or(self.ttl, |most| most.min(self.ttl));
        let request = self.terms.request(self.key.clone(), Some(self.ttl));
        let mut taking = Taking::new(&client, request, self.wait);
        let taken = tokio::select! {
            taken = taking.take_fresh(ttl) => taken?,
            signal = signals.next() => {
                taking.give_up().await;
                return Ok(ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)));
            }
        };
        match self.work(&client, &taken, ttl, signals).await {
            Ok((end, hold)) => {
                let was_lost = hold.lost.is_some() || self.release(&client, &taken.lease, hold.good_until).await;
                Ok(if was_lost || end.stopped.is_some() { Exit::Lost.into() } else { ExitCode::from(end.status) })
            }
            Err(error) => {
                self.release(&client, &taken.lease, taken.good_until()).await;
                Err(Problem::new(Exit::Internal, format!("the command could not be started: {error}")))
            }
        }
    }

    /// Runs the command under the lease. What is known of the lease at the end comes with how it ended.
    async fn work(&self, client: &Client, taken: &Taken, ttl: Duration, signals: Signals) -> io::Result<(End, Hold)> {
        let lease = &taken.lease;
        let children = supervise::children()?;
        let signals = signals.and_all_others()?;
        let guard = Guard::start()?;
        let environment = [
            ("JOB_LEASE_KEY", lease.lease_key.to_string()),
            ("JOB_LEASE_ID", lease.lease_id.to_string()),
            ("JOB_LEASE_FENCING_TOKEN", lease.fencing_token.to_string()),
        ];
        let group = Group::start(&self.command, &environment)?;
        let (tell, hold) = watch::channel(Hold {
            good_until: taken.good_until(),
            breaking: lease.status == Status::Breaking,
            lost: None,
        });
        let keeper = tokio::spawn(hold::keep(client.clone(), lease.clone(), ttl, taken.sent, tell));
        let grace = Grace { asked: self.kill_after, at_expiry: self.kill_after.min(ttl / 3) };
        let terminal = Terminal::open();
        let watch = Watch { group, guard, terminal, signals, children, hold: hold.clone(), grace };
        let end = watch.until_the_end().await;
        keeper.abort();
        let hold = hold.borrow().clone();
        Ok((end, hold))
    }

    /// Gives the lease back. Returns whether it turned out to be lost although it should still have been held: then
    /// the command has worked without it.
    async fn release(&self, client: &Client, lease: &Lease, good_until: Instant) -> bool {
        let was_good = Instant::now() < good_until;
        let Err(failure) = give_back(client, lease, if was_good { RELEASE_ATTEMPTS } else { 1 }).await else {
            return false;
        };
        if was_good && hold::is_over(&failure) {
            let reason = hold::loss(&failure);
            say(format_args!("the lease on {} was lost ({reason}) before the command had ended", self.key));
            return true;
        }
        if was_good {
            say(format_args!("the lease on {} could not be given back, it will run out: {failure}", self.key));
        }
        false
    }
}
