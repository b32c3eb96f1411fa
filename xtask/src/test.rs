//! `cargo xtask test`: everything that must hold, in order from quick to slow. A step that fails does not stop the others, so
//! that one run shows all there is to mend. Test runners' own output passes through unchanged; the last line adds them up.

use std::{
    io::{self, BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    postgres, site, tools,
    workspace::{Profile, Workspace, line, run as run_command},
};

/// Bytes, brotli-compressed, that a first visit may cost.
const WASM_BUDGET: u64 = 264 * 1024;
const CSS_BUDGET: u64 = 15 * 1024;

/// The packages whose tests are compiled together: cargo then resolves their features once, for the end-to-end server too.
pub(crate) const SERVER: [&str; 10] =
    ["--package", "engine", "--package", "app", "--features", "app/ssr", "--package", "server", "--package", "bench"];
const WASM: [&str; 10] = [
    "--package",
    "app",
    "--package",
    "frontend",
    "--features",
    "app/hydrate",
    "--target",
    "wasm32-unknown-unknown",
    "--profile",
    "wasm-release",
];

type Step = fn(&Workspace, &mut Tally) -> Result<()>;
const STEPS: [(&str, Step); 9] = [
    ("format", format),
    ("clippy", clippy),
    ("licences", licences),
    ("xtask", |workspace, tally| count(workspace.cargo().args(["test", "--locked", "--package", "xtask"]), tally)),
    ("domain", |workspace, tally| {
        count(workspace.cargo().args(["test", "--locked", "--no-fail-fast", "--package", "domain"]), tally)
    }),
    ("server", server),
    ("site", |workspace, _| site::build(workspace).map(drop)),
    ("budgets", budgets),
    ("end2end", end2end),
];

/// Runs the steps named in `only`, or all of them; ends the process with status 1 if any failed.
pub(crate) fn run(workspace: &Workspace, only: &[String]) -> Result<()> {
    if let Some(unknown) = only.iter().find(|name| STEPS.iter().all(|(step, _)| name != step)) {
        let names: Vec<_> = STEPS.iter().map(|(name, _)| *name).collect();
        bail!("no step is called {unknown}: they are {}", names.join(", "));
    }
    tools::ensure()?;

    let mut tally = Tally::default();
    let mut outcomes = Vec::new();
    for (name, step) in STEPS.iter().filter(|(name, _)| only.is_empty() || only.iter().any(|wanted| wanted == name)) {
        println!("\n== {name}");
        let (result, time) = timed(|| step(workspace, &mut tally));
        if let Err(error) = &result {
            println!("{name}: {error:#}");
        }
        outcomes.push((name, result.is_ok(), time));
    }

    println!();
    for (name, passed, time) in &outcomes {
        println!("{:<4} {name:<10} {:>7.1} s", if *passed { "ok" } else { "FAIL" }, time.as_secs_f64());
    }
    let failed = outcomes.iter().any(|(_, passed, _)| !passed);
    println!("{}", tally.summary());
    std::process::exit(i32::from(failed || tally.failed > 0));
}

#[expect(clippy::disallowed_methods, reason = "times a build step for people to read")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

fn format(workspace: &Workspace, _: &mut Tally) -> Result<()> {
    run_command(workspace.cargo().args(["fmt", "--all", "--check"]))
}

/// Once for each way in which the code is compiled: server, browser, tools.
fn clippy(workspace: &Workspace, _: &mut Tally) -> Result<()> {
    let clippy = |args: &[&str]| {
        let mut cargo = workspace.cargo();
        cargo.args(["clippy", "--locked"]).args(args);
        cargo
    };
    let deny = ["--", "--deny", "warnings"];
    run_command(clippy(&["--all-targets", "--package", "domain"]).args(SERVER).args(deny))?;
    run_command(clippy(&["--all-targets", "--package", "xtask"]).args(deny))?;
    run_command(clippy(&WASM).arg("--target-dir").arg(workspace.target.join("site")).args(deny))
}

fn licences(workspace: &Workspace, _: &mut Tally) -> Result<()> {
    let mut deny = Command::new(tools::cargo_deny(workspace)?);
    deny.current_dir(&workspace.root).args([
        "--locked",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]);
    run_command(&mut deny)
}

/// On both databases.
fn server(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let database = postgres::Server::start()?;
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--locked", "--no-fail-fast"]).args(SERVER).env(postgres::VARIABLE, database.url());
    count(&mut cargo, tally)
}

fn budgets(workspace: &Workspace, _: &mut Tally) -> Result<()> {
    let site = workspace.out(Profile::Release).join("site");
    for (extension, budget) in [("wasm", WASM_BUDGET), ("css", CSS_BUDGET)] {
        let size = site::compressed_size(&site, extension)?.with_context(|| format!("the site has no {extension}"))?;
        println!("{extension}: {size} of {budget} bytes (brotli)");
        ensure!(size <= budget, "{extension} is {size} bytes compressed, more than the {budget} that it may be");
    }
    Ok(())
}

/// The console in a browser, on the server that the step before has tested and the optimised site.
fn end2end(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    run_command(workspace.cargo().args(["test", "--locked", "--no-run"]).args(SERVER))?;
    count(&mut playwright(workspace, "tests")?, tally)
}

/// Pictures of every page and state, for people to look at.
pub(crate) fn screenshots(workspace: &Workspace) -> Result<()> {
    tools::ensure()?;
    site::build(workspace)?;
    run_command(workspace.cargo().args(["test", "--locked", "--no-run"]).args(SERVER))?;
    run_command(&mut playwright(workspace, "screenshots")?)
}

/// Playwright on the server and the site as they were built for tests.
fn playwright(workspace: &Workspace, project: &str) -> Result<Command> {
    let folder = workspace.root.join("end2end");
    run_command(Command::new("npm").current_dir(&folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]))?;
    run_command(Command::new("npm").current_dir(&folder).args(["run", "--silent", "check"]))?;
    let mut playwright = Command::new("npm");
    playwright
        .current_dir(&folder)
        .args(["exec", "--", "playwright", "test", "--project", project])
        .env("CHROMIUM", tools::browser().context("a browser was found at the start")?)
        .env("JOB_LEASES_PROGRAM", workspace.out(Profile::Debug).join("job-leases"))
        .env("JOB_LEASES_SITE", workspace.out(Profile::Release).join("site"));
    Ok(playwright)
}

/// Runs a test runner, passing its output on and adding up what it reports.
fn count(command: &mut Command, tally: &mut Tally) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {}", line(command)))?;
    let output = BufReader::new(child.stdout.take().context("standard output is piped")?);
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || output.split(b'\n').map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut out = io::stdout();
    // To the end of the output, or of the runner: a process that a test left behind may hold the pipe open.
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(text) => {
                tally.add(&String::from_utf8_lossy(&text));
                out.write_all(&text)?;
                out.write_all(b"\n")?;
            }
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_none() => {}
            Err(_) => break,
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{} failed: {status}", line(command));
    Ok(())
}

/// What the runners reported.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Tally {
    /// Reads a line of output: cargo's `test result: ok. 5 passed; 0 failed; 1 ignored; ...` and Playwright's `  3 passed (2.1s)`.
    fn add(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            for part in result.split(['.', ';']) {
                self.add_part(part);
            }
        } else if let Some(total) = line.strip_prefix("  ")
            && !total.starts_with(' ')
        {
            self.add_part(total);
        }
    }

    fn add_part(&mut self, part: &str) {
        let mut words = part.split_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else { return };
        match words.next() {
            Some("passed" | "flaky") => self.passed += number,
            Some("failed" | "interrupted") => self.failed += number,
            Some("ignored" | "skipped" | "did") => self.skipped += number,
            _ => {}
        }
    }

    fn summary(&self) -> String {
        let skipped = if self.skipped > 0 { format!(", {} skipped", self.skipped) } else { String::new() };
        format!("{} passed, {} failed{skipped}", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add(line));
        tally
    }

    #[test]
    fn the_runners_reports_are_added_up() {
        let seen = tally(&[
            "test clock::never_steps_back ... ok",
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s",
            "test result: FAILED. 7 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
            "  1 failed",
            "    [chromium] › signin.spec.ts:3:1 › signs in",
            "    2 failed attempts",
            "  2 did not run",
            "  3 passed (2.1s)",
        ]);
        assert_eq!(seen, Tally { passed: 15, failed: 3, skipped: 3 });
        assert_eq!(seen.summary(), "15 passed, 3 failed, 3 skipped");
    }

    #[test]
    fn other_lines_count_for_nothing() {
        assert_eq!(
            tally(&["5 passed, 0 failed", "running 5 tests", "", "  30 states visited"]).summary(),
            "0 passed, 0 failed"
        );
    }
}
