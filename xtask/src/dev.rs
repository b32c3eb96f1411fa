//! `cargo xtask dev`: build, run, and do both again whenever a source file changes.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    site,
    workspace::{Profile, Workspace},
};

const WATCHED: [&str; 7] = ["Cargo.lock", "Cargo.toml", "app", "frontend", "migrations", "server", "style"];

/// Runs until it is asked to end; then it takes the server along.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ending))?;
    }
    let mut server: Option<Child> = None;
    loop {
        // Taken before the build, so that a change during it is not missed.
        let built = state(&workspace.root)?;
        match build(workspace) {
            Ok(mut command) => {
                stop(server.take())?;
                server = Some(command.args(args).spawn()?);
            }
            Err(error) => eprintln!("{error:#}"),
        }
        eprintln!("waiting for a change");
        while state(&workspace.root)? == built {
            if ending.load(Ordering::Relaxed) {
                return stop(server);
            }
            thread::sleep(Duration::from_millis(300));
        }
    }
}

fn build(workspace: &Workspace) -> Result<Command> {
    let site = site::build(workspace)?;
    let mut command = Command::new(workspace.build_server(Profile::Debug)?);
    command.arg("serve").env("JOB_LEASES_SITE", site);
    Ok(command)
}

/// Asks the server to stop and waits until it has: it answers its open requests first.
fn stop(server: Option<Child>) -> Result<()> {
    if let Some(mut server) = server
        && server.try_wait()?.is_none()
    {
        kill_process(Pid::from_child(&server), Signal::TERM)?;
        server.wait()?;
    }
    Ok(())
}

/// The number of watched files and the time of the newest: one of them differs after any edit, addition or removal.
fn state(root: &Path) -> Result<(usize, SystemTime)> {
    let mut state = (0, SystemTime::UNIX_EPOCH);
    let mut left: Vec<_> = WATCHED.iter().map(|name| root.join(name)).filter(|path| path.exists()).collect();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(path)? {
                left.push(entry?.path());
            }
        } else if let Ok(modified) = fs::metadata(&path).and_then(|file| file.modified()) {
            // An editor's temporary file may be gone by now: then it does not count.
            state = (state.0 + 1, state.1.max(modified));
        }
    }
    Ok(state)
}
