//! What is done to the server while its clients work.

use std::net::SocketAddr;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::time::sleep;

use super::Mono;
use super::clients::World;
use crate::process::{Place, ServerProcess};

/// An hour, in seconds.
const HOUR: i64 = 3_600;

/// The one who mistreats the server.
pub(super) struct Faults<'w> {
    pub(super) place: &'w Place,
    pub(super) world: &'w World,
    pub(super) chance: StdRng,
    pub(super) address: watch::Sender<Option<SocketAddr>>,
    pub(super) starts: Vec<Mono>,
    pub(super) away: Vec<(Mono, Mono)>,
    /// What was done, for people.
    pub(super) told: Vec<String>,
    /// How often it was killed with requests under way.
    pub(super) kills: usize,
}

impl Faults<'_> {
    pub(super) async fn start(&mut self) -> Result<ServerProcess, String> {
        self.starts.push(self.world.now());
        let server = self.place.try_start().await?;
        self.address.send_replace(Some(server.address));
        Ok(server)
    }

    /// Kills it; whoever comes now finds nobody.
    pub(super) async fn kill(&mut self, server: ServerProcess) {
        self.address.send_replace(None);
        server.kill().await;
    }

    fn tell(&mut self, what: &str) {
        self.told.push(format!("{:9} us: {what}", self.world.now()));
    }

    async fn wait(&mut self, least: u64, most: u64) {
        let millis = self.chance.random_range(least..most);
        sleep(Duration::from_millis(millis)).await;
    }

    /// Moves the wall clock by an hour, to and fro.
    fn move_wall_clock(&mut self, round: usize) {
        let seconds = [HOUR, 0, -HOUR, HOUR, -HOUR][round % 5];
        self.place.move_wall_clock(seconds);
        self.tell(&format!("wall clock {seconds:+} s"));
    }

    /// Rounds of work and mischief, each with a kill; the server that is there in the end, or why there is none.
    pub(super) async fn rounds(&mut self, rounds: usize) -> Result<ServerProcess, String> {
        let mut server = self.start().await?;
        for round in 0..rounds {
            self.wait(600, 1_500).await;
            if round % 2 == 0 {
                self.move_wall_clock(round / 2);
                self.wait(200, 500).await;
            }
            // Shorter than most leases last, or longer than all, and than the 2 s that make an outage.
            let is_paused = round % 4 == 1;
            let mut gone = None;
            if is_paused {
                let (least, most) = if round % 8 == 1 { (2_300, 3_200) } else { (200, 1_200) };
                server.pause();
                gone = Some(self.world.now());
                self.tell("paused");
                self.wait(least, most).await;
            }
            // Every other time it goes on, else it dies in its sleep.
            if is_paused && round % 3 != 0 {
                self.away.extend(gone.take().map(|gone| (gone, self.world.now())));
                server.go_on();
                self.tell("goes on");
                self.wait(300, 800).await;
            }
            while self.world.in_flight() == 0 {
                sleep(Duration::from_millis(1)).await;
            }
            self.kills += 1;
            self.kill(server).await;
            let gone = gone.unwrap_or_else(|| self.world.now());
            self.tell("killed");
            if round % 3 == 1 {
                // It starts under another wall clock than it died under.
                self.move_wall_clock(round);
            }
            if round % 5 == 2 {
                self.wait(2_100, 2_900).await;
            } else {
                self.wait(0, 150).await;
            }
            self.away.push((gone, self.world.now()));
            server = self.start().await?;
            self.tell("started");
        }
        Ok(server)
    }
}
