//! What is done to servers while their clients work.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::time::sleep;

use super::world::{Here, Nodes, World};
use super::{Life, Mono};
use crate::process::{Place, ServerProcess};

/// An hour, in seconds.
const HOUR: i64 = 3_600;

/// The one who mistreats the servers of a database: one on a file, nodes on a shared one.
pub(super) struct Faults<'w> {
    pub(super) world: &'w Arc<World>,
    pub(super) chance: StdRng,
    nodes: Vec<Node<'w>>,
    addresses: watch::Sender<Nodes>,
    /// All processes that were started.
    pub(super) lives: Vec<Life>,
    /// From when to when all nodes surely did nothing.
    pub(super) away: Vec<(Mono, Mono)>,
    /// From when to when connections to the database were cut.
    pub(super) cut_off: Vec<(Mono, Mono)>,
    /// What was done, for people.
    pub(super) told: Vec<String>,
    /// How often a process was killed with requests under way.
    pub(super) kills: usize,
    /// How many connections to the database were cut.
    pub(super) cuts: i64,
    /// How often another server of the database has taken over.
    pub(super) pauses: usize,
}

/// A node from start to start.
struct Node<'w> {
    place: &'w Place,
    server: Option<ServerProcess>,
    /// The number of its process.
    process: usize,
    /// Since when it surely does nothing.
    gone: Option<Mono>,
}

impl<'w> Faults<'w> {
    pub(super) fn new(
        places: &'w [Place],
        world: &'w Arc<World>,
        chance: StdRng,
        addresses: watch::Sender<Nodes>,
    ) -> Self {
        let node = |place| Node { place, server: None, process: 0, gone: None };
        Self {
            world,
            chance,
            nodes: places.iter().map(node).collect(),
            addresses,
            lives: Vec::new(),
            away: Vec::new(),
            cut_off: Vec::new(),
            told: Vec::new(),
            kills: 0,
            cuts: 0,
            pauses: 0,
        }
    }

    /// Starts these nodes, all at once.
    pub(super) async fn start(&mut self, nodes: &[usize]) -> Result<(), String> {
        for &node in nodes {
            self.note_back(node);
        }
        let started = self.world.now();
        let servers = join_all(nodes.iter().map(|&node| self.nodes[node].place.try_start())).await;
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
    pub(super) async fn kill_at_work(&mut self, nodes: &[usize]) {
        while nodes.iter().all(|&node| self.world.in_flight(self.nodes[node].process) == 0) {
            sleep(Duration::from_millis(1)).await;
        }
        self.kills += nodes.len();
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
    pub(super) fn pause(&mut self, nodes: &[usize]) {
        for &node in nodes {
            if let Some(server) = &self.nodes[node].server {
                server.pause();
            }
        }
        for &node in nodes {
            self.note_gone(node);
            self.tell(format!("{node} paused"));
        }
    }

    /// Lets one go on.
    pub(super) fn go_on(&mut self, node: usize) {
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

    pub(super) fn tell(&mut self, what: String) {
        self.told.push(format!("{:9} us: {what}", self.world.now()));
    }

    pub(super) async fn wait(&mut self, least: u64, most: u64) {
        let millis = self.chance.random_range(least..most);
        sleep(Duration::from_millis(millis)).await;
    }

    /// Moves a node's wall clock by an hour, to and fro.
    pub(super) fn move_wall_clock(&mut self, node: usize, round: usize) {
        let seconds = [HOUR, 0, -HOUR, HOUR, -HOUR][round % 5];
        self.nodes[node].place.move_wall_clock(seconds);
        self.tell(format!("{node}: wall clock {seconds:+} s"));
    }
}
