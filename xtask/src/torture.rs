//! `cargo xtask torture`: the history check, round after round, on a file and on a shared database in turns, until the time is
//! over. Each round is the check that `cargo xtask test` runs, with a seed of its own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{
    postgres, test, tools,
    workspace::{Workspace, run},
};

/// Tells the check what to choose.
const SEED: &str = "JOB_LEASES_HISTORY_SEED";

/// Which check a round runs.
const CHECKS: [(&str, &str); 2] = [
    ("on a file", "history::run::sixteen_clients_find_every_promise_kept_on_a_file"),
    ("on a shared database", "history::run::sixteen_clients_find_every_promise_kept_on_a_shared_database"),
];

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    seed: u64,
    /// For how long new rounds begin.
    minutes: u64,
    /// Only this round.
    round: Option<u64>,
}

/// Runs rounds; ends the process with status 1 if any failed.
#[expect(clippy::disallowed_methods, reason = "measures how long people were promised that it takes")]
pub(crate) fn torture(workspace: &Workspace, args: &[String]) -> Result<()> {
    let wanted = Wanted::parse(args, rand_seed)?;
    tools::ensure()?;
    let database = postgres::Server::start()?;
    let cargo = |workspace: &Workspace| {
        let mut cargo = workspace.cargo();
        cargo.args(["test", "--locked"]).args(test::SERVER).args(["--test", "faults"]);
        cargo
    };
    run(cargo(workspace).arg("--no-run"))?;
    println!(
        "seed {}: the same seed brings the same faults in the same order at the same times. What runs at once meets them",
        wanted.seed
    );
    println!("otherwise each time, so a failure may take several rounds to come again.");

    let start = Instant::now();
    let end = Duration::from_secs(60 * wanted.minutes);
    let mut failed = Vec::new();
    let mut rounds = 0;
    for round in wanted.round.map_or(0..u64::MAX, |round| round..round + 1) {
        if rounds > 0 && start.elapsed() >= end {
            break;
        }
        let (place, check) = CHECKS[usize::try_from(round % 2)?];
        let seed = of_round(wanted.seed, round);
        println!("\n== round {round}, {place}, at {} s", start.elapsed().as_secs());
        let mut cargo = cargo(workspace);
        cargo.args(["--", "--exact", check, "--nocapture"]);
        cargo.env(SEED, seed.to_string()).env(postgres::VARIABLE, database.url());
        rounds += 1;
        if let Err(error) = run(&mut cargo) {
            println!("round {round} failed: {error:#}");
            println!("to repeat it: {}", again(wanted.seed, round));
            failed.push(round);
        }
    }
    println!("\n{rounds} rounds of seed {} in {} s, {} failed", wanted.seed, start.elapsed().as_secs(), failed.len());
    for round in &failed {
        println!("{}", again(wanted.seed, *round));
    }
    std::process::exit(i32::from(!failed.is_empty()));
}

/// The command that repeats a round.
fn again(seed: u64, round: u64) -> String {
    format!("cargo xtask torture --seed {seed} --round {round}")
}

/// The seed of a round: rounds of one seed have nothing in common with those of the next.
fn of_round(seed: u64, round: u64) -> u64 {
    // The mixing of SplitMix64.
    let mixed = seed.wrapping_add(round.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % 1_000_000_000
}

/// One that nobody has chosen.
fn rand_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one("seed") % 1_000_000_000
}

impl Wanted {
    fn parse(args: &[String], seed: impl FnOnce() -> u64) -> Result<Self> {
        let (mut chosen, mut minutes, mut round) = (None, 30, None);
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let value = args.next().with_context(|| format!("{name} needs a number"))?;
            let number: u64 = value.parse().with_context(|| format!("{name} {value} is not a number"))?;
            match name.as_str() {
                "--minutes" => minutes = number,
                "--seed" => chosen = Some(number),
                "--round" => round = Some(number),
                _ => bail!("usage: cargo xtask torture [--minutes N] [--seed S] [--round R]"),
            }
        }
        Ok(Self { seed: chosen.unwrap_or_else(seed), minutes, round })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Wanted> {
        Wanted::parse(&args.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), || 7)
    }

    #[test]
    fn what_is_asked_for_is_understood_and_what_repeats_a_round_asks_for_that_round() {
        assert_eq!(parse("").unwrap(), Wanted { seed: 7, minutes: 30, round: None });
        assert_eq!(parse("--minutes 5 --seed 3").unwrap(), Wanted { seed: 3, minutes: 5, round: None });
        let repeated = again(3, 4);
        assert_eq!(
            parse(repeated.strip_prefix("cargo xtask torture").unwrap()).unwrap(),
            Wanted { seed: 3, minutes: 30, round: Some(4) }
        );
        for wrong in ["--minutes", "--minutes x", "--hours 3", "5"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_round_has_a_seed_of_its_own_and_always_the_same() {
        let seeds: std::collections::BTreeSet<u64> =
            (0..50).flat_map(|seed| (0..50).map(move |round| of_round(seed, round))).collect();
        assert_eq!(seeds.len(), 2_500);
        assert_eq!(of_round(1, 2), of_round(1, 2));
    }
}
