//! Which entries answer to what is typed, the best first.
//!
//! Every word must be in an entry: at the beginning of one of its words, inside one, or at least letter by letter in order. What begins
//! so comes before what only holds it. Ten thousand entries are ranked between one key press and the next picture: what cannot answer is
//! told by the letters that it has at all, before it is read.

/// A text, made ready to be looked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Searched {
    /// In lower case.
    text: String,
    has: Letters,
}

impl Searched {
    /// Makes a text ready.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let text = text.to_lowercase();
        Self { has: Letters::of(&text), text }
    }

    /// How well a query answers to it, the more the better; `None` if it does not.
    fn score(&self, query: &Query, of: fn(&str, &str) -> Option<i32>) -> Option<i32> {
        let score = query.words.iter().try_fold(0, |score, word| Some(score + of(&self.text, word)?))?;
        // Of two that answer alike, the shorter one is more of what was typed.
        Some(score * 8 - i32::try_from(self.text.len().min(72)).unwrap_or(0))
    }
}

/// What is typed, made ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    words: Vec<String>,
    needs: Letters,
}

impl Query {
    /// Makes it ready.
    #[must_use]
    pub fn new(typed: &str) -> Self {
        let words: Vec<String> = typed.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let needs = words.iter().fold(Letters::default(), |all, word| all.and(Letters::of(word)));
        Self { words, needs }
    }
}

/// Which letters a text has, and which pairs of them side by side: what lacks one of a word's cannot hold it. A bit for each of some sorts,
/// so that one that has them all may still lack it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Letters {
    single: u64,
    pairs: u128,
}

impl Letters {
    fn of(text: &str) -> Self {
        let mut letters = Self::default();
        let mut last = None;
        for letter in text.chars().map(u32::from) {
            letters.single |= 1 << (letter % 64);
            if let Some(last) = last.replace(letter) {
                letters.pairs |= 1 << (last.wrapping_mul(37).wrapping_add(letter) % 128);
            }
        }
        letters
    }

    const fn and(self, other: Self) -> Self {
        Self { single: self.single | other.single, pairs: self.pairs | other.pairs }
    }

    const fn has_letters_of(self, other: Self) -> bool {
        other.single & !self.single == 0
    }

    const fn has_pairs_of(self, other: Self) -> bool {
        other.pairs & !self.pairs == 0
    }
}

/// The places of the entries that answer, the best first and at most `most`; of those that answer alike, the first first.
/// Letter by letter is only looked for if too few hold the words as they are.
#[must_use]
pub fn rank<'t>(query: &Query, texts: impl Iterator<Item = (&'t Searched, i32)> + Clone, most: usize) -> Vec<usize> {
    let fit = |text: &Searched| text.has.has_letters_of(query.needs);
    let as_it_is = |(place, (text, bonus)): (usize, (&Searched, i32))| {
        let may = fit(text) && text.has.has_pairs_of(query.needs);
        Some((may.then(|| text.score(query, held))?? + bonus, place))
    };
    let mut found: Vec<(i32, usize)> = texts.clone().enumerate().filter_map(as_it_is).collect();
    if found.len() < most {
        let by_letters = |(place, (text, bonus)): (usize, (&Searched, i32))| {
            let either = |text: &str, word: &str| held(text, word).or_else(|| in_order(text, word));
            Some((fit(text).then(|| text.score(query, either))?? + bonus, place))
        };
        found = texts.enumerate().filter_map(by_letters).collect();
    }
    let better = |a: &(i32, usize), b: &(i32, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
    if found.len() > most && most > 0 {
        // What is not shown need not be sorted.
        found.select_nth_unstable_by(most - 1, better);
    }
    found.truncate(most);
    found.sort_unstable_by(better);
    found.into_iter().map(|(_, place)| place).collect()
}

/// How well a text holds a word.
fn held(text: &str, word: &str) -> Option<i32> {
    let mut best = None;
    let mut from = 0;
    while let Some(at) = text[from..].find(word).map(|at| at + from) {
        let before = text[..at].chars().next_back();
        if before.is_none() {
            return Some(100);
        }
        if before.is_some_and(|letter| !letter.is_alphanumeric()) {
            return Some(90);
        }
        best = Some(60);
        from = at + text[at..].chars().next().map_or(1, char::len_utf8);
    }
    best
}

/// How well the letters of a word are in a text in their order: the closer together the better.
fn in_order(text: &str, word: &str) -> Option<i32> {
    let mut letters = text.chars().enumerate();
    let (mut first, mut last) = (None, 0);
    for wanted in word.chars() {
        let (at, _) = letters.find(|(_, letter)| *letter == wanted)?;
        first.get_or_insert(at);
        last = at;
    }
    let spread = last - first.unwrap_or(0) + 1;
    let gaps = spread.saturating_sub(word.chars().count());
    // Letters that lie all over a text are there by chance.
    (gaps < word.chars().count()).then(|| 40 - i32::try_from(gaps.min(39)).unwrap_or(39))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked<'t>(typed: &str, texts: &[&'t str]) -> Vec<&'t str> {
        let ready: Vec<Searched> = texts.iter().map(|text| Searched::new(text)).collect();
        rank(&Query::new(typed), ready.iter().map(|text| (text, 0)), 10).into_iter().map(|place| texts[place]).collect()
    }

    #[test]
    fn what_begins_so_comes_before_what_holds_it_and_that_before_what_has_its_letters() {
        let texts =
            ["a deeper port", "report of today", "import/2026", "open port", "port", "unrelated", "pastoral rt"];
        let found = ranked("port", &texts);
        assert_eq!(found, ["port", "open port", "a deeper port", "import/2026", "report of today"]);
        assert_eq!(ranked("prt", &["report", "port", "pasteurized art"]), ["port", "report"]);
    }

    #[test]
    fn every_word_must_be_there_in_whatever_order_and_case() {
        let texts = ["Nightly/Report worker-1", "nightly/vacuum worker-2", "hourly/report worker-1"];
        assert_eq!(ranked("WORKER-1 night", &texts), ["Nightly/Report worker-1"]);
        assert_eq!(ranked("report", &texts), ["hourly/report worker-1", "Nightly/Report worker-1"]);
        assert_eq!(ranked("report absent", &texts), [""; 0]);
        assert_eq!(ranked("", &texts).len(), 3);
        assert_eq!(ranked("ünï", &["x ÜNÏCODE", "union"]), ["x ÜNÏCODE"]);
    }

    #[test]
    fn of_those_that_answer_alike_the_first_is_first_and_a_bonus_comes_on_top() {
        let texts = ["key/one", "key/two", "key/six"].map(Searched::new);
        let of = |bonus: [i32; 3], most| rank(&Query::new("key"), texts.iter().zip(bonus), most);
        assert_eq!(of([0, 0, 0], 10), [0, 1, 2]);
        assert_eq!(of([0, 0, 5], 10), [2, 0, 1]);
        assert_eq!(of([0, 0, 5], 2), [2, 0]);
        assert_eq!(of([0, 0, 5], 0), [0; 0]);
    }
}
