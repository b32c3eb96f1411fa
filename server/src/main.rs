//! The program `job-leases`.

use std::process::ExitCode;

use clap::Parser;
use server::{cli, serve};

/// Grants each piece of work to one owner at a time, for a bounded time.
#[derive(Debug, Parser)]
#[command(name = "job-leases", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::Arguments),
    #[command(flatten)]
    Client(cli::Command),
}

fn main() -> ExitCode {
    let Arguments { command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return cli::usage(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("job-leases: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    // On this very thread, since what `run` starts takes it for its parent.
    runtime.block_on(async {
        match command {
            Command::Serve(arguments) => serve::run(arguments).await,
            Command::Client(command) => cli::run(command).await,
        }
    })
}
