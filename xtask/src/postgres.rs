//! A PostgreSQL server for the tests: fresh, on a port of its own, and gone with all its files when they have ended, however
//! they end. One that runs already is left alone.
//!
//! The benchmark starts its own, with other settings and as a process that it measures: what both have in common is shorter than
//! a crate for it would be, on which this one would have to wait.

use std::{
    env,
    fs::{self, File},
    io::Read,
    net::{Ipv4Addr, TcpListener},
    os::unix::{fs::chown, process::CommandExt},
    path::Path,
    process::{self, Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::tools;

/// Tells the tests where the server is.
pub(crate) const VARIABLE: &str = "JOB_LEASES_TEST_POSTGRES";

/// Makes the server and keeps it until its own standard input ends. That is held by this process and nobody else, so it ends
/// whatever ends this process; a signal sent from parent to child does not outlive a change of user.
const KEEPER: &str = r#"
folder=$1 programs=$2 port=$3
trap 'rm -rf "$folder"' EXIT
exec 3<&0 </dev/null
"$programs/initdb" --pgdata=data --username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync || exit
"$programs/postgres" -D data -h 127.0.0.1 -p "$port" -k '' -c max_connections=400 3<&- &
server=$!
{ read -r end <&3; kill -QUIT "$server"; } &
wait "$server"
kill "$!" 2>/dev/null
"#;

/// How often to look whether it is ready, and for how long not to look in between.
const LOOKS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// A server that is there until this is dropped.
pub(crate) struct Server {
    keeper: Child,
    port: u16,
}

impl Server {
    /// Starts one and waits until it is ready.
    pub(crate) fn start() -> Result<Self> {
        let programs = tools::postgres().context("PostgreSQL's programs were found at the start")?;
        let user = if rustix::process::getuid().is_root() { Some(account("postgres")?) } else { None };
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let folder = env::temp_dir().join(format!("job-leases-postgres-{}", process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;

        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).args([&folder, &programs]).arg(port.to_string());
        // Away from the group of processes that an interrupt from the keyboard reaches: it has to clear up.
        command.current_dir(&folder).process_group(0);
        if let Some((user, group)) = user {
            chown(&folder, Some(user), Some(group))?;
            command.uid(user).gid(group);
        }
        let log = folder.join("log");
        let said = File::options().create_new(true).append(true).open(&log)?;
        let log = File::open(&log)?;
        command.stdin(Stdio::piped()).stdout(said.try_clone()?).stderr(said);
        let mut server = Self { keeper: command.spawn().context("cannot run sh")?, port };
        server.until_ready(log)?;
        Ok(server)
    }

    /// Where it is, for its superuser.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn until_ready(&mut self, mut log: File) -> Result<()> {
        let mut said = String::new();
        for _ in 0..LOOKS {
            let has_ended = self.keeper.try_wait()?.is_some();
            log.read_to_string(&mut said)?;
            if said.contains("ready to accept connections") {
                return Ok(());
            }
            if has_ended {
                break;
            }
            thread::sleep(PAUSE);
        }
        bail!("PostgreSQL did not start:\n{said}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // That it cannot be waited for is no reason to fail.
        let _ = self.keeper.wait();
    }
}

/// The numbers of a user of this machine: PostgreSQL refuses to run as root, and its package brings this user.
fn account(name: &str) -> Result<(u32, u32)> {
    let users = fs::read_to_string(Path::new("/etc/passwd"))?;
    let number = |fields: &[&str], index: usize| fields.get(index).and_then(|field| field.parse().ok());
    let numbers = users.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        if fields[0] == name { number(&fields, 2).zip(number(&fields, 3)) } else { None }
    });
    numbers.with_context(|| format!("there is no user {name}, as whom PostgreSQL could run: it refuses to run as root"))
}
