//! Random histories: what happens, with leases, waiters and tokens named by their place among those known so far.

use domain::lease::{Acquire, Rules};
use domain::{JobKey, LeaseKey, Metadata, Owner, Reason, Span, Subject};
use proptest::prelude::*;

/// How many keys there are.
pub(crate) const KEYS: usize = 3;

/// One step of a history; `pick` chooses among the known ones, the newest being the likeliest.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Pass(Span),
    Acquire {
        key: usize,
        request: Acquire,
        wait: Option<Span>,
    },
    AcquireMany {
        keys: Vec<usize>,
        request: Acquire,
    },
    Renew {
        pick: Pick,
        ttl: Option<Span>,
        shorten: bool,
    },
    Release {
        pick: Pick,
    },
    Transfer {
        pick: Pick,
        to: Owner,
    },
    Break {
        key: usize,
        grace: Span,
        named: Option<Pick>,
        reason: Reason,
    },
    Quarantine {
        key: usize,
        reason: Reason,
    },
    Lift {
        key: usize,
        reason: Reason,
    },
    Undelivered {
        pick: Pick,
    },
    Get {
        key: usize,
    },
    Validate {
        key: usize,
        pick: Pick,
        off: i8,
    },
    Settle {
        key: usize,
    },
    HangUp {
        pick: usize,
    },
    /// The last sign of life was so old when it began.
    Outage {
        mark_age: Span,
        length: Span,
    },
    Restart,
    Forget {
        pick: Pick,
    },
}

/// A lease, and the key it is looked for on: mostly its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    /// Counted from the newest.
    pub(crate) back: usize,
    /// On another key than its own.
    pub(crate) astray: bool,
}

/// The rules the histories live under: a short queue, so that it is sometimes full.
pub(crate) fn rules() -> Rules {
    Rules { waiters_per_key: 3, outage_grace: Span::millis(1_500), ..Rules::default() }
}

pub(crate) fn history() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS;
    prop_oneof![
        8 => span().prop_map(Step::Pass),
        6 => (key.clone(), request(), prop::option::of(span()))
            .prop_map(|(key, request, wait)| Step::Acquire { key, request, wait }),
        1 => (prop::sample::subsequence((0..KEYS).collect::<Vec<_>>(), 1..=KEYS), request())
            .prop_map(|(keys, request)| Step::AcquireMany { keys, request }),
        4 => (pick(), prop::option::of(ttl()), prop::bool::weighted(0.3))
            .prop_map(|(pick, ttl, shorten)| Step::Renew { pick, ttl, shorten }),
        3 => pick().prop_map(|pick| Step::Release { pick }),
        1 => (pick(), owner()).prop_map(|(pick, to)| Step::Transfer { pick, to }),
        2 => (key.clone(), grace(), prop::option::of(pick()), reason())
            .prop_map(|(key, grace, named, reason)| Step::Break { key, grace, named, reason }),
        1 => (key.clone(), reason()).prop_map(|(key, reason)| Step::Quarantine { key, reason }),
        1 => (key.clone(), reason()).prop_map(|(key, reason)| Step::Lift { key, reason }),
        1 => pick().prop_map(|pick| Step::Undelivered { pick }),
        1 => key.clone().prop_map(|key| Step::Get { key }),
        1 => (key.clone(), pick(), -1..=1_i8).prop_map(|(key, pick, off)| Step::Validate { key, pick, off }),
        1 => key.prop_map(|key| Step::Settle { key }),
        1 => (0..4_usize).prop_map(|pick| Step::HangUp { pick }),
        1 => (prop::sample::select(vec![0, 100, 999]), 2_001..9_000_u32).prop_map(|(age, length)| Step::Outage {
            mark_age: Span::millis(age),
            length: Span::millis(length),
        }),
        1 => Just(Step::Restart),
        1 => pick().prop_map(|pick| Step::Forget { pick }),
    ]
}

fn pick() -> impl Strategy<Value = Pick> {
    let back = prop_oneof![6 => Just(0), 3 => 1..3_usize, 1 => 3..9_usize];
    (back, prop::bool::weighted(0.05)).prop_map(|(back, astray)| Pick { back, astray })
}

/// Lengths that often end at the very same instant, and sometimes a microsecond apart.
fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(100_000),
        Just(500_000),
        Just(999_999),
        Just(1_000_000),
        Just(2_000_000),
        0..4_000_000_i64,
    ]
    .prop_map(Span::from_micros)
}

fn ttl() -> impl Strategy<Value = Span> {
    prop_oneof![Just(100), Just(500), Just(1_000), Just(2_000), 100..4_000_u32].prop_map(Span::millis)
}

fn grace() -> impl Strategy<Value = Span> {
    prop_oneof![Just(0), Just(500), Just(1_000), Just(2_000)].prop_map(Span::millis)
}

pub(crate) fn owner() -> impl Strategy<Value = Owner> {
    prop::sample::select(vec!["worker-1", "worker-2", "cron é"]).prop_map(|text| Owner::parse(text).unwrap())
}

pub(crate) fn reason() -> impl Strategy<Value = Reason> {
    prop::sample::select(vec!["stuck", "it burns"]).prop_map(|text| Reason::parse(text).unwrap())
}

pub(crate) fn request() -> impl Strategy<Value = Acquire> {
    let millis = |choices: Vec<u32>| prop::sample::select(choices).prop_map(Span::millis);
    let hold = prop_oneof![Just(500), Just(1_000), Just(3_000), 1..5_000_u32].prop_map(Span::millis);
    let job = prop::option::of(Just(JobKey::parse("nightly").unwrap()));
    (
        owner(),
        job,
        ttl(),
        millis(vec![0, 0, 1_000, 3_000]),
        prop::option::of(hold),
        millis(vec![0, 500, 2_000]),
        texts(),
    )
        .prop_map(|(owner, job_key, ttl, min_hold, max_hold, lock_delay, (subjects, metadata))| Acquire {
            owner,
            job_key,
            ttl,
            min_hold,
            max_hold,
            lock_delay,
            subjects: subjects.into(),
            metadata,
        })
}

fn texts() -> impl Strategy<Value = (Vec<Subject>, Metadata)> {
    let subjects = prop::sample::subsequence(vec!["customer:acme", "invoice:2041", "license:L-7"], 0..3)
        .prop_map(|texts| texts.into_iter().map(|text| Subject::parse(text).unwrap()).collect());
    let metadata = prop::sample::select(vec!["{}", r#"{"host":"a","pid":7,"load":[0.5,null]}"#]);
    (subjects, metadata.prop_map(|text| Metadata::parse(text).unwrap()))
}

pub(crate) fn key(index: usize) -> LeaseKey {
    LeaseKey::parse(["backup", "report/é", "deploy eu"][index]).unwrap()
}
