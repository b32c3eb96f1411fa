//! Programs that the tests need and cargo does not bring: found, installed where that is safe to do, or asked for in one message.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use crate::workspace::{Workspace, run};

/// What to look for, any of the names, and the Debian package that brings it.
const PROGRAMS: [(&[&str], &str); 11] = [
    (&["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"], "chromium"),
    (&["node"], "nodejs"),
    (&["npm"], "npm"),
    (&["faketime"], "faketime"),
    (&["strace"], "strace"),
    // The server: clients have a package of their own.
    (&["postgres"], "postgresql"),
    // Two servers of it, of which one takes over from the other.
    (&["patroni"], "patroni"),
    (&["etcd"], "etcd-server"),
    (&["haproxy"], "haproxy"),
    (&["ip"], "iproute2"),
    (&["pgbouncer"], "pgbouncer"),
];
const CARGO_DENY: &str = "0.20.2";

/// Makes sure that all programs are there. Root on Debian installs what is missing; anybody else is told the command.
pub(crate) fn ensure() -> Result<()> {
    let missing = || PROGRAMS.iter().filter(|(names, _)| find(names).is_none()).map(|(_, package)| *package);
    let packages: Vec<_> = missing().collect();
    if packages.is_empty() {
        return Ok(());
    }
    if rustix::process::getuid().is_root() && find(&["apt-get"]).is_some() {
        run(Command::new("apt-get").args(["update", "--quiet"]))?;
        let mut install = Command::new("apt-get");
        install.args(["install", "--yes", "--quiet", "--no-install-recommends"]).args(&packages);
        run(install.env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    let packages: Vec<_> = missing().collect();
    if !packages.is_empty() {
        bail!("the tests need some programs; on Debian: sudo apt-get install {}", packages.join(" "));
    }
    Ok(())
}

/// Makes sure that the compiler can compile for the browser. rustup brings what that needs by itself, unless it was told not to.
pub(crate) fn ensure_wasm(workspace: &Workspace) -> Result<()> {
    const TARGET: &str = "wasm32-unknown-unknown";
    let is_there = || {
        let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let output = rustc.current_dir(&workspace.root).args(["--print", "target-libdir", "--target", TARGET]).output();
        output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
    };
    if is_there() {
        return Ok(());
    }
    if find(&["rustup"]).is_some() {
        run(Command::new("rustup").current_dir(&workspace.root).args(["target", "add", TARGET]))?;
    }
    if !is_there() {
        bail!("the Rust compiler lacks the target {TARGET}: rustup target add {TARGET}");
    }
    Ok(())
}

/// The browser for the end-to-end tests.
pub(crate) fn browser() -> Option<PathBuf> {
    find(PROGRAMS[0].0)
}

/// cargo-deny, compiled once into the build folder where there is none (some minutes).
pub(crate) fn cargo_deny(workspace: &Workspace) -> Result<PathBuf> {
    if let Some(installed) = find(&["cargo-deny"]) {
        return Ok(installed);
    }
    let root = workspace.target.join("tools");
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        let mut cargo = workspace.cargo();
        // Away from the checkout, whose compiler flags are of no use to it.
        cargo.current_dir("/").args(["install", "--locked", "--version", CARGO_DENY, "cargo-deny", "--root"]);
        run(cargo.arg(&root).env("CARGO_TARGET_DIR", root.join("build")))?;
    }
    Ok(program)
}

/// The folder of PostgreSQL's programs.
pub(crate) fn postgres() -> Option<PathBuf> {
    // Those of one version: where several are installed, one may lie on the PATH and another not.
    folders().into_iter().find(|folder| ["initdb", "postgres"].iter().all(|name| folder.join(name).is_file()))
}

/// The first of `names` that is there.
fn find(names: &[&str]) -> Option<PathBuf> {
    let folders = folders();
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|file| Path::is_file(file))
}

/// Where programs are: on the PATH, where Debian puts PostgreSQL's, the newest first, and where it puts those of administrators.
fn folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let mut versions: Vec<_> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by(|one, other| other.cmp(one));
    let administrators = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(versions.into_iter().map(|(_, folder)| folder)).chain(administrators).collect()
}
