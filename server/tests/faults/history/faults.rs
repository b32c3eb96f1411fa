//! What is done to servers while their clients work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::clients::Client;
use super::ground::{Ground, Slow};
use super::hangups::hang_up_at_every_step;
use super::plan::{Fault, Step};
use super::world::{Here, Nodes, World};
use super::{Call, History, Jump, Life, Mono, Stream};
use crate::process::ServerProcess;

/// Within so long after a fault everybody is served again.
const RECOVERY: Duration = Duration::from_secs(30);

/// The number of the client that looks whether everybody is served.
const PROBE: usize = 1_000;

/// The one who mistreats the servers of a database: one on a file, nodes on a shared one.
pub(super) struct Faults {
    pub(super) ground: Ground,
    pub(super) world: Arc<World>,
    pub(super) seed: u64,
    nodes: Vec<Node>,
    addresses: watch::Sender<Nodes>,
    /// All processes that were started.
    pub(super) lives: Vec<Life>,
    /// From when to when all nodes surely did nothing.
    pub(super) away: Vec<(Mono, Mono)>,
    /// From when to when something stood between nodes and their database.
    pub(super) hindered: Vec<(Mono, Mono)>,
    /// When the database's clock went ahead.
    pub(super) jumps: Vec<Jump>,
    /// From when to when the database's clock was behind.
    pub(super) behind: Vec<(Mono, Mono)>,
    /// What was done, for people.
    pub(super) told: Vec<String>,
    /// How often each kind of fault was felt.
    pub(super) felt: BTreeMap<&'static str, u64>,
}

/// A node from start to start.
#[derive(Default)]
struct Node {
    server: Option<ServerProcess>,
    /// The number of its process.
    process: usize,
    /// Since when it surely does nothing.
    gone: Option<Mono>,
}

impl Faults {
    pub(super) fn new(ground: Ground, world: &Arc<World>, seed: u64, addresses: watch::Sender<Nodes>) -> Self {
        let nodes = ground.places().iter().map(|_| Node::default()).collect();
        Self {
            ground,
            world: Arc::clone(world),
            seed,
            nodes,
            addresses,
            lives: Vec::new(),
            away: Vec::new(),
            hindered: Vec::new(),
            jumps: Vec::new(),
            behind: Vec::new(),
            told: Vec::new(),
            felt: BTreeMap::new(),
        }
    }

    /// What was recorded, with the timeline as it stands.
    pub(super) async fn history(&self, world: &World, streams: Vec<Stream>, is_settled: bool) -> History {
        History {
            database: self.ground.database(),
            operations: world.take_record(),
            lines: self.ground.timeline().await,
            streams,
            lives: self.lives.clone(),
            away: self.away.clone(),
            hindered: self.hindered.clone(),
            jumps: self.jumps.clone(),
            behind: self.behind.clone(),
            is_settled,
        }
    }

    /// Carries out the plan; why somebody is not served in the end, if so.
    pub(super) async fn befall(&mut self, plan: &[Step]) -> Result<(), String> {
        for Step { after, fault } in plan {
            wait(*after).await;
            self.tell(format!("{fault:?}"));
            self.carry_out(fault).await?;
        }
        wait(500).await;
        self.until_served().await
    }

    async fn carry_out(&mut self, fault: &Fault) -> Result<(), String> {
        match fault {
            Fault::Kill { nodes, away, wall_clock } => {
                self.kill_at_work(nodes).await;
                if let Some(seconds) = wall_clock {
                    self.move_wall_clock(nodes[0], *seconds);
                }
                wait(*away).await;
                self.start(nodes).await
            }
            Fault::KillAsleep { node, asleep, away } => {
                self.pause(&[*node]);
                wait(*asleep).await;
                self.kill_at_work(&[*node]).await;
                wait(*away).await;
                self.start(&[*node]).await
            }
            Fault::KillBesideSleeper { sleeper, killed, asleep, away, still } => {
                self.pause(&[*sleeper]);
                wait(*asleep).await;
                self.kill_at_work(&[*killed]).await;
                wait(*away).await;
                self.start(&[*killed]).await?;
                wait(*still).await;
                self.go_on(*sleeper);
                Ok(())
            }
            Fault::RestartLoop { node, deaths } => self.restart_loop(*node, deaths).await,
            Fault::Pause { nodes, time, apart } => {
                self.pause(nodes);
                wait(*time).await;
                for &node in nodes {
                    self.go_on(node);
                    wait(*apart).await;
                }
                Ok(())
            }
            Fault::Mislead { node, seconds } => {
                self.move_wall_clock(*node, *seconds);
                Ok(())
            }
            Fault::HangUps { callers } => {
                let hung_up = hang_up_at_every_step(&self.world, self.seed, *callers).await;
                self.feel("callers who hung up at some step", hung_up);
                self.until_served().await
            }
            Fault::FillDisk { time } => self.fill_disk(*time).await,
            Fault::FlushSlowly { delay, time } => self.flush_slowly(*delay, *time).await,
            Fault::Cut { .. }
            | Fault::KillPooler { .. }
            | Fault::Freeze { .. }
            | Fault::ClockForth { .. }
            | Fault::ClockBack { .. } => self.trouble_database(fault).await,
        }
    }

    /// What befalls a database that is shared.
    async fn trouble_database(&mut self, fault: &Fault) -> Result<(), String> {
        let began = self.world.now();
        let Ground::Shared(shared) = &mut self.ground else { return Err(format!("{fault:?} on a file")) };
        match fault {
            Fault::Cut { pauses } => {
                let mut cut = 0;
                for pause in pauses {
                    wait(*pause).await;
                    cut += shared.database.cut(false).await;
                }
                cut += shared.database.cut(true).await;
                self.feel("connections cut", cut.unsigned_abs());
            }
            Fault::KillPooler { away } => {
                shared.pooler.kill();
                wait(*away).await;
                shared.pooler.go_on();
                self.feel("poolers killed", 1);
            }
            Fault::Freeze { time } => {
                let frozen = shared.cluster.freeze();
                wait(*time).await;
                self.feel("processes of the database frozen", frozen.count() as u64);
            }
            Fault::ClockForth { by } => {
                let by = i64::try_from(*by).unwrap_or(0) * 1_000;
                shared.database.take_clock().await;
                let from = self.world.now();
                shared.database.move_clock(by).await;
                self.jumps.push(Jump { from, to: self.world.now(), by });
                self.feel("jumps ahead of the database's clock", 1);
            }
            Fault::ClockBack { by, time, killed } => {
                let by = i64::try_from(*by).unwrap_or(0) * 1_000;
                shared.database.take_clock().await;
                let from = self.world.now();
                shared.database.move_clock(-by).await;
                wait(*time / 2).await;
                if let Some(node) = killed {
                    self.kill_at_work(&[*node]).await;
                    self.start(&[*node]).await?;
                }
                wait(*time / 2).await;
                if let Ground::Shared(shared) = &mut self.ground {
                    shared.database.move_clock(by).await;
                }
                self.behind.push((from, self.world.now()));
                self.feel("jumps back of the database's clock", 1);
            }
            other => return Err(format!("{other:?} is nothing that befalls a database")),
        }
        self.until_served().await?;
        self.hindered.push((began, self.world.now()));
        Ok(())
    }

    async fn restart_loop(&mut self, node: usize, deaths: &[u64]) -> Result<(), String> {
        if self.nodes[node].server.is_some() {
            self.kill_at_work(&[node]).await;
        }
        for death in deaths {
            self.note_back(node);
            let started = self.world.now();
            let has_listened = self.ground.places()[node].start_and_kill(Duration::from_millis(*death)).await;
            // If it listened, nobody was told where.
            let gone = vec![(self.world.now(), Mono::MAX)];
            self.nodes[node].process = self.lives.len();
            self.nodes[node].gone = Some(self.world.now());
            self.lives.push(Life { started, up: self.world.now(), gone });
            self.feel("processes killed while they started", u64::from(!has_listened));
        }
        self.start(&[node]).await
    }

    /// Takes all room from the database until that is felt, and for a while longer; then it must come back by itself, or
    /// with a new start of the database's own server.
    async fn fill_disk(&mut self, time: u64) -> Result<(), String> {
        let began = self.world.now();
        let mut felt_at = None;
        let start = Instant::now();
        let mut writer = Client::new(PROBE, self.seed, Arc::clone(&self.world));
        while felt_at.is_none_or(|felt: Instant| felt.elapsed() < Duration::from_millis(time)) {
            // Again and again, since what is not needed any more is given back all the time.
            self.ground.disk().fill();
            // And what is kept for later is used up.
            if felt_at.is_none() {
                let node = self.nodes.len() - 1;
                writer.ask_at(node, Call::AcquireMany, much()).await;
            }
            wait(10).await;
            if felt_at.is_none() && self.world.refused_since(began) > 0 {
                felt_at = Some(Instant::now());
            }
            if felt_at.is_none() && start.elapsed() > RECOVERY {
                return Err("nobody felt that the disk is full".to_owned());
            }
        }
        self.feel("answers that there is no room", self.world.refused_since(began));
        self.ground.disk().make_room();
        if let Ground::Shared(shared) = &mut self.ground {
            let had_ended = shared.cluster.until_ready().await?;
            let crashes = shared.cluster.crashes();
            self.felt.insert("crashes of the database", crashes);
            self.tell(format!("room again; {crashes} crashes of the database; it had ended: {had_ended}"));
        }
        self.until_served().await?;
        self.hindered.push((began, self.world.now()));
        Ok(())
    }

    async fn flush_slowly(&mut self, delay: u64, time: u64) -> Result<(), String> {
        let began = self.world.now();
        match &self.ground {
            Ground::File { place: [place], .. } => {
                let Some(server) = &self.nodes[0].server else { return Err("nobody flushes".to_owned()) };
                let slow = Slow::down(server, place, Duration::from_millis(delay));
                wait(time).await;
                let flushes = slow.up().await;
                self.feel("slow flushes", flushes);
            }
            Ground::Replicated { .. } => return Err("no plan slows two servers down".to_owned()),
            Ground::Shared(shared) => {
                let problem = |error| format!("the database does not flush as it is told: {error}");
                shared.database.take_clock().await;
                shared.cluster.flush_slowly(true).await.map_err(problem)?;
                let end = Instant::now() + Duration::from_millis(time);
                let mut slow = 0;
                while Instant::now() < end {
                    let took = shared.database.commit_time().await.map_err(problem)?;
                    slow += u64::from(took > Duration::from_millis(50));
                }
                shared.cluster.flush_slowly(false).await.map_err(problem)?;
                self.feel("slow flushes", slow);
            }
        }
        self.until_served().await?;
        self.hindered.push((began, self.world.now()));
        Ok(())
    }

    /// Waits until every node that should is serving writes.
    async fn until_served(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            let mut client = Client::new(PROBE, self.seed, Arc::clone(&self.world));
            let request = json!({"lease_key": format!("probe/{node}"), "owner": "probe", "ttl_ms": 100});
            let served = async {
                // It may be refused since it is held, as long as it is not because nothing can be written.
                while client
                    .ask_at(node, Call::Acquire, request.clone())
                    .await
                    .is_none_or(|answer| answer.status >= 500)
                {
                    wait(20).await;
                }
            };
            if timeout(RECOVERY, served).await.is_err() {
                return Err(format!("node {node} does not serve, {RECOVERY:?} after all was well again"));
            }
        }
        Ok(())
    }

    /// Starts these nodes, all at once.
    pub(super) async fn start(&mut self, nodes: &[usize]) -> Result<(), String> {
        for &node in nodes {
            self.note_back(node);
        }
        let started = self.world.now();
        let places = self.ground.places();
        let servers = join_all(nodes.iter().map(|&node| places[node].try_start())).await;
        for (&node, server) in nodes.iter().zip(servers) {
            let (server, process) = (server?, self.lives.len());
            self.lives.push(Life { started, up: self.world.now(), gone: Vec::new() });
            let here = Here { process, address: server.address };
            self.nodes[node].process = process;
            self.nodes[node].server = Some(server);
            self.addresses.send_modify(|addresses| addresses[node] = Some(here));
            self.tell(format!("{node} started"));
        }
        Ok(())
    }

    /// Kills these nodes, all at once, in the middle of their work; whoever comes to them now finds nobody.
    async fn kill_at_work(&mut self, nodes: &[usize]) {
        while nodes.iter().all(|&node| self.world.in_flight(self.nodes[node].process) == 0) {
            wait(1).await;
        }
        self.feel("processes killed at work", nodes.len() as u64);
        self.kill(nodes).await;
    }

    async fn kill(&mut self, nodes: &[usize]) {
        for &node in nodes {
            self.addresses.send_modify(|addresses| addresses[node] = None);
        }
        let servers: Vec<ServerProcess> = nodes.iter().filter_map(|&node| self.nodes[node].server.take()).collect();
        join_all(servers.into_iter().map(ServerProcess::kill)).await;
        for &node in nodes {
            self.note_gone(node);
            self.tell(format!("{node} killed"));
        }
    }

    /// Kills all that are left.
    pub(super) async fn kill_all(&mut self) {
        let nodes: Vec<usize> = (0..self.nodes.len()).collect();
        self.kill(&nodes).await;
    }

    /// Stops these nodes in the middle of whatever they do.
    fn pause(&mut self, nodes: &[usize]) {
        for &node in nodes {
            if let Some(server) = &self.nodes[node].server {
                server.pause();
            }
        }
        for &node in nodes {
            self.note_gone(node);
            self.tell(format!("{node} paused"));
        }
        self.feel("processes paused", nodes.len() as u64);
    }

    /// Lets one go on.
    fn go_on(&mut self, node: usize) {
        self.note_back(node);
        let (now, process) = (self.world.now(), self.nodes[node].process);
        if let Some((_, until)) = self.lives[process].gone.last_mut() {
            *until = now;
        }
        if let Some(server) = &self.nodes[node].server {
            server.go_on();
        }
        self.tell(format!("{node} goes on"));
    }

    /// From now on it surely does nothing: for good, unless it goes on.
    fn note_gone(&mut self, node: usize) {
        let now = self.world.now();
        let node = &mut self.nodes[node];
        if node.gone.is_none() {
            node.gone = Some(now);
            self.lives[node.process].gone.push((now, Mono::MAX));
        }
    }

    /// From now on it may do something again. If none did until now, the service was away.
    fn note_back(&mut self, node: usize) {
        let now = self.world.now();
        let gone: Option<Vec<Mono>> = self.nodes.iter().map(|node| node.gone).collect();
        if let Some(since) = gone.and_then(|gone| gone.into_iter().max()) {
            self.away.push((since, now));
        }
        self.nodes[node].gone = None;
    }

    /// Moves a node's wall clock to so many seconds from the true one.
    fn move_wall_clock(&mut self, node: usize, seconds: i64) {
        self.ground.places()[node].move_wall_clock(seconds);
        self.feel("wall clocks moved", 1);
        self.tell(format!("{node}: wall clock {seconds:+} s"));
    }

    pub(super) fn tell(&mut self, what: String) {
        self.told.push(format!("{:9} us: {what}", self.world.now()));
    }

    pub(super) fn feel(&mut self, what: &'static str, times: u64) {
        *self.felt.entry(what).or_default() += times;
    }
}

/// Many leases, each with as much about it as may be: some hundred kilobytes to write.
fn much() -> Value {
    let metadata = json!({"ballast": "x".repeat(3_900)});
    let lease = |n: usize| json!({"lease_key": format!("ballast/{n}"), "ttl_ms": 100, "metadata": metadata});
    json!({"owner": "ballast", "leases": (0..60).map(lease).collect::<Vec<_>>()})
}

async fn wait(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}
