//! The benchmarks as a program of their own, which also counts allocations; `torc bench` is the same without counting.

#[global_allocator]
static ALLOCATOR: bench::allocations::CountingAllocator = bench::allocations::CountingAllocator;

fn main() {
    let matches = bench::command().get_matches();
    if let Err(error) = bench::run(&matches) {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
}
