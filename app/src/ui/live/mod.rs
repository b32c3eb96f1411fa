//! From the event stream to signals.
//!
//! `clock` tells the server's time, `line` reads one event, `rows` keeps a table of leases true to the events, `link`
//! judges the connection, and `stream` holds it. Only the last needs a browser.

pub mod clock;
pub mod line;
pub mod link;
pub mod rows;
#[cfg(feature = "hydrate")]
pub mod stream;

use std::sync::Arc;

use domain::Timestamp;
use leptos::prelude::*;

use self::line::Line;
use self::link::Link;
use crate::api::counters::Counters;

/// What reaches those who listen.
#[derive(Clone, Copy)]
pub enum News<'a> {
    /// Lines of the timeline, in order, none left out since the last.
    Lines(&'a [Line]),
    /// Lines may have been missed: what is shown must be read anew.
    Gap,
}

type Listener = Arc<dyn Fn(News<'_>) + Send + Sync>;

/// What a page may know of the present. One for the whole document.
#[derive(Clone, Copy)]
pub struct Live {
    now: RwSignal<Option<Timestamp>>,
    link: RwSignal<Link>,
    counters: RwSignal<Option<Counters>>,
    position: StoredValue<u64>,
    listeners: StoredValue<Vec<(u64, Listener)>>,
    next_listener: StoredValue<u64>,
}

#[cfg(feature = "hydrate")]
thread_local! {
    static LIVE: std::cell::OnceCell<Live> = const { std::cell::OnceCell::new() };
}

/// Begins to follow what happens. Called once, before any island is taken over.
#[cfg(feature = "hydrate")]
pub fn start() {
    // It lives as long as the document does.
    let owner = Owner::new();
    let live = owner.with(Live::new);
    std::mem::forget(owner);
    // It is set once: this is called once.
    let _ = LIVE.with(|cell| cell.set(live));
    stream::start(live);
}

impl Live {
    fn new() -> Self {
        Self {
            now: RwSignal::new(None),
            link: RwSignal::new(Link::default()),
            counters: RwSignal::new(None),
            position: StoredValue::new(0),
            listeners: StoredValue::new(Vec::new()),
            next_listener: StoredValue::new(0),
        }
    }

    /// The one of this document. While the server renders, nothing is known of the present.
    #[must_use]
    pub fn current() -> Self {
        #[cfg(feature = "hydrate")]
        if let Some(live) = LIVE.with(|cell| cell.get().copied()) {
            return live;
        }
        Self::new()
    }

    /// The server's time in whole seconds, rounded down; `None` until it is known, and again while the page is stale.
    #[must_use]
    pub fn now(&self) -> Signal<Option<Timestamp>> {
        self.now.into()
    }

    /// How fresh the page is.
    #[must_use]
    pub fn link(&self) -> Signal<Link> {
        self.link.into()
    }

    /// The counters as last read in the browser; `None` until then.
    #[must_use]
    pub fn counters(&self) -> Signal<Option<Counters>> {
        self.counters.into()
    }

    /// What is shown includes all lines up to this position.
    pub fn has_read(&self, position: u64) {
        self.position.set_value(position);
    }

    /// Calls `listener` with all news until the current owner is cleaned up.
    pub fn listen(&self, listener: impl Fn(News<'_>) + Send + Sync + 'static) {
        let (listeners, id) = (self.listeners, self.next_listener.get_value());
        self.next_listener.set_value(id + 1);
        listeners.update_value(|all| all.push((id, Arc::new(listener))));
        on_cleanup(move || {
            listeners.try_update_value(|all| all.retain(|(other, _)| *other != id));
        });
    }

    /// Passes news on. The listeners are copied first: one of them may end another.
    #[cfg(feature = "hydrate")]
    fn tell(&self, news: News<'_>) {
        for (_, listener) in self.listeners.get_value() {
            listener(news);
        }
    }
}
