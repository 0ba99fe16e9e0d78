//! The benchmarks as a program of their own, for work on them: `torc bench` is the same.

fn main() {
    let matches = bench::command().get_matches();
    if let Err(error) = bench::run(&matches) {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
}
