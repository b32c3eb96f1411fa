//! Two database servers, of which the primary is killed and cut off, so that the other takes over, and in the end follows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::Call;
use super::clients::Client;
use super::faults::Faults;
use super::ground::Ground;
use crate::failover::cluster::{BEHIND, Cluster};

/// What befalls the primary: what is ordered, and what undoes it.
type Fault = (&'static str, &'static str, &'static str);

const KILLED: Fault = ("killed, with all on its machine", "kill", "start");
/// Of which chance takes one.
const CUT_OFF: [Fault; 2] = [
    // Nodes can still talk to it, which cannot commit any more.
    ("cut off from the other machines of databases", "part", "join"),
    ("cut off from everybody", "cut", "mend"),
];

/// For longer than the pause lasts, and what an outage may add to a lease. In milliseconds.
const LONG: u64 = 20_000;

/// How often another server has taken over is counted under this name.
pub(super) const TAKEN_OVER: &str = "times that another server of the database took over";

/// The other server has taken over by then, or never will.
const GRANTED_WITHIN: Duration = Duration::from_secs(60);

impl Faults {
    /// Work, and what can befall the primary, so that each server takes over once; why that could not be, if so.
    pub(super) async fn befall_databases(&mut self) -> Result<(), String> {
        for node in [0, 1] {
            self.start(&[node]).await?;
        }
        let mut chance = StdRng::seed_from_u64(self.seed);
        let mut faults = [KILLED, CUT_OFF[chance.random_range(0..CUT_OFF.len())]];
        faults.shuffle(&mut chance);
        for (round, (told, fault, undo)) in faults.into_iter().enumerate() {
            let before = self.servers()?.until_in_step().await;
            wait(&mut chance, 2_000..3_000).await;
            let heir = self.inherit(self.seed.wrapping_add(round as u64), format!("long/{round}")).await;
            let began = self.world.now();
            self.servers()?.order(fault, before.primary);
            self.tell(format!("{} {told}", before.primary));
            let answered = self.until_granted(began).await?;
            let after = self.servers()?.until_led().await;
            let pause = (answered - began) / 1_000;
            println!("{} was {told}: after {pause} ms {} granted a lease", before.primary, after.primary);
            self.tell(format!("{} has taken over: pause {pause} ms", after.primary));
            if after.primary == before.primary {
                return Err(format!("{} was {told} and is the primary all the same", before.primary));
            }
            let apart = (after.off - before.off).abs() / 1_000;
            if (apart - BEHIND).abs() > BEHIND / 5 {
                return Err(format!("the servers' clocks are {apart} ms apart and not {BEHIND}"));
            }
            self.feel(TAKEN_OVER, 1);
            self.hindered.push((began, answered));
            wait(&mut chance, 500..1_500).await;
            let undone = self.world.now();
            self.servers()?.order(undo, before.primary);
            let now = self.servers()?.until_in_step().await;
            self.tell(format!("{} follows, {} leads", before.primary, now.primary));
            if now.primary != after.primary {
                // On a machine so busy that Patroni came too late: no fault of ours, and one more to be borne.
                self.hindered.push((undone, self.world.now()));
            }
            match timeout(GRANTED_WITHIN, heir).await {
                Ok(granted) => granted.map_err(|error| error.to_string())?,
                Err(_) => return Err("who waited for a long lease was never granted it".to_owned()),
            }
        }
        wait(&mut chance, 1_000..2_000).await;
        Ok(())
    }

    fn servers(&mut self) -> Result<&mut Cluster, String> {
        match &mut self.ground {
            Ground::Replicated { servers, .. } => Ok(servers),
            _ => Err("there is no other server that could take over".to_owned()),
        }
    }

    /// Somebody takes a lease that lasts for longer than the pause will, and another waits for its end.
    async fn inherit(&self, seed: u64, key: String) -> tokio::task::JoinHandle<()> {
        let number = 100 + usize::try_from(seed % 100).unwrap_or(0);
        let world = Arc::clone(&self.world);
        Client::new(number, seed, Arc::clone(&world))
            .insist(Call::Acquire, json!({"lease_key": key, "owner": "first", "ttl_ms": LONG}))
            .await;
        tokio::spawn(async move {
            let mut heir = Client::new(number + 1, seed, world);
            // Whoever waits while the database goes away is turned away.
            let request = json!({"lease_key": key, "owner": "heir", "ttl_ms": 1_000, "wait_ms": 2 * LONG});
            heir.insist(Call::Acquire, request).await;
        })
    }

    /// Waits until somebody who asked after this moment was granted something.
    async fn until_granted(&self, moment: i64) -> Result<i64, String> {
        let began = Instant::now();
        loop {
            if let Some(at) = self.world.first_grant_after(moment) {
                return Ok(at);
            }
            if began.elapsed() > GRANTED_WITHIN {
                return Err("nobody was granted anything any more".to_owned());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn wait(chance: &mut StdRng, millis: std::ops::Range<u64>) {
    sleep(Duration::from_millis(chance.random_range(millis))).await;
}
