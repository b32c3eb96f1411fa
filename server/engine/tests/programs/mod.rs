//! Programs that tests start beside the product: each ends with the test that started it, however that ends.

mod pooler;

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process};

pub(crate) use self::pooler::Pooler;

/// Runs a program and tells its number, until it ends by itself or this script's standard input does: that is held by the
/// test alone, so it ends whatever ends the test. (A signal sent from parent to child does not outlive a change of user.) What
/// a shell starts beside itself ignores one of these signals, unless it knows better; PostgreSQL waits for its clients at the
/// other.
const KEEPER: &str = r#"
exec 3<&0 </dev/null
"$@" 3<&- >&2 &
program=$!
echo "$program"
exec >&-
{ read -r end <&3; kill -QUIT "$program"; kill -TERM "$program"; } &
wait "$program"
kill "$!" 2>/dev/null
"#;

/// A program that runs no longer than the test.
pub(crate) struct Kept {
    keeper: Child,
    pid: Pid,
}

impl Kept {
    /// Runs `program` in `folder`, as this user if one is named; what it says goes to the end of `log`.
    pub(crate) fn run(program: &Path, arguments: &[&str], folder: &Path, user: Option<User>, log: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(program).args(arguments);
        // Away from the group of processes that an interrupt from the keyboard reaches: the keeper ends it.
        command.current_dir(folder).process_group(0);
        if let Some(user) = user {
            command.uid(user.id).gid(user.group);
        }
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        Self { keeper, pid: pid.unwrap_or_else(|| panic!("{} was not started: {line:?}", program.display())) }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.keeper.try_wait().unwrap().is_some()
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        if !self.has_ended() {
            // It may have ended in this moment.
            let _ = kill_process(self.pid, Signal::KILL);
            self.keeper.wait().unwrap();
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The keeper ends it so that it can clear up, as PostgreSQL does with its shared memory; if it can.
        drop(self.keeper.stdin.take());
        for _ in 0..500 {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }
}

/// A user of this machine.
#[derive(Clone, Copy)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) group: u32,
}

impl User {
    /// As whom to run what refuses to run as root: nobody else, unless this is root.
    pub(crate) fn instead_of_root() -> Option<Self> {
        if !getuid().is_root() {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let number = |fields: &[&str], index: usize| fields.get(index).and_then(|field| field.parse().ok());
        let found =
            users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == "postgres");
        let user = found.and_then(|fields| Some(Self { id: number(&fields, 2)?, group: number(&fields, 3)? }));
        Some(
            user.expect(
                "there is no user postgres, as whom to run what refuses to run as root: apt install postgresql",
            ),
        )
    }

    /// Gives it a file or folder.
    pub(crate) fn own(self, path: &Path) {
        std::os::unix::fs::chown(path, Some(self.id), Some(self.group)).unwrap();
    }
}

/// A port of this machine that nobody uses now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Waits until somebody listens on this port; false if that takes too long, or `has_ended` says that it is in vain.
pub(crate) fn until_listening(port: u16, mut has_ended: impl FnMut() -> bool) -> bool {
    for _ in 0..3_000 {
        if TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok() {
            return true;
        }
        if has_ended() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A program on the PATH, or where Debian keeps what only administrators run.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The end of a log, for people.
pub(crate) fn end_of(log: &Path) -> String {
    const LENGTH: u64 = 2_000;
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LENGTH)))?;
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        Ok(String::from_utf8_lossy(&end).into_owned())
    };
    read().unwrap_or_default()
}
