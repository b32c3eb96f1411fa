//! System calls as `strace -f -y` writes them, and what they tell of the order of writing, flushing and answering.

use std::collections::HashMap;
use std::path::Path;

/// The system calls of a process, in the order in which they began.
pub(super) struct Trace(Vec<Call>);

/// One system call.
struct Call {
    name: String,
    /// What is between the parentheses.
    arguments: String,
    /// What it returned; none if it never did.
    result: Option<i64>,
    /// The lines at which it began and was over.
    began: usize,
    over: usize,
}

impl Trace {
    /// Reads what strace wrote. Calls of several threads overlap: such a call begins in one line and resumes in another.
    pub(super) fn read(text: &str) -> Self {
        let mut calls = Vec::new();
        let mut unfinished: HashMap<&str, (usize, &str)> = HashMap::new();
        for (line, text) in text.lines().enumerate() {
            let Some((thread, text)) = text.split_once(' ') else { continue };
            let text = text.trim_start();
            if let Some(begun) = text.strip_suffix(" <unfinished ...>") {
                unfinished.insert(thread, (line, begun));
            } else if let Some(resumed) = text.strip_prefix("<... ") {
                let Some((began, begun)) = unfinished.remove(thread) else { continue };
                let rest = resumed.split_once(" resumed>").map_or("", |(_, rest)| rest);
                calls.extend(Call::parse(&format!("{begun}{rest}"), began, line));
            } else {
                calls.extend(Call::parse(text, line, line));
            }
        }
        calls.sort_by_key(|call| call.began);
        Self(calls)
    }

    /// Whether the change with that mark was written to the write-ahead log `log`, and the log flushed after that, before
    /// the first byte of its answer was written; else what is missing.
    pub(super) fn flushed_first(&self, log: &Path, mark: &str) -> Result<(), &'static str> {
        let file = format!("<{}>", log.display());
        let of_log = |call: &&Call| call.arguments.split_once(',').unwrap_or((&call.arguments, "")).0.ends_with(&file);
        let answer = self
            .0
            .iter()
            .find(|call| call.arguments.contains("HTTP/1.1 200") && call.arguments.contains(mark) && !of_log(call));
        let answer = answer.ok_or("it was never answered")?;
        let mut writes = self.0.iter().filter(of_log).filter(|call| call.name.contains("write"));
        let written = writes.find(|call| call.arguments.contains(mark)).ok_or("it was never written")?;
        let mut flushes = self.0.iter().filter(of_log).filter(|call| call.name.contains("sync"));
        let is_flushed =
            flushes.any(|call| call.result == Some(0) && call.began > written.over && call.over < answer.began);
        if is_flushed { Ok(()) } else { Err("its answer began before it was flushed") }
    }
}

impl Call {
    fn parse(text: &str, began: usize, over: usize) -> Option<Self> {
        let (name, rest) = text.split_once('(')?;
        let (arguments, result) = rest.rsplit_once(") ").or_else(|| rest.rsplit_once(')'))?;
        let result = result.trim_start().strip_prefix("= ").and_then(|result| result.split(' ').next()?.parse().ok());
        Some(Self { name: name.to_owned(), arguments: arguments.to_owned(), result, began, over })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flushed(text: &str) -> Result<(), &'static str> {
        Trace::read(text).flushed_first(Path::new("/d/l.db-wal"), "change-1")
    }

    const WRITE: &str = "7 pwrite64(9</d/l.db-wal>, \"..change-1..\", 4096, 24) = 4096\n";
    const FLUSH: &str = "7 fdatasync(9</d/l.db-wal>)     = 0\n";
    const ANSWER: &str =
        "8 sendto(5<socket:[1]>, \"HTTP/1.1 200 OK\\r\\nx-request-id: change-1\", 9, 0, NULL, 0) = 9\n";

    #[test]
    fn a_flush_counts_after_the_write_and_before_the_answer() {
        assert_eq!(flushed(&[WRITE, FLUSH, ANSWER].concat()), Ok(()));
        for order in [[FLUSH, WRITE, ANSWER], [WRITE, ANSWER, FLUSH]] {
            assert!(flushed(&order.concat()).is_err());
        }
        assert_eq!(flushed(&[WRITE, FLUSH].concat()), Err("it was never answered"));
        assert_eq!(flushed(&[FLUSH, ANSWER].concat()), Err("it was never written"));
    }

    #[test]
    fn a_flush_counts_once_it_has_returned_and_without_an_error() {
        let begun = "7 fdatasync(9</d/l.db-wal> <unfinished ...>\n";
        let resumed = "7 <... fdatasync resumed>)        = 0\n";
        assert_eq!(flushed(&[WRITE, begun, resumed, ANSWER].concat()), Ok(()));
        assert!(flushed(&[WRITE, begun, ANSWER, resumed].concat()).is_err());
        assert!(
            flushed(&[WRITE, "7 fdatasync(9</d/l.db-wal>) = -1 EIO (Input/output error)\n", ANSWER].concat()).is_err()
        );
    }

    #[test]
    fn another_file_does_not_count() {
        for other in ["/d/l.db-views-wal", "/d/l.db"] {
            assert!(flushed(&[WRITE, &FLUSH.replace("/d/l.db-wal", other), ANSWER].concat()).is_err());
            assert!(flushed(&[&WRITE.replace("/d/l.db-wal", other), FLUSH, ANSWER].concat()).is_err());
        }
    }
}
