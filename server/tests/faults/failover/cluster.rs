//! Two PostgreSQL servers under Patroni and etcd, and HAProxy before them, each on a machine of its own as far as the network
//! goes; set up by the very files that users are given as an example.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::time::{sleep, timeout};

use crate::postgres::Postgres;
use crate::process::{PATIENCE, faketime};

/// The example's files.
const ETCD: &str = include_str!("../../../../end2end/failover/etcd.yaml");
const PATRONI: &str = include_str!("../../../../end2end/failover/patroni.yaml");
const HAPROXY: &str = include_str!("../../../../end2end/failover/haproxy.cfg");

/// What is done on the machines, within the namespaces.
const MACHINES: &str = include_str!("machines.sh");

/// Makes the namespaces, and removes the folder when all in them has ended, unless it is to be kept. Not in the group of the test's
/// processes, so that it does so however the test ends.
const OUTSIDE: &str = r#"
folder=$1 user=$(id -u)
if [ "$user" = 0 ]; then own=; else own="--user --map-root-user"; fi
unshare $own --mount --net --pid --fork --kill-child --mount-proc sh -c "$2" machines "$1" "$3" "$4" "$5" "$user" \
    2>>"$folder/machines.log"
[ -e "$folder/keep" ] || rm -rf "$folder"
"#;

/// The machines of databases, of which the first two have one, and those of nodes; with their addresses.
const MACHINE: [(&str, &str); 5] =
    [("db1", "10.0.0.11"), ("db2", "10.0.0.12"), ("db3", "10.0.0.13"), ("node1", "10.0.0.21"), ("node2", "10.0.0.22")];

/// The programs that are needed, and the Debian packages that bring them.
const PROGRAMS: [(&str, &str); 8] = [
    ("patroni", "patroni"),
    ("etcd", "etcd-server"),
    ("haproxy", "haproxy"),
    ("ip", "iproute2"),
    ("initdb", "postgresql"),
    ("pg_rewind", "postgresql"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
];

/// The clock of PostgreSQL on db2 is behind that of db1 by this, in milliseconds.
pub(crate) const BEHIND: i64 = 500;

/// By Patroni's file.
const SUPERUSER: (&str, &str) = ("postgres", "the superuser's");
/// Of the nodes; made by the test, as the README says.
const MAKE_USER: &str = "CREATE ROLE job_leases LOGIN PASSWORD 'the nodes'' own'";
const MAKE_DATABASE: &str = "CREATE DATABASE job_leases OWNER job_leases";
const USER: (&str, &str) = ("job_leases", "the nodes' own");

/// Who leads, and how many replicas a commit waits for that follow it closely.
const STATE: &str = "SELECT host(inet_server_addr()), (SELECT count(*) FROM pg_stat_replication \
     WHERE sync_state = 'sync' AND state = 'streaming'), NOT pg_is_in_recovery()";
const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// All of them. Ends with all its processes and files when it is dropped, or when the test ends in any other way.
pub(crate) struct Cluster {
    folder: PathBuf,
    keeper: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// What the one that HAProxy leads to says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) primary: &'static str,
    /// It can write: it is the primary indeed.
    leads: bool,
    /// A replica follows it, for which commits wait.
    is_followed: bool,
    /// By how much its clock is off from this machine's, in microseconds.
    pub(crate) off: i64,
}

impl Cluster {
    /// Starts all machines, and waits until the replica follows.
    pub(crate) async fn start() -> Self {
        let programs = programs();
        let folder = tempfile::tempdir().unwrap().keep();
        lay_out(&folder, &programs);
        let skew = format!("-{}.{:03}s", BEHIND / 1_000, BEHIND % 1_000);
        let mut command = Command::new("sh");
        command.args(["-c", OUTSIDE, "outside"]).arg(&folder).arg(MACHINES).args([&programs, &faketime()]).arg(skew);
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn().expect("sh is everywhere");
        let (orders, answers) = (keeper.stdin.take(), BufReader::new(keeper.stdout.take().unwrap()));
        let mut cluster = Self { folder, keeper, orders, answers };
        assert!(
            cluster.hear(),
            "this test makes namespaces of the network, which takes root, or a kernel that lets everybody make them: {}",
            cluster.log("machines.log")
        );
        for (machine, _) in MACHINE {
            cluster.order("start", machine);
        }
        cluster.until_in_step().await;
        for sql in [MAKE_USER, MAKE_DATABASE] {
            let mut admin = cluster.superuser().connect().await.unwrap();
            sqlx::raw_sql(sql).execute(&mut admin).await.unwrap();
            admin.close().await.unwrap();
        }
        cluster
    }

    /// Does something to a machine: see `machines.sh`.
    pub(crate) fn order(&mut self, what: &str, machine: &str) {
        assert!(self.ask(what, machine), "{what} {machine}: {}", self.log("machines.log"));
    }

    fn ask(&mut self, what: &str, machine: &str) -> bool {
        let orders = self.orders.as_mut().expect("until it is dropped");
        writeln!(orders, "{what} {machine}").unwrap();
        self.hear()
    }

    /// Whether it was done.
    fn hear(&mut self) -> bool {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer == "done\n"
    }

    /// What a node is told to serve, by the HAProxy of its machine: 0 or 1.
    pub(crate) fn url(&self, node: usize) -> String {
        self.way(node, USER).database("job_leases").to_url_lossy().to_string()
    }

    /// The database of the nodes.
    pub(crate) fn database(&self) -> Postgres {
        Postgres::of(self.way(0, USER), "job_leases")
    }

    fn way(&self, node: usize, (user, password): (&str, &str)) -> PgConnectOptions {
        // The socket is where the file says 127.0.0.1:5432, so that nodes and clients need not live in the namespaces.
        let machine = MACHINE[3 + node].0;
        PgConnectOptions::new_without_pgpass().username(user).password(password).socket(self.folder.join(machine))
    }

    fn superuser(&self) -> PgConnectOptions {
        self.way(0, SUPERUSER).database("postgres")
    }

    /// A connection to the primary, for the superuser.
    pub(crate) async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let superuser = self.superuser();
        timeout(Duration::from_secs(2), superuser.connect()).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// What the primary says, if there is one.
    async fn state(&self) -> Result<State, sqlx::Error> {
        let mut admin = self.connect().await?;
        let asked = sqlx::query_as(STATE).fetch_one(&mut admin);
        let asked = timeout(Duration::from_secs(2), asked).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        let (address, followers, leads): (String, i64, bool) = asked?;
        let primary = MACHINE.into_iter().find(|(_, other)| *other == address).map_or("unknown", |(name, _)| name);
        // The quickest answer tells best: a busy machine can take longer for one than the clocks are apart.
        let mut best = (i64::MAX, 0);
        for _ in 0..10 {
            let sent = here();
            let clock: i64 = sqlx::query_scalar(CLOCK).fetch_one(&mut admin).await?;
            let took = here() - sent;
            best = best.min((took, clock - sent - took / 2));
        }
        Ok(State { primary, leads, is_followed: followers > 0, off: best.1 })
    }

    /// Waits until there is a primary: each HAProxy notices by itself.
    pub(crate) async fn until_led(&mut self) -> State {
        self.until(|_, state| state.leads).await
    }

    /// Waits until there is a primary and a replica for which it waits, and which could take over.
    pub(crate) async fn until_in_step(&mut self) -> State {
        let is_heir = |cluster: &mut Self, state: &State| cluster.ask("is-heir", other_than(state.primary));
        self.until(|cluster, state| state.leads && state.is_followed && is_heir(cluster, state)).await
    }

    async fn until(&mut self, is_so: impl Fn(&mut Self, &State) -> bool) -> State {
        let began = Instant::now();
        loop {
            match self.state().await {
                Ok(state) if is_so(self, &state) => return state,
                _ if began.elapsed() < PATIENCE => sleep(Duration::from_millis(100)).await,
                other => panic!("no primary, or none that is followed: {other:?}\n{}", self.keep()),
            }
        }
    }

    fn log(&self, name: &str) -> String {
        let text = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("{name}:\n{}\n", lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    fn logs(&self) -> String {
        ["machines.log", "db1/log", "db2/log", "db3/log", "node1/log"].map(|name| self.log(name)).concat()
    }

    /// Keeps the files, for whoever looks into a failure; where they are.
    pub(crate) fn keep(&self) -> String {
        fs::write(self.folder.join("keep"), "").unwrap();
        format!("machines: {}\n{}", self.folder.display(), self.logs())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.orders.take());
        // The test's own outcome counts.
        let _ = self.keeper.wait();
    }
}

/// The other one of the two that have a database.
pub(crate) fn other_than(machine: &str) -> &'static str {
    if machine == MACHINE[0].0 { MACHINE[1].0 } else { MACHINE[0].0 }
}

/// The folder of PostgreSQL's programs; or what is missing.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<_> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by(|one, other| other.cmp(one));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let folders: Vec<PathBuf> =
        versions.into_iter().map(|(_, folder)| folder).chain(std::env::split_paths(&path)).chain(own).collect();
    let find = |name: &str| folders.iter().find(|folder| folder.join(name).is_file());
    let missing: Vec<&str> =
        PROGRAMS.iter().filter(|(name, _)| find(name).is_none()).map(|(_, package)| *package).collect();
    assert!(missing.is_empty(), "this test needs more programs: apt install {}", missing.join(" "));
    find("initdb").unwrap().clone()
}

/// Each machine's folder with the example's files, filled in as the README says.
fn lay_out(folder: &Path, programs: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711)).unwrap();
    for (machine, address) in MACHINE {
        let own = folder.join(machine);
        fs::create_dir(&own).unwrap();
        // Where the clock is off, PostgreSQL is started by a script beside links to the other programs.
        let programs = if machine == "db2" { own.join("programs") } else { programs.to_owned() };
        let fill_in = |text: &str| {
            text.replace("SUPERUSER_PASSWORD", SUPERUSER.1)
                .replace("REPLICATION_PASSWORD", "the replica's")
                .replace("REWIND_PASSWORD", "the rewinder's")
                .replace("PROGRAMS", &programs.display().to_string())
                .replace("LISTEN", &format!("unix@{}/.s.PGSQL.5432 mode 777", own.display()))
                .replace("DATA", &own.display().to_string())
                .replace("NAME", machine)
                .replace("ADDRESS", address)
        };
        let files: &[(&str, &str)] = match machine {
            "db1" | "db2" => &[("etcd.yaml", ETCD), ("patroni.yaml", PATRONI)],
            "db3" => &[("etcd.yaml", ETCD)],
            _ => &[("haproxy.cfg", HAPROXY)],
        };
        for (name, text) in files {
            fs::write(own.join(name), fill_in(text)).unwrap();
        }
    }
}

/// This machine's clock, in microseconds.
fn here() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(0)
}
