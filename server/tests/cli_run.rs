//! `job-leases run` against a server that is away, slow, or takes the lease back.
#![expect(clippy::disallowed_methods, reason = "these tests measure real time")]

mod cli_support;

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use cli_support::{Fake, Mode, finish, now, until};
use rustix::process::{getpid, set_child_subreaper};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tempfile::TempDir;

/// A script that writes the time to `beats` about every 20 milliseconds, for as long as it may.
const BEATING: &str = "while :; do date +%s.%N >> \"$BEATS\"; sleep 0.02; done";

/// A place for what the command leaves behind.
struct Traces(TempDir);

impl Traces {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn beats(&self) -> Vec<f64> {
        self.read("beats").lines().filter_map(|line| line.parse().ok()).collect()
    }

    fn last_beat(&self) -> f64 {
        *self.beats().last().expect("the command has never begun")
    }

    /// Runs a script under the lease, with `$BEATS` and `$DIR` set.
    fn run(&self, fake: &Fake, options: &[&str], script: &str) -> Child {
        let arguments = [&["run", "--key", "nightly"], options, &["--", "sh", "-c", script]].concat();
        let mut command = fake.command(&arguments);
        command.env("BEATS", self.path("beats")).env("DIR", self.0.path()).spawn().unwrap()
    }

    /// The number of a process that the script has written to a file.
    fn process(&self, name: &str) -> u32 {
        until("the script has told its number", || self.read(name).ends_with('\n'));
        self.read(name).trim().parse().unwrap()
    }
}

fn send(signal: &str, process: u32) {
    assert!(Command::new("kill").arg(signal).arg(process.to_string()).status().unwrap().success());
}

/// Whether a process is there and not merely unburied.
fn is_running(process: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
}

#[test]
fn the_command_has_the_lease_in_its_environment_and_its_status_is_passed_on() {
    let fake = Fake::start();
    let script = "echo $JOB_LEASE_KEY $JOB_LEASE_ID $JOB_LEASE_FENCING_TOKEN; read line; echo \"<$line>\"; exit 7";
    let (code, out, err) = finish(fake.run(&[], script));
    assert_eq!(code, 7, "{err}");
    assert_eq!(out, "nightly ls_0000000001a 42\n<>\n");
    assert_eq!(fake.operations(), ["acquire", "release"]);
    let calls = fake.state().calls.clone();
    assert_eq!(calls[1].body["lease_id"], "ls_0000000001a");
    assert!(calls[0].body.get("wait_ms").is_none());
    assert!(calls[0].idempotency_key.is_some());
}

#[test]
fn what_a_shell_would_answer_is_answered_for_signals_and_for_commands_that_cannot_run() {
    let fake = Fake::start();
    assert_eq!(finish(fake.run(&[], "kill -KILL $$")).0, 137);
    assert_eq!(finish(fake.run(&[], "kill -TERM $$")).0, 143);
    let run = |command: &str| finish(fake.command(&["run", "--key", "k", "--", command]).spawn().unwrap());
    let (code, _, err) = run("/nowhere/to/be/found");
    assert_eq!(code, 127, "{err}");
    assert!(err.contains("/nowhere/to/be/found"), "{err}");
    assert_eq!(run("/etc/passwd").0, 126);
    assert_eq!(fake.count("release"), 4);
}

#[test]
fn a_key_that_is_held_is_told_by_73_and_nothing_is_run() {
    let fake = Fake::start();
    fake.state().taken = true;
    let (code, out, err) = finish(fake.run(&[], "echo ran"));
    assert_eq!((code, out.as_str()), (73, ""), "{err}");
    assert!(err.contains("somebody"), "who holds it is said: {err}");
    let (code, out, err) = finish(fake.run(&["--wait", "300ms"], "echo ran"));
    assert_eq!((code, out.as_str()), (73, ""), "{err}");
}

#[test]
fn wrong_arguments_are_told_by_64_and_a_server_that_is_away_by_69() {
    let fake = Fake::start();
    assert_eq!(finish(fake.command(&["run", "--", "true"]).spawn().unwrap()).0, 64);
    assert_eq!(finish(fake.command(&["run", "--key", " x", "--", "true"]).spawn().unwrap()).0, 64);
    assert_eq!(finish(fake.command(&["run", "--key", "x", "--ttl", "5", "--", "true"]).spawn().unwrap()).0, 64);
    assert_eq!(finish(fake.command(&["run", "--help"]).spawn().unwrap()).0, 0);
    fake.set_mode(Mode::Away);
    let (code, out, err) = finish(fake.run(&[], "echo ran"));
    assert_eq!((code, out.as_str()), (69, ""), "{err}");
}

#[test]
fn a_server_that_is_away_at_the_start_is_waited_for() {
    let fake = Fake::start();
    fake.set_mode(Mode::Away);
    let child = fake.run(&["--wait", "30s"], "echo ran");
    thread::sleep(Duration::from_millis(700));
    fake.set_mode(Mode::Here);
    let (code, out, err) = finish(child);
    assert_eq!((code, out.as_str()), (0, "ran\n"), "{err}");
    assert_eq!(err.matches("trying again").count(), 1, "{err}");
}

#[test]
fn a_wait_longer_than_a_request_can_is_made_of_several() {
    let fake = Fake::start();
    fake.state().taken = true;
    let child = fake.run(&["--wait", "5m"], "echo ran");
    until("it asks again", || fake.count("acquire") >= 3);
    fake.state().taken = false;
    let (code, out, err) = finish(child);
    assert_eq!((code, out.as_str()), (0, "ran\n"), "{err}");
    let calls = fake.state().calls.clone();
    let waits: Vec<_> = calls.iter().filter_map(|call| call.body["wait_ms"].as_u64()).collect();
    assert!(waits.iter().all(|wait| *wait == 60_000), "{waits:?}");
    let mut keys: Vec<_> = calls.iter().filter_map(|call| call.idempotency_key.clone()).collect();
    keys.dedup();
    assert_eq!(keys.len(), waits.len(), "each is a request of its own");
}

#[test]
fn an_answer_that_was_lost_is_asked_for_again_and_there_is_one_grant() {
    for options in [&[][..], &["--wait", "20s"]] {
        let fake = Fake::start();
        fake.state().lose_answers = 2;
        let (code, out, err) = finish(fake.run(options, "echo $JOB_LEASE_FENCING_TOKEN"));
        assert_eq!((code, out.as_str()), (0, "42\n"), "{err}");
        assert_eq!(fake.operations(), ["acquire", "acquire", "acquire", "release"]);
        let calls = fake.state().calls.clone();
        assert_eq!(calls[0].idempotency_key, calls[2].idempotency_key);
        // To the millisecond of the wait: another body under the same key would be refused.
        assert_eq!(calls[0].body, calls[2].body);
    }
}

#[test]
fn a_lease_granted_while_waiting_is_renewed_before_the_command_begins() {
    let fake = Fake::start();
    fake.state().queue = Duration::from_millis(1_500);
    let (code, out, err) = finish(fake.run(&["--ttl", "1s", "--wait", "20s"], "echo ran"));
    assert_eq!((code, out.as_str()), (0, "ran\n"), "{err}");
    assert_eq!(fake.operations(), ["acquire", "renew", "release"]);
}

#[test]
fn a_signal_while_waiting_ends_the_wait() {
    let fake = Fake::start();
    fake.state().queue = Duration::from_secs(600);
    let child = fake.run(&["--wait", "10m"], "echo ran");
    thread::sleep(Duration::from_millis(500));
    send("-TERM", child.id());
    let (code, out, err) = finish(child);
    assert_eq!((code, out.as_str()), (143, ""), "{err}");
}

#[test]
fn a_server_that_is_back_before_expiry_is_met_calmly() {
    let fake = Fake::start();
    let traces = Traces::new();
    let child = traces.run(&fake, &["--ttl", "6s"], "sleep 8; echo done");
    until("the first renewal", || fake.count("renew") == 1);
    fake.set_mode(Mode::Away);
    thread::sleep(Duration::from_millis(2_600));
    fake.set_mode(Mode::Here);
    let (code, out, err) = finish(child);
    assert_eq!((code, out.as_str()), (0, "done\n"), "{err}");
    assert!(fake.count("renew") >= 2);
    assert!(err.contains("answers again"), "{err}");
    assert_eq!(err.lines().count(), 3, "told once, not at every attempt: {err}");
}

#[test]
fn a_lease_is_kept_though_nobody_reads_what_is_written() {
    let fake = Fake::start();
    let traces = Traces::new();
    // More than any pipe holds; what cannot be written is left behind in the end.
    let child = traces.run(&fake, &["--ttl", "6s"], "head -c 2000000 /dev/zero >&2 & sleep 10; exit 8");
    until("the first renewal", || fake.count("renew") == 1);
    fake.set_mode(Mode::Away);
    thread::sleep(Duration::from_millis(2_600));
    fake.set_mode(Mode::Here);
    until("it is renewed again and again", || fake.count("renew") >= 3);
    let (code, _, _) = finish(child);
    assert_eq!(code, 8);
}

#[test]
fn a_server_that_stays_away_ends_the_command_before_expiry() {
    let fake = Fake::start();
    let traces = Traces::new();
    let script = format!("trap 'date +%s.%N > \"$DIR/asked\"' TERM; {BEATING}");
    let child = traces.run(&fake, &["--ttl", "3s"], &script);
    until("the first renewal", || fake.count("renew") == 1);
    fake.set_mode(Mode::Away);
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
    let asked_at: f64 = traces.read("asked").trim().parse().expect("TERM comes before KILL");
    assert!(traces.last_beat() > asked_at, "there is time between the two");
    let expires_at = fake.state().expires_at;
    assert!(traces.last_beat() < expires_at, "worked until {} after expiry", traces.last_beat() - expires_at);
}

#[test]
fn a_server_that_swallows_everything_ends_the_command_before_expiry_too() {
    let fake = Fake::start();
    let traces = Traces::new();
    let child = traces.run(&fake, &["--ttl", "3s"], &format!("trap '' TERM; {BEATING}"));
    until("the first renewal", || fake.count("renew") == 1);
    fake.set_mode(Mode::Silent);
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
    assert!(traces.last_beat() < fake.state().expires_at);
}

#[test]
fn the_lease_is_counted_from_the_sending_of_the_request_not_from_its_answer() {
    let fake = Fake::start();
    let traces = Traces::new();
    fake.state().delay = Duration::from_millis(900);
    let child = traces.run(&fake, &["--ttl", "3s"], &format!("trap '' TERM; {BEATING}"));
    until("the first renewal", || fake.count("renew") == 1);
    // Its answer arrives 900 ms after the server has begun to count.
    thread::sleep(Duration::from_millis(950));
    fake.set_mode(Mode::Away);
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
    assert!(traces.last_beat() < fake.state().expires_at);
}

#[test]
fn a_command_that_ends_in_time_when_asked_to_is_not_killed_but_75_says_why() {
    let fake = Fake::start();
    let traces = Traces::new();
    let script = "trap 'echo clean > \"$DIR/clean\"; exit 0' TERM; while :; do sleep 0.02; done";
    let child = traces.run(&fake, &["--ttl", "3s"], script);
    until("the first renewal", || fake.count("renew") == 1);
    fake.set_mode(Mode::Away);
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
    assert_eq!(traces.read("clean"), "clean\n");
    assert!(err.contains("could not be renewed"), "{err}");
}

#[test]
fn a_lost_lease_ends_the_command_at_once_and_is_not_given_back() {
    let fake = Fake::start();
    let traces = Traces::new();
    let child = traces.run(&fake, &["--ttl", "9s", "--kill-after", "1h"], &format!("trap '' TERM; {BEATING}"));
    until("the command works", || !traces.beats().is_empty());
    fake.state().lost = true;
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
    assert!(err.contains("expired"), "why it was lost is said: {err}");
    assert_eq!(fake.operations(), ["acquire", "renew"]);
    // It is told after three seconds.
    assert!(traces.last_beat() < fake.state().expires_at - 2.0, "not only when the lease would have ended");
}

#[test]
fn a_break_asks_the_command_to_end_and_gives_it_the_rest_of_the_grace() {
    let fake = Fake::start();
    let traces = Traces::new();
    let script = "trap 'sleep 1; echo clean > \"$DIR/clean\"; exit 0' TERM; while :; do sleep 0.02; done";
    let script = format!("echo $$ > \"$DIR/pid\"; {script}");
    let child = traces.run(&fake, &["--ttl", "3s", "--kill-after", "0"], &script);
    traces.process("pid");
    thread::sleep(Duration::from_millis(200));
    fake.state().breaking_until = Some(now() + 5.0);
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
    assert_eq!(traces.read("clean"), "clean\n");
    assert_eq!(fake.count("release"), 1, "the next one need not wait for the end of the grace");
}

#[test]
fn a_break_that_ends_before_the_next_renewal_is_heard_of_at_once() {
    let fake = Fake::start();
    let traces = Traces::new();
    let script = format!("trap 'date +%s.%N > \"$DIR/asked\"' TERM; {BEATING}");
    // Renewed every ten seconds only.
    let child = traces.run(&fake, &["--ttl", "1m"], &script);
    until("the command works", || !traces.beats().is_empty());
    let end = now() + 3.0;
    fake.state().breaking_until = Some(end);
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
    let asked_at: f64 = traces.read("asked").trim().parse().expect("TERM comes before KILL");
    assert!(asked_at < end && traces.last_beat() < end, "{asked_at} and {} of {end}", traces.last_beat());
}

#[test]
fn a_server_that_cannot_tell_of_a_break_is_asked_by_the_renewals() {
    let fake = Fake::start();
    fake.state().attends = false;
    let traces = Traces::new();
    let child = traces.run(&fake, &["--ttl", "9s"], BEATING);
    until("the command works", || !traces.beats().is_empty());
    let end = now() + 6.0;
    fake.state().breaking_until = Some(end);
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
    assert!(traces.last_beat() < end);
}

#[test]
fn a_command_that_will_not_end_is_killed_before_the_break_is_over() {
    let fake = Fake::start();
    let traces = Traces::new();
    let script = format!("trap 'date +%s.%N > \"$DIR/asked\"' TERM; {BEATING}");
    let child = traces.run(&fake, &["--ttl", "3s"], &script);
    until("the command works", || !traces.beats().is_empty());
    let end = now() + 4.0;
    fake.state().breaking_until = Some(end);
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
    let asked_at: f64 = traces.read("asked").trim().parse().expect("TERM comes before KILL");
    assert!(traces.last_beat() < end);
    assert!(traces.last_beat() > asked_at, "there is time between the two");
}

#[test]
fn signals_reach_the_command_and_its_answer_is_passed_on() {
    let fake = Fake::start();
    for (signal, status) in [("TERM", 11), ("INT", 12), ("HUP", 13), ("QUIT", 14), ("USR1", 15), ("USR2", 16)] {
        let traces = Traces::new();
        let script = format!("trap 'exit {status}' {signal}; echo $$ > \"$DIR/pid\"; while :; do sleep 0.02; done");
        let child = traces.run(&fake, &[], &script);
        traces.process("pid");
        send(&format!("-{signal}"), child.id());
        let (code, _, err) = finish(child);
        assert_eq!(code, status, "{signal}: {err}");
    }
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let fake = Fake::start();
    let traces = Traces::new();
    let job_leases = env!("CARGO_BIN_EXE_job-leases");
    let run = format!("exec '{job_leases}' run --key nightly -- sh -c 'echo $$ > \"$DIR/pid\"; sleep 1; exit 5'");
    let mut shell = fake.program("sh", &["-c", &format!("trap '' HUP; {run}")]);
    let child = shell.env("DIR", traces.0.path()).spawn().unwrap();
    traces.process("pid");
    send("-HUP", child.id());
    assert_eq!(finish(child).0, 5);
}

#[test]
fn a_killed_run_takes_the_command_and_all_its_processes_along() {
    let fake = Fake::start();
    let traces = Traces::new();
    let script = "sleep 1000 & echo $! > \"$DIR/helper\"; echo $$ > \"$DIR/pid\"; sleep 1000";
    let mut child = traces.run(&fake, &["--ttl", "1h"], script);
    let (command, helper) = (traces.process("pid"), traces.process("helper"));
    child.kill().unwrap();
    child.wait().unwrap();
    until("the command is gone", || !is_running(command));
    until("its helper is gone", || !is_running(helper));
}

#[test]
fn a_run_whose_guard_was_killed_goes_on_and_the_kernel_stands_in_for_the_guard() {
    let fake = Fake::start();
    let traces = Traces::new();
    let mut child = traces.run(&fake, &["--ttl", "3s"], "echo $$ > \"$DIR/pid\"; exec sleep 1000");
    let command = traces.process("pid");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let guard = children.split_whitespace().map(|number| number.parse().unwrap()).find(|number| *number != command);
    send("-KILL", guard.expect("the guard is the other child"));
    let before = fake.count("renew");
    until("it is renewed all the same", || fake.count("renew") >= before + 2);
    assert!(is_running(command));
    child.kill().unwrap();
    child.wait().unwrap();
    until("the command is gone", || !is_running(command));
}

#[test]
fn a_run_that_sleeps_past_expiry_does_not_leave_the_command_working() {
    let fake = Fake::start();
    let traces = Traces::new();
    let child = traces.run(&fake, &["--ttl", "3s"], &format!("trap '' TERM; {BEATING}"));
    until("the first renewal", || fake.count("renew") == 1);
    send("-STOP", child.id());
    let expires_at = fake.state().expires_at;
    until("the lease is over", || now() > expires_at + 0.3);
    assert!(traces.last_beat() < expires_at, "nobody was awake to stop it");
    send("-CONT", child.id());
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
}

#[test]
fn what_the_command_leaves_behind_is_stopped_before_the_lease_is_given_back() {
    let fake = Fake::start();
    let traces = Traces::new();
    let script = format!("({BEATING}) & exit 3");
    let (code, _, err) = finish(traces.run(&fake, &[], &script));
    assert_eq!(code, 3, "{err}");
    let released_at = fake.state().calls.last().unwrap().at;
    assert_eq!(fake.operations(), ["acquire", "release"]);
    assert!(traces.last_beat() < released_at);
}

#[test]
fn what_has_ended_but_is_never_buried_holds_nothing_up() {
    // Orphans come to this process, which does not wait for them; so does the first process of many a container.
    set_child_subreaper(Some(getpid())).unwrap();
    let fake = Fake::start();
    let (code, _, err) = finish(fake.run(&[], "sleep 0.2 & exit 3"));
    assert_eq!((code, err.as_str()), (3, ""));
}

#[test]
fn a_lease_that_cannot_be_given_back_is_a_warning_and_one_that_was_lost_meanwhile_is_75() {
    let fake = Fake::start();
    let traces = Traces::new();
    let child = traces.run(&fake, &[], "echo $$ > \"$DIR/pid\"; sleep 0.5; exit 4");
    traces.process("pid");
    fake.set_mode(Mode::Away);
    let (code, _, err) = finish(child);
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("it will run out"), "{err}");
    fake.set_mode(Mode::Here);
    let traces = Traces::new();
    let child = traces.run(&fake, &[], "echo $$ > \"$DIR/pid\"; sleep 0.5; exit 4");
    traces.process("pid");
    fake.state().lost = true;
    let (code, _, err) = finish(child);
    assert_eq!(code, 75, "{err}");
}

#[test]
fn a_command_that_is_paused_keeps_its_lease() {
    let fake = Fake::start();
    let traces = Traces::new();
    let child = traces.run(&fake, &["--ttl", "3s"], "echo $$ > \"$DIR/pid\"; sleep 1; exit 6");
    let command = traces.process("pid");
    send("-STOP", command);
    let before = fake.count("renew");
    until("it is renewed several times", || fake.count("renew") >= before + 3);
    send("-CONT", command);
    assert_eq!(finish(child).0, 6);
}

/// A terminal, and `job-leases run` of a script as its foreground job.
fn at_a_terminal(fake: &Fake, traces: &Traces, script: &str) -> (File, Child) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let job_leases = env!("CARGO_BIN_EXE_job-leases");
    // It makes a session, whose terminal is its standard input.
    let arguments = ["--ctty", job_leases, "run", "--key", "nightly", "--", "sh", "-c", script];
    let child = fake
        .program("setsid", &arguments)
        .env("DIR", traces.0.path())
        .stdin(slave.try_clone().unwrap())
        .stdout(slave.try_clone().unwrap())
        .stderr(slave)
        .spawn()
        .unwrap();
    (File::from(master), child)
}

#[test]
fn at_a_terminal_the_command_reads_what_is_typed_and_gets_an_interrupt_once() {
    let fake = Fake::start();
    let traces = Traces::new();
    // A shell looks for signals between commands: it must not be just about to read.
    let script = "trap 'echo interrupt >> \"$DIR/interrupts\"' INT; echo $$ > \"$DIR/pid\"
        while ! [ -s \"$DIR/interrupts\" ]; do sleep 0.02; done
        while ! read answer; do :; done; echo $answer > \"$DIR/answer\"; exit 9";
    let (mut terminal, child) = at_a_terminal(&fake, &traces, script);
    traces.process("pid");
    terminal.write_all(b"\x03").unwrap();
    until("the interrupt has come", || !traces.read("interrupts").is_empty());
    thread::sleep(Duration::from_millis(300));
    terminal.write_all(b"forty-two\n").unwrap();
    let (code, _, _) = finish(child);
    assert_eq!(code, 9);
    assert_eq!(traces.read("interrupts"), "interrupt\n");
    assert_eq!(traces.read("answer"), "forty-two\n");
}
