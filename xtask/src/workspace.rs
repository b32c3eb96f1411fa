//! Where things are, and how cargo and other programs are called.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// The checkout and its build folder, both absolute.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?.to_owned();
        // This program is `<target>/<profile>/xtask`, wherever cargo was told to build.
        let exe = env::current_exe()?;
        let target = exe.ancestors().nth(2).context("xtask was built by cargo")?.to_owned();
        Ok(Self { root, target })
    }

    /// A cargo of the same toolchain, working in this checkout and this build folder.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    /// Where `profile` puts its programs.
    pub(crate) fn out(&self, profile: Profile) -> PathBuf {
        self.target.join(match profile {
            Profile::Debug => "debug",
            Profile::Release => "release",
            Profile::Dist => "dist",
        })
    }

    /// Builds the server and returns its path.
    pub(crate) fn build_server(&self, profile: Profile) -> Result<PathBuf> {
        let mut cargo = self.cargo();
        cargo.args(["build", "--package", "server"]);
        match profile {
            Profile::Debug => {}
            Profile::Release => drop(cargo.arg("--release")),
            Profile::Dist => drop(cargo.args(["--profile", "dist"])),
        }
        run(&mut cargo)?;
        Ok(self.out(profile).join("job-leases"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Debug,
    /// Optimised, and quick to build again.
    Release,
    /// Optimised as far as it goes.
    Dist,
}

/// Runs a program to its end; an error when it fails, with the command line.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", line(command)))?;
    ensure!(status.success(), "{} failed: {status}", line(command));
    Ok(())
}

/// The command as one would type it, without its folder and environment.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    [program].into_iter().chain(command.get_args()).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
