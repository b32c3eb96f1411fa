//! The lanes behind the door: on a database with one writer one, on a shared one several.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use domain::LeaseKey;
use domain::lease::{LeaseId, Rules};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::attending::Attending;
use super::desk::Desk;
use super::waiting::Timers;
use super::work::Work;
use super::writer::{Actors, Lane, Writer};
use crate::access::Directory;
use crate::clock::Clock;
use crate::error::Fault;
use crate::metrics::Metrics;
use crate::store::Store;

/// The most commands that may wait in a lane; more are refused at once.
const QUEUE: usize = 4_096;

/// How many lanes there are on a shared database, besides the one that waits for busy keys. One: a transaction costs about the same
/// for one command and for ten, so few that are full do more than many that are not. More would be used by keys.
pub(super) const ON_A_SHARED_DATABASE: usize = 1;

/// The callers' side.
#[derive(Clone)]
pub(super) struct Door(Arc<[Entrance]>);

struct Entrance {
    works: Sender<Work>,
    left: UnboundedSender<LeaseKey>,
}

impl Door {
    /// Puts a piece of work in its lane.
    pub(super) fn send(&self, work: Work) -> Result<(), Fault> {
        let entrance = match work.keys().next() {
            Some(key) => self.entrance(key),
            None => &self.0[0],
        };
        entrance.works.try_send(work).map_err(|error| match error {
            TrySendError::Full(_) => Fault::OVERLOADED,
            TrySendError::Closed(_) => Fault::Stopping,
        })
    }

    /// Where to say that somebody has left the queue of a key.
    pub(super) fn left(&self, key: &LeaseKey) -> &UnboundedSender<LeaseKey> {
        &self.entrance(key).left
    }

    /// Whether nothing is let in any more.
    pub(super) fn is_closed(&self) -> bool {
        self.0.iter().any(|entrance| entrance.works.is_closed())
    }

    fn entrance(&self, key: &LeaseKey) -> &Entrance {
        if let [only] = &*self.0 {
            return only;
        }
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        let index = hash % self.0.len() as u64;
        // Below the number of lanes.
        &self.0[usize::try_from(index).unwrap_or(0)]
    }
}

/// The lanes before they are started.
pub(super) struct Lanes {
    door: Door,
    exits: Vec<(Receiver<Work>, UnboundedReceiver<LeaseKey>)>,
    patient: Option<(Sender<Work>, Receiver<Work>)>,
}

/// What all lanes have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) rules: Rules,
    pub(super) metrics: Arc<Metrics>,
    pub(super) desk: Arc<Desk>,
    pub(super) attending: Arc<Attending>,
    pub(super) healthy: Arc<AtomicBool>,
    pub(super) stop: CancellationToken,
}

impl Lanes {
    /// So many, and one that waits for busy keys or not.
    pub(super) fn new(count: usize, patient: bool) -> Self {
        let mut entrances = Vec::with_capacity(count);
        let mut exits = Vec::with_capacity(count);
        for _ in 0..count {
            let (works, receiver) = mpsc::channel(QUEUE);
            // Needs no bound: there is at most one message for each waiter.
            let (left, left_receiver) = mpsc::unbounded_channel();
            entrances.push(Entrance { works, left });
            exits.push((receiver, left_receiver));
        }
        Self { door: Door(Arc::from(entrances)), exits, patient: patient.then(|| mpsc::channel(QUEUE)) }
    }

    pub(super) fn door(&self) -> Door {
        self.door.clone()
    }

    /// Starts a writer for each.
    pub(super) fn start<S: Store>(
        self,
        store: &Arc<S>,
        clock: &Arc<Clock>,
        directory: &Arc<Directory>,
        lost: UnboundedReceiver<(LeaseKey, LeaseId)>,
        common: Common,
    ) -> Vec<JoinHandle<()>> {
        let start = |works, left, lane| {
            let Common { rules, metrics, desk, attending, healthy, stop } = common.clone();
            let writer = Writer {
                store: Arc::clone(store),
                clock: Arc::clone(clock),
                directory: Arc::clone(directory),
                rules,
                metrics,
                works,
                left,
                lane,
                desk,
                attending,
                healthy,
                stop,
                timers: Timers::default(),
                actors: Actors::default(),
                later: std::collections::VecDeque::new(),
                put_off: Vec::new(),
                crowded: std::collections::HashSet::new(),
            };
            tokio::spawn(writer.run())
        };
        let (to_patient, patient) = self.patient.unzip();
        let mut lost = Some(lost);
        let mut writers = Vec::with_capacity(self.exits.len() + 1);
        for (works, left) in self.exits {
            let lane = match (lost.take(), &to_patient) {
                (Some(lost), patient) => Lane::First { lost, patient: patient.clone() },
                (None, Some(patient)) => Lane::Further { patient: patient.clone() },
                // More lanes than one are there only where keys can be busy.
                (None, None) => continue,
            };
            writers.push(start(works, left, lane));
        }
        if let Some(works) = patient {
            let (_, left) = mpsc::unbounded_channel();
            writers.push(start(works, left, Lane::Patient));
        }
        writers
    }
}
