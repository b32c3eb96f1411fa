//! The command line, apart from `serve`: plain clients of the HTTP API.

mod backup;
mod client;
mod clock;
mod connection;
mod copy;
mod demo;
mod doctor;
pub(crate) mod duration;
mod exit;
mod holder;
mod operator;
mod output;
mod reading;
mod run;
mod say;
mod sse;
mod tokens;
mod verify;
mod watch;

use std::process::ExitCode;

pub use client::http_client;
use exit::HELP;
pub use exit::{Exit, usage};

// The subcommands. (Not a doc comment: clap would take it for what the program is about.)
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Run(run::Run),
    #[command(after_help = HELP)]
    Acquire(holder::Acquire),
    #[command(after_help = HELP)]
    Renew(holder::Renew),
    #[command(after_help = HELP)]
    Release(holder::Release),
    #[command(after_help = HELP)]
    Validate(holder::Validate),
    #[command(after_help = HELP)]
    Get(reading::Get),
    #[command(after_help = HELP)]
    List(reading::List),
    #[command(after_help = HELP)]
    History(reading::History),
    #[command(after_help = HELP)]
    Watch(watch::Watch),
    #[command(after_help = HELP)]
    Break(operator::Break),
    #[command(after_help = HELP)]
    Transfer(operator::Transfer),
    /// Stop all grants on a key (operators); its holder may go on
    #[command(after_help = HELP)]
    Quarantine(operator::KeyAndReason),
    /// Allow grants on a quarantined key again (operators)
    #[command(after_help = HELP)]
    Lift(operator::KeyAndReason),
    #[command(subcommand, after_help = HELP)]
    Token(tokens::Token),
    #[command(subcommand, after_help = HELP)]
    Export(reading::Export),
    #[command(after_help = HELP)]
    Demo(demo::Demo),
    #[command(after_help = HELP)]
    Doctor(doctor::Doctor),
    #[command(after_help = HELP)]
    Verify(verify::Verify),
    #[command(after_help = HELP)]
    Copy(copy::Copy),
    #[command(after_help = HELP)]
    Backup(backup::Backup),
    #[command(after_help = HELP)]
    Restore(backup::Restore),
    /// Kills a command when its lease is over; started by `run`.
    #[command(name = run::GUARD, hide = true)]
    Guard,
    /// Becomes a command when told to; started by `run`.
    #[command(name = run::START, hide = true)]
    Start(run::Start),
}

/// Does what the subcommand says, and gives the exit code; see `--help` for what it means.
///
/// It must be awaited on the process's main thread, which the kernel takes for the parent of what `run` starts.
pub async fn run(command: Command) -> ExitCode {
    let code = carry_out(command).await;
    say::finish();
    code
}

async fn carry_out(command: Command) -> ExitCode {
    let result = match command {
        Command::Run(run) => match run.run().await {
            Ok(status) => return status,
            Err(problem) => Err(problem),
        },
        Command::Acquire(acquire) => acquire.run().await,
        Command::Renew(renew) => renew.run().await,
        Command::Release(release) => release.run().await,
        Command::Validate(validate) => validate.run().await,
        Command::Get(get) => get.run().await,
        Command::List(list) => list.run().await,
        Command::History(history) => history.run().await,
        Command::Watch(watch) => watch.run().await,
        Command::Break(it) => it.run().await,
        Command::Transfer(transfer) => transfer.run().await,
        Command::Quarantine(quarantine) => quarantine.run("leases/quarantine").await,
        Command::Lift(lift) => lift.run("leases/lift").await,
        Command::Token(token) => token.run().await,
        Command::Export(export) => export.run().await,
        Command::Demo(demo) => demo.run().await,
        Command::Doctor(doctor) => doctor.run().await,
        Command::Verify(verify) => verify.run().await,
        Command::Copy(copy) => copy.run().await,
        Command::Backup(backup) => backup.run().await,
        Command::Restore(restore) => restore.run().await,
        Command::Guard => return run::guard().await,
        Command::Start(start) => return start.run(),
    };
    match result {
        Ok(()) => Exit::Done.into(),
        Err(problem) => problem.end(),
    }
}
