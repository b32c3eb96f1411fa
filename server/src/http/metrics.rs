//! `/metrics`: figures for Prometheus.

use std::fmt;
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::operations::OPERATIONS;

/// The media type of the exposition.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Measures how long something takes. Server time is not for this: it may run at a slightly other speed.
#[derive(Clone, Copy)]
pub(crate) struct Watch(Instant);

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "a length of time within one request, for figures only")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    pub(crate) fn seconds(self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    route: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

/// All figures.
pub(crate) struct Metrics {
    registry: Registry,
    answers: Family<Answer, Counter>,
    seconds: Family<Route, Histogram, fn() -> Histogram>,
    under_way: Gauge,
    streams: Gauge,
    stream_events: Counter,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// A request that is under way. Callers hang up at any time, and what serves them is then dropped.
pub(super) struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Half a millisecond to a minute, the longest wait.
fn request_times() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

impl Metrics {
    /// Registers them; `more` adds those of the engine.
    pub(crate) fn new(more: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry::with_prefix("job_leases");
        let answers = Family::default();
        registry.register("http_answers", "Answers by route and status", answers.clone());
        let seconds = Family::<Route, Histogram, fn() -> Histogram>::new_with_constructor(request_times);
        registry.register_with_unit("http_request", "Time until the answer", Unit::Seconds, seconds.clone());
        let under_way = Gauge::default();
        registry.register("http_requests_under_way", "Requests not answered yet, waiters included", under_way.clone());
        let streams = Gauge::default();
        registry.register("event_streams", "Open event streams", streams.clone());
        let stream_events = Counter::default();
        registry.register("event_stream_events", "Events sent on streams", stream_events.clone());
        more(&mut registry);
        Self { registry, answers, seconds, under_way, streams, stream_events }
    }

    /// A matched path as a label: few, known and `'static`.
    pub(super) fn route(&self, matched: &str) -> &'static str {
        match OPERATIONS.binary_search_by(|operation| operation.path.cmp(matched)) {
            Ok(index) => OPERATIONS[index].path,
            Err(_) => match matched {
                app::api::live::PATH => app::api::live::PATH,
                "/sign-in" => "/sign-in",
                "/sign-out" => "/sign-out",
                "/metrics" => "/metrics",
                "" => "none",
                path if path.starts_with("/pkg") => "/pkg",
                _ => "page",
            },
        }
    }

    /// A request has come; it is under way until the guard is dropped, answered or not.
    pub(super) fn begin(&self) -> UnderWay {
        self.under_way.inc();
        UnderWay(self.under_way.clone())
    }

    /// A request was answered.
    pub(super) fn answered(&self, route: &'static str, status: u16, seconds: f64) {
        self.answers.get_or_create(&Answer { route, status }).inc();
        self.seconds.get_or_create(&Route { route }).observe(seconds);
    }

    pub(super) fn stream_opened(&self) {
        self.streams.inc();
    }

    pub(super) fn stream_closed(&self) {
        self.streams.dec();
    }

    pub(super) fn stream_sent(&self, events: u64) {
        self.stream_events.inc_by(events);
    }

    /// The exposition.
    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
