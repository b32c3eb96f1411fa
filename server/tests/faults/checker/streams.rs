//! Event streams: what a follower received, over any number of connections, is the timeline from where it began.

use super::{Promise, Report};
use crate::history::History;

pub(super) fn check(history: &History, report: &mut Report) {
    for stream in &history.streams {
        let prefix = stream.prefix.as_deref();
        let is_shown = |body: &str| {
            let Some(prefix) = prefix else { return true };
            let event: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
            event["lease_key"].as_str().is_some_and(|key| key.starts_with(prefix))
        };
        let mut expected =
            history.lines.iter().filter(|line| line.position > stream.after && is_shown(&line.body)).peekable();
        for (position, body) in &stream.received {
            report.see("events received");
            let whole = format!("a stream {prefix:?} over {} connections", stream.connections);
            match expected.next() {
                Some(line) if line.position == *position && line.body == *body => {}
                Some(line) => {
                    let what = format!("{whole} has {position} {body} where {} stands", line.position);
                    report.violation(Promise::WholeStreams, what, &[], &[line.position]);
                    break;
                }
                None => {
                    let what = format!("{whole} goes on after the end of the timeline: {position} {body}");
                    report.violation(Promise::WholeStreams, what, &[], &[]);
                    break;
                }
            }
        }
    }
}
