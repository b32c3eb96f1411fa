//! What the engine counts and measures.

use std::sync::Arc;
use std::time::Instant;

use domain::Span;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// What a refusal was for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByCode {
    /// The code of the error.
    pub code: &'static str,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByCommand {
    /// The command's name.
    pub command: &'static str,
}

/// What came of deciding a batch by what a node wrote last.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByResult {
    /// `right`, or `stale` if another node had come between.
    pub result: &'static str,
}

/// What the engine counts and measures.
#[derive(Debug)]
pub struct Metrics {
    pub(crate) commands: Family<ByCommand, Counter>,
    pub(crate) refusals: Family<ByCode, Counter>,
    pub(crate) replays: Counter,
    pub(crate) undelivered: Counter,
    pub(crate) outages: Counter,
    pub(crate) batch_size: Histogram,
    pub(crate) remembered: Family<ByResult, Counter>,
    pub(crate) flush_seconds: Histogram,
    pub(crate) margin_seconds: Histogram,
    pub(crate) wait_seconds: Histogram,
    pub(crate) waiting: Gauge,
    pub(crate) backlog: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let powers =
            |from: f64, count: usize| (0..count).map(move |n| from * 2_f64.powi(i32::try_from(n).unwrap_or(0)));
        Self {
            commands: Family::default(),
            refusals: Family::default(),
            replays: Counter::default(),
            undelivered: Counter::default(),
            outages: Counter::default(),
            batch_size: Histogram::new(powers(1.0, 9)),
            remembered: Family::default(),
            flush_seconds: Histogram::new(powers(0.000_05, 16)),
            margin_seconds: Histogram::new(powers(0.05, 20)),
            wait_seconds: Histogram::new(powers(0.001, 17)),
            waiting: Gauge::default(),
            backlog: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Adds all of it to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("commands", "Commands decided", self.commands.clone());
        registry.register("refusals", "Commands refused, by the code of the error", self.refusals.clone());
        registry.register("idempotent_replays", "Requests answered from their first answer", self.replays.clone());
        registry.register("undelivered_grants", "Grants whose answer could not be delivered", self.undelivered.clone());
        registry.register("outages", "Times the service was away for more than two seconds", self.outages.clone());
        registry.register("batch_commands", "Commands decided together", self.batch_size.clone());
        registry.register(
            "remembered_batches",
            "Batches decided by what this node wrote last (PostgreSQL only), by what came of it",
            self.remembered.clone(),
        );
        registry.register_with_unit(
            "flush",
            "Time of a commit, flush included",
            Unit::Seconds,
            self.flush_seconds.clone(),
        );
        registry.register_with_unit(
            "renewal_margin",
            "Time that was left when a lease was renewed",
            Unit::Seconds,
            self.margin_seconds.clone(),
        );
        registry.register_with_unit(
            "wait",
            "Time that granted waiters had waited",
            Unit::Seconds,
            self.wait_seconds.clone(),
        );
        registry.register("waiting_callers", "Callers waiting for a key", self.waiting.clone());
        registry.register(
            "read_model_backlog",
            "Lines of the timeline not yet in the read models",
            self.backlog.clone(),
        );
    }

    /// Begins to measure a flush.
    pub(crate) fn flush(self: &Arc<Self>) -> Stopwatch {
        #[expect(clippy::disallowed_methods, reason = "a measurement; nothing is decided by it")]
        Stopwatch { metrics: Arc::clone(self), began: Instant::now() }
    }
}

/// A measurement under way.
pub(crate) struct Stopwatch {
    metrics: Arc<Metrics>,
    began: Instant,
}

impl Stopwatch {
    /// Ends it.
    pub(crate) fn observe(self) {
        self.metrics.flush_seconds.observe(self.began.elapsed().as_secs_f64());
    }
}

/// A length of time, for a histogram.
pub(crate) fn seconds(span: Span) -> f64 {
    // Below 2^53 microseconds, so nothing is lost.
    span.as_micros() as f64 / 1e6
}
