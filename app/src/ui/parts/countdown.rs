//! How long a lease still has, or how long it has been over.

use domain::Timestamp;
use leptos::prelude::*;

use super::times::{ago, in_full, left, moment};

/// The bar's width when full, in the drawing's own units.
const FULL: i64 = 36;

/// What the countdown counts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// From when: the last grant or renewal.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// Whether it has ended, whatever `until` says.
    pub ended: bool,
}

impl Term {
    /// The text at `now`. Without a trustworthy `now` the instant itself is shown, relative to `read_at` (when the server
    /// gave it out).
    #[must_use]
    pub fn text(&self, now: Option<Timestamp>, read_at: Timestamp) -> String {
        match now {
            None => moment(self.until, read_at),
            Some(now) if !self.ended && now < self.until => left(self.until, now),
            Some(now) => ago(self.until, now),
        }
    }

    /// How much of the bar is filled at `now`, of [`FULL`]; nothing once it is over.
    #[must_use]
    pub fn fill(&self, now: Timestamp) -> i64 {
        if self.ended || now >= self.until {
            return 0;
        }
        let whole = self.until.since(self.from).as_micros().max(1);
        let rest = self.until.since(now).as_micros().min(whole);
        // At least one unit: a lease that is held never looks empty.
        (rest.saturating_mul(FULL) / whole).max(1)
    }

    /// Whether little is left at `now`: less than a fifth.
    #[must_use]
    pub fn is_low(&self, now: Timestamp) -> bool {
        self.fill(now) * 5 < FULL
    }
}

/// A bar and a text that count down to the end of a lease, on the server's time. The instant in full is in the title
/// and for machines in `datetime`.
#[component]
pub fn Countdown(
    /// What to count to.
    term: Memo<Term>,
    /// The server's time, once it is known.
    now: Signal<Option<Timestamp>>,
    /// When the server gave out what the page first showed.
    read_at: Timestamp,
) -> impl IntoView {
    let text = Memo::new(move |_| term.get().text(now.get(), read_at));
    let fill = Memo::new(move |_| now.get().map_or(0, |now| term.get().fill(now)));
    let low = Memo::new(move |_| now.get().is_some_and(|now| term.get().is_low(now)));
    let over = Memo::new(move |_| fill.get() == 0);
    view! {
        <time
            class="countdown"
            class:is-low=move || low.get() && !over.get()
            class:is-over=move || term.get().ended || (over.get() && now.get().is_some())
            datetime=move || term.get().until.to_string()
            title=move || in_full(term.get().until)
        >
            <svg viewBox="0 0 36 4" class="gauge" class:is-empty=over aria-hidden="true">
                <rect width="36" height="4" rx="2" class="track"></rect>
                <rect width=move || fill.get().to_string() height="4" rx="2" class="rest"></rect>
            </svg>
            <span class="text">{text}</span>
        </time>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_micros(1_783_111_200_000_000 + second * 1_000_000)
    }

    fn held(from: i64, until: i64) -> Term {
        Term { from: second(from), until: second(until), ended: false }
    }

    #[test]
    fn it_counts_down_and_then_away() {
        let term = held(0, 60);
        assert_eq!(term.text(Some(second(19)), second(0)), "41 s left");
        assert_eq!(term.text(Some(second(60)), second(0)), "0 s ago");
        assert_eq!(term.text(Some(second(90)), second(0)), "30 s ago");
        let released = Term { ended: true, ..held(0, 10) };
        assert_eq!(released.text(Some(second(9)), second(0)), "0 s ago");
    }

    #[test]
    fn without_a_time_to_trust_it_shows_the_instant() {
        assert_eq!(held(0, 60).text(None, second(0)), "20:41:00");
    }

    #[test]
    fn the_bar_shrinks_from_full_to_nothing() {
        let term = held(0, 36);
        assert_eq!(term.fill(second(0)), 36);
        assert_eq!(term.fill(second(18)), 18);
        assert_eq!(term.fill(Timestamp::from_micros(second(36).as_micros() - 1)), 1);
        assert_eq!(term.fill(second(36)), 0);
        // A clock a little behind does not overfill it.
        assert_eq!(term.fill(second(-3)), 36);
        assert!(!term.is_low(second(20)));
        assert!(term.is_low(second(30)));
        assert_eq!(Term { ended: true, ..term }.fill(second(0)), 0);
    }
}
