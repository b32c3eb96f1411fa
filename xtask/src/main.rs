//! The project's own commands: `cargo xtask serve`, `test`, `torture`, `dev`, `bench`, `screenshots`, `dist`. They call cargo and other well-kept tools, and do
//! by themselves only what no installed tool does: turn the frontend's WASM into a site.

mod dev;
mod dist;
mod postgres;
mod site;
mod test;
mod tools;
mod torture;
mod workspace;

use std::{env, os::unix::process::CommandExt, process::Command, thread};

use anyhow::{Result, bail};

use crate::workspace::{Profile, Workspace};

const HELP: &str = "\
usage: cargo xtask COMMAND

  serve [-- ARGS]   build the server and its site, optimised, then run `job-leases serve ARGS`
  dev [-- ARGS]     the same with an unoptimised server, built again and restarted whenever a source file changes
  test [STEP ...]   check everything, as continuous integration does, or only the steps named
  torture [--minutes N] [--seed S]
                    mistreat servers on both databases for so long, and check what their clients were told
  bench [-- ARGS]   measure the server as other machines get it; `bench -- --help` tells what can be chosen
  screenshots       pictures of every page and state, in end2end/pictures
  dist              an archive with all that another machine needs to run the server";

fn main() -> Result<()> {
    let workspace = Workspace::find()?;
    let mut args = env::args().skip(1);
    let command = args.next();
    let rest: Vec<String> = args.collect();
    let passed_on = rest.strip_prefix(&["--".to_owned()]).unwrap_or(&rest);
    if matches!(command.as_deref(), Some("serve" | "dev" | "test" | "bench" | "screenshots" | "dist")) {
        // First of all, rather than after some minutes of compiling.
        tools::ensure_wasm(&workspace)?;
    }
    match command.as_deref() {
        Some("serve") => serve(&workspace, passed_on),
        Some("dev") => dev::run(&workspace, passed_on),
        Some("test") => test::run(&workspace, &rest),
        Some("torture") => torture::torture(&workspace, &rest),
        Some("bench") => bench(&workspace, passed_on),
        Some("screenshots") => test::screenshots(&workspace),
        Some("dist") => dist::run(&workspace),
        Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            Ok(())
        }
        _ => bail!("{HELP}"),
    }
}

/// Builds both halves at once, since linking the WASM keeps only one core busy, then becomes the server: signals and the exit
/// status are its own.
fn serve(workspace: &Workspace, args: &[String]) -> Result<()> {
    let server = thread::scope(|scope| {
        let site = scope.spawn(|| site::build(workspace));
        let server = workspace.build_server(Profile::Release)?;
        site.join().expect("the site's thread returns its errors")?;
        anyhow::Ok(server)
    })?;
    Err(Command::new(server).arg("serve").args(args).exec().into())
}

/// Measures the optimised server with its site, since pages are measured too.
fn bench(workspace: &Workspace, args: &[String]) -> Result<()> {
    let site = site::build(workspace)?;
    let program = workspace.build_server(Profile::Dist)?;
    workspace::run(workspace.cargo().args(["build", "--release", "--package", "bench"]))?;
    let mut bench = Command::new(workspace.out(Profile::Release).join("bench"));
    Err(bench.arg("--program").arg(program).env("JOB_LEASES_SITE", site).args(args).exec().into())
}
