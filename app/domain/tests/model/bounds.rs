//! How large a world the model explores, and which ones.

/// Lengths of time in the model are whole units of one second.
pub(crate) type Units = u8;

/// The terms on which every client of a world asks for leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Units,
    pub(crate) min_hold: Units,
    pub(crate) max_hold: Option<Units>,
    pub(crate) lock_delay: Units,
    /// How long an acquire that waits may wait.
    pub(crate) wait: Units,
}

/// What bounds a world. Unless `ticks` says otherwise time is not bounded: states that differ only in the date are the
/// same state, so the search ends when nothing new can happen at all. What is bounded is how often the world may
/// misbehave, and by that how many requests are astray at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) name: &'static str,
    /// How many keys there are; with two, clients also take both at once.
    pub(crate) keys: usize,
    pub(crate) terms: Terms,
    /// Whether clients wait.
    pub(crate) waiting: bool,
    /// Whether holders also shorten their leases.
    pub(crate) shortening: bool,
    /// Requests delayed, lost or delivered twice, answers lost, connections cut, clients crashed, servers restarted: how
    /// many in all.
    pub(crate) faults: u8,
    /// How many breaks, transfers and quarantines in all (each quarantine can be lifted).
    pub(crate) operations: u8,
    /// Grace of the breaks.
    pub(crate) graces: &'static [Units],
    /// How many outages in all, each one of [`OUTAGES`].
    pub(crate) outages: u8,
    /// How often time passes in all, if that is bounded.
    pub(crate) ticks: Option<u8>,
}

/// Outages: how old the last sign of life is when the server goes away, and for how long it is away. All are longer than
/// two seconds, the longest longer than every ttl and wait.
pub(crate) const OUTAGES: [(Units, Units); 3] = [(0, 3), (1, 3), (1, 5)];
/// The most an outage gives: less than the ttl, so that both the ttl of a shortened lease and the rule can be the limit.
pub(crate) const OUTAGE_GRACE: Units = 1;
/// The ttl of a renewal that shortens.
pub(crate) const SHORT_TTL: Units = 1;

const PLAIN: Terms = Terms { ttl: 2, min_hold: 0, max_hold: None, lock_delay: 0, wait: 2 };
const LIMITED: Terms = Terms { min_hold: 1, max_hold: Some(3), lock_delay: 1, ..PLAIN };

/// One key, three clients who take, renew, give back and wait for it: all that can happen when nothing goes wrong.
const CALM: Bounds = Bounds {
    name: "calm",
    keys: 1,
    terms: PLAIN,
    waiting: true,
    shortening: false,
    faults: 0,
    operations: 0,
    graces: &[0, 1, 2],
    outages: 0,
    ticks: None,
};

/// The worlds that every run explores, each to its end.
pub(crate) const WORLDS: [Bounds; 8] = [
    CALM,
    Bounds { name: "one fault", faults: 1, shortening: true, ..CALM },
    Bounds { name: "two faults, nobody waits", faults: 2, waiting: false, ..CALM },
    Bounds { name: "limits and a fault", faults: 1, terms: LIMITED, ..CALM },
    Bounds { name: "limits and operators", operations: 3, terms: LIMITED, ..CALM },
    Bounds { name: "limits, outages and an operator", operations: 1, outages: 2, terms: LIMITED, ..CALM },
    Bounds { name: "two keys", keys: 2, ticks: Some(3), ..CALM },
    Bounds {
        name: "two keys, a fault and an operator, nobody waits",
        keys: 2,
        faults: 1,
        operations: 1,
        waiting: false,
        ticks: Some(3),
        graces: &[0, 1],
        ..CALM
    },
];

/// Larger worlds, explored as well if `JOB_LEASES_MODEL=deep`: ten minutes and some gigabytes.
const DEEP: [Bounds; 3] = [
    Bounds { name: "two faults", faults: 2, ..CALM },
    Bounds { name: "one of everything", faults: 1, operations: 1, outages: 1, terms: LIMITED, ..CALM },
    Bounds { name: "two keys, more time", keys: 2, ticks: Some(5), ..CALM },
];

/// The worlds to explore in this run.
pub(crate) fn worlds() -> Vec<Bounds> {
    let mut worlds = WORLDS.to_vec();
    if std::env::var("JOB_LEASES_MODEL").is_ok_and(|value| value == "deep") {
        worlds.extend(DEEP);
    }
    worlds
}

/// The world of that name.
pub(crate) fn world(name: &str) -> Bounds {
    *WORLDS.iter().find(|world| world.name == name).unwrap()
}
