//! The connection that keeps the console live.
//!
//! One event stream for all pages, opened anew by rules of its own rather than the browser's, which differ from browser
//! to browser. What arrives is passed on at once, but no more than ten times a second, so that a busy server costs little
//! more redrawing than a calm one. The counters are asked for besides, since refusals are counted and not told one by one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use domain::Timestamp;
use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::wasm_bindgen::JsCast;
use leptos::wasm_bindgen::closure::Closure;
use web_sys::{Event, EventSource, MessageEvent};

use super::clock::ServerClock;
use super::line::Line;
use super::link::{Errand, Watch};
use super::{Live, News};
use crate::api::counters::{self, Counters};
use crate::api::{ApiError, live as api};

/// How often the server's time is told and the connection is looked after.
const BEAT: Duration = Duration::from_millis(250);
/// The shortest time between two pieces of news.
const REST_MS: f64 = 100.0;
/// How soon the counters are asked for after lines have arrived, and how often while none do.
const SOON_MS: f64 = 1_000.0;
const IDLE_MS: f64 = 2_000.0;
/// More lines than this at once are not worth following one by one.
const TOO_MANY: usize = 5_000;

/// Connects, and stays connected as long as the document lives.
pub fn start(live: Live) {
    let stream = Stream(Rc::new(RefCell::new(State {
        live,
        clock: ServerClock::default(),
        watch: Watch::default(),
        pending: Vec::new(),
        told_ms: 0.0,
        source: None,
        opened: false,
        last_id: None,
        unsure: true,
        asking: false,
        asked_ms: 0.0,
        changed: false,
    })));
    stream.connect();
    set_interval(move || stream.beat(), BEAT);
}

/// Milliseconds of the browser's monotonic clock.
fn monotonic_ms() -> f64 {
    window().performance().map_or(0.0, |performance| performance.now())
}

/// The second an instant lies in: all that counts moves at once, and no more than once a second.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.as_micros() / 1_000_000 * 1_000_000)
}

#[derive(Clone)]
struct Stream(Rc<RefCell<State>>);

struct State {
    live: Live,
    clock: ServerClock,
    watch: Watch,
    /// Lines to be passed on; once there are any, a timer for it is set.
    pending: Vec<Line>,
    told_ms: f64,
    source: Option<Source>,
    /// Whether the present source has been open.
    opened: bool,
    /// The id of the last line, to resume after.
    last_id: Option<String>,
    /// Whether lines may have been missed since what is shown was read.
    unsure: bool,
    asking: bool,
    asked_ms: f64,
    /// Whether lines arrived since the counters were asked for.
    changed: bool,
}

/// An open event stream with its handlers; closed when dropped.
struct Source {
    source: EventSource,
    _on_open: Closure<dyn FnMut(Event)>,
    _on_message: Closure<dyn FnMut(MessageEvent)>,
    _on_error: Closure<dyn FnMut(Event)>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.source.set_onopen(None);
        self.source.set_onmessage(None);
        self.source.set_onerror(None);
        self.source.close();
    }
}

impl Stream {
    /// Opens the stream, after the last line that arrived if there was one.
    fn connect(&self) {
        let url = match &self.0.borrow().last_id {
            Some(id) => format!("{}?last_event_id={id}", api::PATH),
            None => api::PATH.to_owned(),
        };
        let Ok(source) = EventSource::new(&url) else {
            self.0.borrow_mut().watch.lost(monotonic_ms());
            return;
        };
        let handler = self.clone();
        let on_open = Closure::<dyn FnMut(Event)>::new(move |_| handler.on_open());
        let handler = self.clone();
        let on_message = Closure::<dyn FnMut(MessageEvent)>::new(move |event| handler.on_message(&event));
        let handler = self.clone();
        let on_error = Closure::<dyn FnMut(Event)>::new(move |_| handler.on_error());
        source.set_onopen(Some(on_open.as_ref().unchecked_ref()));
        source.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        source.set_onerror(Some(on_error.as_ref().unchecked_ref()));
        let mut state = self.0.borrow_mut();
        state.opened = false;
        state.source = Some(Source { source, _on_open: on_open, _on_message: on_message, _on_error: on_error });
    }

    fn on_open(&self) {
        let now_ms = monotonic_ms();
        {
            let mut state = self.0.borrow_mut();
            state.opened = true;
            state.unsure |= state.last_id.is_none();
            let at = state.clock.now(now_ms);
            state.watch.opened(now_ms, at);
        }
        self.ask();
    }

    fn on_message(&self, event: &MessageEvent) {
        let now_ms = monotonic_ms();
        let Some(line) = event.data().as_string().and_then(|data| Line::parse(&data)) else { return };
        let mut state = self.0.borrow_mut();
        state.clock.at_least(line.at, now_ms);
        let at = state.clock.now(now_ms);
        state.watch.heard(now_ms, at);
        state.last_id = Some(event.last_event_id());
        state.changed = true;
        state.pending.push(line);
        if state.pending.len() == 1 {
            let wait_ms = (state.told_ms + REST_MS - now_ms).clamp(0.0, REST_MS);
            let stream = self.clone();
            set_timeout(move || stream.pass_on(), Duration::from_secs_f64(wait_ms / 1_000.0));
        }
    }

    /// Tells what has arrived.
    fn pass_on(&self) {
        let (live, lines) = {
            let mut state = self.0.borrow_mut();
            state.told_ms = monotonic_ms();
            (state.live, std::mem::take(&mut state.pending))
        };
        live.tell(if lines.len() > TOO_MANY { News::Gap } else { News::Lines(&lines) });
    }

    /// The browser would try again by itself, or not, as it likes. Whether the session is over it cannot tell: the
    /// counters can.
    fn on_error(&self) {
        let failed_at_once = {
            let mut state = self.0.borrow_mut();
            let failed_at_once = !state.opened;
            if failed_at_once {
                // Perhaps the server no longer has what would follow the last line.
                state.last_id = None;
                state.unsure = true;
            }
            state.watch.lost(monotonic_ms());
            failed_at_once
        };
        // Dropping the source drops this very handler, so not from within it.
        let stream = self.clone();
        queue_microtask(move || {
            stream.0.borrow_mut().source = None;
            if failed_at_once {
                stream.ask();
            }
        });
    }

    /// What happens a few times a second.
    fn beat(&self) {
        let now_ms = monotonic_ms();
        let (live, errand, now, link, due) = {
            let mut state = self.0.borrow_mut();
            let errand = state.watch.tick(now_ms);
            let link = state.watch.link();
            let now = if link.is_fresh() { state.clock.now(now_ms).map(whole_second) } else { None };
            let rest_ms = if state.changed { SOON_MS } else { IDLE_MS };
            let due = link.is_fresh() && now_ms - state.asked_ms >= rest_ms && !document().hidden();
            (state.live, errand, now, link, due)
        };
        if live.link.get_untracked() != link {
            live.link.set(link);
        }
        if live.now.get_untracked() != now {
            live.now.set(now);
        }
        match errand {
            Errand::Connect => self.connect(),
            Errand::Probe => self.ask(),
            Errand::Wait if due => self.ask(),
            Errand::Wait => {}
        }
    }

    /// Asks for the counters, unless an answer is under way: they tell the server's time, how far the timeline is, and
    /// whether the session still holds.
    fn ask(&self) {
        {
            let mut state = self.0.borrow_mut();
            if state.asking {
                return;
            }
            state.asking = true;
            state.asked_ms = monotonic_ms();
            state.changed = false;
        }
        let stream = self.clone();
        spawn_local(async move {
            let answer = counters::get(counters::GetRequest {}).await;
            stream.0.borrow_mut().asking = false;
            match answer {
                Ok(counters) => stream.learn(counters),
                Err(error) => stream.failed(&error),
            }
        });
    }

    fn learn(&self, counters: Counters) {
        let now_ms = monotonic_ms();
        let (live, gap) = {
            let mut state = self.0.borrow_mut();
            state.clock.learn(counters.server_time, now_ms);
            state.watch.heard(now_ms, Some(counters.server_time));
            // Only an open stream brings what follows, so only then the doubt can be settled.
            let settled = state.unsure && state.opened;
            state.unsure &= !settled;
            (state.live, settled && counters.as_of.position > state.live.position.get_value())
        };
        live.counters.set(Some(counters));
        if gap {
            live.tell(News::Gap);
        }
    }

    fn failed(&self, error: &ApiError) {
        let mut state = self.0.borrow_mut();
        match error.code.as_ref() {
            "unauthenticated" => {
                state.watch.signed_out();
                state.source = None;
            }
            "unreachable" if state.opened && state.source.is_some() => {
                state.watch.lost(monotonic_ms());
                state.source = None;
            }
            // Busy or stopping: the stream itself will tell.
            _ => {}
        }
    }
}
