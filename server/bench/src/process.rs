//! A server as a process of its own: started on a free port and a fresh folder, and its processor time and memory read from
//! the outside.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long a server may take to start.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How servers are run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Each flush takes so much longer.
    pub(crate) flush_delay: Option<Duration>,
    /// Database servers have the last core for themselves, and everything else has the others.
    pub(crate) apart: bool,
}

impl Manner {
    /// Takes for this process, and for all that it starts, the cores that are left to it.
    pub(crate) fn settle(self) -> Result<()> {
        let cores = std::thread::available_parallelism()?.get();
        if self.apart {
            ensure!(cores > 1, "there is one core");
            keep_to(0..cores - 1)?;
        }
        Ok(())
    }

    /// Starts a database server.
    pub(crate) fn start_database(self, command: Command, log: &Path) -> Result<Process> {
        if !self.apart {
            return Process::start(command, log);
        }
        // What is started has the cores of who starts it.
        let ours = sched_getaffinity(None)?;
        let last = (0..CpuSet::MAX_CPU).rfind(|core| ours.is_set(*core)).context("no core")? + 1;
        keep_to(last..last + 1)?;
        let started = Process::start(command, log);
        sched_setaffinity(None, &ours)?;
        started
    }
}

fn keep_to(cores: Range<usize>) -> Result<()> {
    let mut set = CpuSet::new();
    cores.for_each(|core| set.set(core));
    Ok(sched_setaffinity(None, &set)?)
}

/// A process that is killed when it is let go.
pub(crate) struct Process(Child);

impl Process {
    /// Starts a program; what it says goes to `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let out = fs::File::options().create(true).append(true).open(log)?;
        let error = out.try_clone()?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(error).spawn();
        Ok(Self(child.with_context(|| format!("cannot run {:?}", command.get_program()))?))
    }

    /// Waits until `ready` gives something.
    pub(crate) fn until<T>(&mut self, log: &Path, mut ready: impl FnMut() -> Option<T>) -> Result<T> {
        let began = Instant::now();
        loop {
            if let Some(value) = ready() {
                return Ok(value);
            }
            if self.0.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                bail!("it did not start: {}", fs::read_to_string(log).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it has ended by itself, but no longer than that.
    pub(crate) fn wait(&mut self, at_most: Duration) {
        let began = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && began.elapsed() < at_most {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            // Its number may be another's by now.
            return;
        }
        // All below it as well: a tracer that is killed lets what it traced go on.
        for id in family(self.id()) {
            if let Some(id) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
                // It may have ended by itself.
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        }
        let _ = self.0.wait();
    }
}

/// A program to be run.
pub(crate) fn program(path: &Path, manner: Manner) -> Command {
    let Some(delay) = manner.flush_delay else { return Command::new(path) };
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", "--seccomp-bpf", "--quiet=all", "--output=/dev/null"]);
    strace.arg("--trace=fdatasync,fsync");
    strace.arg(format!("--inject=fdatasync,fsync:delay_exit={}", delay.as_micros())).arg(path);
    strace
}

/// A program, if it is there: on the PATH, or where Debian puts those that are not.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .chain(versions("/usr/lib/postgresql").map(|version| version.join("bin")))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn versions(folder: &str) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Processor time that a process and all below it have used so far.
pub(crate) fn cpu(id: u32) -> Duration {
    family(id).into_iter().map(own_cpu).sum()
}

/// Processor time of one process, and of those below it that have ended.
pub(crate) fn own_cpu(id: u32) -> Duration {
    let ticks = |fields: &[String], index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
    let fields = stat(id);
    let sum: u64 = (11..15).filter_map(|index| ticks(&fields, index)).sum();
    Duration::from_millis(sum * 1_000 / rustix::param::clock_ticks_per_second())
}

/// The memory that a process and all below it have in use, in MB; what they share is counted once for each.
pub(crate) fn memory(id: u32) -> f64 {
    let own = |id: u32| -> Option<f64> {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    family(id).into_iter().filter_map(own).sum::<f64>() * 1_024.0 / 1e6
}

/// A process and all below it.
fn family(id: u32) -> Vec<u32> {
    let mut found = vec![id];
    let all: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|id| Some((id, stat(id).get(1)?.parse().ok()?)))
        .collect();
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        next += 1;
    }
    found
}

/// What the kernel tells of a process behind its name.
fn stat(id: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// The median time of a write of 4 KiB and its flush in this folder.
pub(crate) fn flush_time(folder: &Path) -> Result<Duration> {
    const TIMES: usize = 301;
    let mut file = tempfile::tempfile_in(folder)?;
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let began = Instant::now();
        file.write_all(&[0; 4_096])?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[TIMES / 2])
}
