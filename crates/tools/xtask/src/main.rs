//! `cargo xtask`: the repository's own checks, written in Rust so that they need nothing but the toolchain.
//!
//! `cargo xtask tidy` holds the rules that a compiler does not know (CONTRIBUTING.md lists them). It also runs as
//! a test of this crate, so that `cargo test` fails when a rule is broken.

mod assertions;
mod circles;
mod edges;
mod exceptions;
mod guarantees;
mod manifest;
mod rules;
mod size;
mod source;
mod tidy;
mod words;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy [--write-exceptions] | cargo xtask shape [CRATE]

  tidy                      check the repository's rules; one line a finding
  tidy --write-exceptions   rewrite crates/tools/xtask/tidy-exceptions.txt: lower what shrank, drop what is not needed,
                            and add what is new (a reviewer will ask why); lower the numbers of tidy-words.txt
  shape                     the files that use each other in circles, and how densely each crate asserts
  shape CRATE               the same, with what the files of a circle of that crate (crates/x/y) use of each other";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = tidy::repository_root();
    match arguments.as_slice() {
        ["tidy"] => report(tidy::check(&root)),
        ["tidy", "--write-exceptions"] => match tidy::write_exceptions(&root) {
            Ok(entries) => {
                println!("tidy: {entries} exceptions written to {}", exceptions::FILE);
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("tidy: {error}");
                ExitCode::FAILURE
            }
        },
        ["shape", only @ ..] if only.len() <= 1 => match tidy::shape(&root, only.first().copied()) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("shape: cannot read the repository: {error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn report(outcome: std::io::Result<tidy::Outcome>) -> ExitCode {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            eprintln!("tidy: cannot read the repository: {error}");
            return ExitCode::FAILURE;
        }
    };
    for finding in &outcome.findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} findings", outcome.files, outcome.findings.len());
    if outcome.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
