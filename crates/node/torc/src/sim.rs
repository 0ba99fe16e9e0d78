//! `torc sim`: seeds of the simulator on all cores, its tests of itself, and the commands that repeat a finding.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ::sim::{Canary, ClusterShape, Focus, Options, Report};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

/// Nodes of a simulated cluster.
const NODES_MAX: usize = 16;
/// The interval of progress lines.
const PROGRESS_PERIOD: Duration = Duration::from_secs(10);
/// Of the rows compared, at most one in so many may be left unjudged, because too many writes were of unknown outcome.
const UNJUDGED_MAX_IN: u64 = 100;
/// A simulation polls deep futures.
const STACK_BYTES: usize = 32 << 20;
/// Events of the trace around a difference.
const TRACE_AROUND: u64 = 1024;

thread_local! {
    /// The message of the last panic of this thread.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The subcommand.
pub fn command() -> Command {
    Command::new("sim")
        .about("Run the node in a simulated world with faults and crashes, and check every answer")
        .long_about(
            "Runs a whole node (sockets, protocol, storage) in one thread of virtual time, with random clients, crashes, \
             power failures, disk errors, full disks and clocks that jump. Every answer is compared with a small \
             reference database: nothing that was acknowledged may be missing, nothing deleted may come back. A number, \
             the seed, decides everything, so that a finding can be repeated exactly.\n\n\
             To look at one seed:        torc sim --seed 7\n\
             To search for an hour:      torc sim --hours 1\n\
             What the tests run:         torc sim --kept --seeds 200 --twice 5 --canaries",
        )
        .arg(number("seed", "Run this seed alone, and print the end of its trace"))
        .arg(number("seeds", "Run so many seeds"))
        .arg(number("from", "Begin with this seed instead of 0 (--hours: instead of a new one each time)"))
        .arg(
            Arg::new("hours")
                .long("hours")
                .value_name("H")
                .value_parser(value_parser!(f64))
                .help("Run new seeds for so many hours, or until one fails"),
        )
        .arg(number("twice", "Run so many seeds twice and compare their traces"))
        .arg(
            Arg::new("kept")
                .long("kept")
                .action(ArgAction::SetTrue)
                .help("Run the seeds that once found a bug (crates/test/sim/seeds.txt)"),
        )
        .args(canary_arguments())
        .arg(
            Arg::new("cluster")
                .long("cluster")
                .action(ArgAction::SetTrue)
                .help("Simulate a cluster, of as many nodes as the seed says, instead of a node alone"),
        )
        .arg(
            Arg::new("focus")
                .long("focus")
                .value_name("NAME")
                .value_parser(|name: &str| Focus::find(name).ok_or_else(focus_names))
                .help("Simulate clusters whose scenario has one focus"),
        )
        .arg(number("nodes", "Simulate a cluster of so many nodes"))
        .arg(number("threads", "Seeds at once; one a core by default"))
        .arg(
            Arg::new("log")
                .long("log")
                .value_name("LEVEL")
                .help("With --seed: the nodes' log, to standard error; a level, or filters as in RUST_LOG"),
        )
        .arg(
            Arg::new("trace")
                .long("trace")
                .value_name("FILE")
                .help("With --seed: write the whole trace to this file"),
        )
}

/// An argument with a number.
fn number(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64)).help(help)
}

/// The arguments about injected bugs.
fn canary_arguments() -> [Arg; 5] {
    [
        number("within", "With --canaries: begin no other bug after so many seconds").requires("canaries"),
        number("shuffle", "With --canaries: look for them in another order for each such number")
            .requires("canaries"),
        Arg::new("canaries")
            .long("canaries")
            .action(ArgAction::SetTrue)
            .help("Plant known bugs, one after the other; each must be found"),
        Arg::new("quick")
            .long("quick")
            .action(ArgAction::SetTrue)
            .help("With --canaries: begin with seeds that are known to find them"),
        Arg::new("canary")
            .long("canary")
            .value_name("NAME")
            .value_parser(|name: &str| Canary::find(name).ok_or_else(canary_names))
            .help("With --seed or --seeds: inject this bug"),
    ]
}

fn focus_names() -> String {
    let names = Focus::ALL.map(Focus::name);
    format!("the names are {}", names.join(", "))
}

fn canary_names() -> String {
    let names: Vec<&str> = Canary::ALL.iter().map(|canary| canary.name).collect();
    format!("there are {}", names.join(", "))
}

/// Runs the arguments that [`command`] has parsed.
///
/// # Errors
/// A sentence for the user with the first seed that fails, or the option that is wrong.
pub fn run(arguments: &ArgMatches) -> Result<(), String> {
    let number = |name: &str| arguments.get_one::<u64>(name).copied();
    let nodes = number("nodes").unwrap_or(0) as usize;
    if nodes > NODES_MAX {
        return Err(format!("--nodes {nodes}: at most {NODES_MAX} nodes are simulated"));
    }
    std::panic::set_hook(Box::new(|info| {
        PANIC.with(|slot| *slot.borrow_mut() = info.to_string());
    }));
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let threads = number("threads").unwrap_or(cores).max(1);
    let canary = arguments.get_one::<Canary>("canary").copied();
    let in_cluster = canary.is_some_and(|canary| canary.in_cluster);
    let focus = arguments.get_one::<Focus>("focus").copied();
    let cluster = arguments.get_flag("cluster") || nodes > 0 || in_cluster || focus.is_some();
    let options = Options { canary, cluster, focus, nodes, ..Options::default() };
    if let Some(level) = arguments.get_one::<String>("log") {
        let filter =
            tracing_subscriber::EnvFilter::try_new(level).map_err(|error| format!("--log: {error}"))?;
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    }
    if let Some(seed) = number("seed") {
        return one(seed, options, arguments.get_one::<String>("trace"));
    }
    let mut asked = false;
    if arguments.get_flag("kept") {
        asked = true;
        let seeds: Vec<u64> = ::sim::kept_seeds(cluster).map(|(seed, _)| seed).collect();
        search("recorded seeds", Seeds::List(seeds), options, threads)?;
    }
    if let Some(count) = number("seeds") {
        asked = true;
        let from = number("from").unwrap_or(0);
        search("seeds", Seeds::Range(from, from + count), options, threads)?;
    }
    if let Some(count) = number("twice") {
        asked = true;
        twice(number("from").unwrap_or(0), count, options, threads)?;
    }
    if arguments.get_flag("canaries") {
        asked = true;
        let share = Share {
            quick: arguments.get_flag("quick"),
            within: number("within").map_or(Duration::MAX, Duration::from_secs),
            order: number("shuffle"),
        };
        canaries(options, threads, &share)?;
    }
    if let Some(hours) = arguments.get_one::<f64>("hours") {
        asked = true;
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let from = number("from").unwrap_or(since.as_secs() * 1_000_000);
        let until = Instant::now() + Duration::from_secs_f64(hours * 3600.0);
        search("new seeds", Seeds::Until(from, until), options, threads)?;
    }
    if asked { Ok(()) } else { Err("nothing to do: see `torc sim --help`".to_owned()) }
}

/// Runs a seed; a panic inside is a finding like another.
fn guarded(seed: u64, options: &Options) -> Report {
    let before = cpu_time();
    let mut report = catch_unwind(AssertUnwindSafe(|| ::sim::run(seed, options))).unwrap_or_else(|_| {
        let text = PANIC.with(|slot| slot.borrow().clone());
        Report::of_failure(seed, format!("the node panicked: {text}"))
    });
    report.spent = cpu_time() - before;
    report
}

/// The CPU time of this thread, as Linux counts it; zero elsewhere.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// How quick the simulations were.
#[derive(Default)]
struct Speed {
    simulated: Duration,
    spent: Duration,
    events: u64,
}

impl Speed {
    fn note(&mut self, report: &Report) {
        self.simulated += report.simulated;
        self.spent += report.spent;
        self.events += report.trace_events;
    }

    /// For so many seeds.
    fn text(&self, seeds: u64) -> String {
        let seconds = self.spent.as_secs_f64().max(1e-9);
        format!(
            "{:.2} s of a core a seed; a second of a core simulates {:.0} s and {:.0} events",
            self.spent.as_secs_f64() / seeds.max(1) as f64,
            self.simulated.as_secs_f64() / seconds,
            self.events as f64 / seconds,
        )
    }
}

fn show(report: &Report, options: &Options) {
    let Some(failure) = &report.failure else { return };
    let canary = options.canary.map_or_else(String::new, |canary| format!(" --canary {}", canary.name));
    let nodes = match (options.cluster, options.nodes) {
        (false, _) => String::new(),
        (true, 0) => " --cluster".to_owned(),
        (true, nodes) => format!(" --nodes {nodes}"),
    };
    let focus = options.focus.map_or_else(String::new, |focus| format!(" --focus {}", focus.name()));
    println!(
        "\nseed {}: {failure}\n  plan: {}\n  repeat with: torc sim --seed {}{nodes}{focus}{canary}",
        report.seed, report.plan, report.seed
    );
}

/// One seed, with its trace.
fn one(seed: u64, options: Options, file: Option<&String>) -> Result<(), String> {
    let lines = if file.is_some() { usize::MAX } else { 40 };
    let options = Options { trace_lines_max: lines, ..options };
    let report = on_thread(move || guarded(seed, &options));
    match file {
        Some(file) => {
            let text = report.trace.join("\n") + "\n";
            std::fs::write(file, text).map_err(|error| format!("cannot write {file}: {error}"))?;
            println!("the trace is in {file}");
        }
        None => {
            println!("the end of the trace (all of it with --trace FILE):");
            report.trace.iter().for_each(|line| println!("  {line}"));
        }
    }
    println!("plan: {}", report.plan);
    println!("trace {:016x}, {} events; {:?}", report.trace_hash, report.trace_events, report.stats);
    show(&report, &options);
    match report.failure {
        Some(_) => Err(format!("seed {seed} fails")),
        None => {
            println!("seed {seed}: all answers were right");
            Ok(())
        }
    }
}

fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        thread.expect("a thread can be started").join().expect("panics of simulations are caught")
    })
}

/// Which seeds to run.
enum Seeds {
    List(Vec<u64>),
    Range(u64, u64),
    Until(u64, Instant),
}

impl Seeds {
    fn get(&self, index: u64) -> Option<u64> {
        match self {
            Seeds::List(seeds) => seeds.get(index as usize).copied(),
            Seeds::Range(from, end) => Some(from + index).filter(|seed| seed < end),
            Seeds::Until(from, until) => (Instant::now() < *until).then_some(from + index),
        }
    }

    /// The number of finished seeds, and an estimate for the rest.
    fn progress(&self, done: u64, begun: Instant) -> String {
        let rate = done as f64 / begun.elapsed().as_secs_f64();
        let left = match self {
            Seeds::List(seeds) => (seeds.len() as u64 - done) as f64 / rate,
            Seeds::Range(from, end) => (end - from - done) as f64 / rate,
            Seeds::Until(_, until) => until.saturating_duration_since(Instant::now()).as_secs_f64(),
        };
        format!("{done} seeds, {rate:.1} a second, {} left", minutes(left))
    }
}

fn minutes(seconds: f64) -> String {
    if seconds.is_finite() {
        format!("{}:{:02} min", seconds as u64 / 60, seconds as u64 % 60)
    } else {
        "?".to_owned()
    }
}

/// Runs seeds on all threads until `see` says that it is enough.
fn run_all(seeds: &Seeds, options: Options, threads: u64, mut see: impl FnMut(Report, u64) -> bool) {
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel::<Report>();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, enough) = (sender.clone(), &next, &enough);
            let work = move || {
                while !enough.load(Ordering::Relaxed)
                    && let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    if sender.send(guarded(seed, &options)).is_err() {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
            thread.expect("a thread can be started");
        }
        drop(sender);
        let mut done = 0;
        while let Ok(report) = receiver.recv() {
            done += 1;
            if see(report, done) {
                enough.store(true, Ordering::Relaxed);
            }
        }
    });
}

/// Runs seeds and shows those that fail.
fn search(what: &str, seeds: Seeds, options: Options, threads: u64) -> Result<(), String> {
    let begun = Instant::now();
    let mut shown = begun;
    let (mut failed, mut total, mut count) = (Vec::new(), ::sim::Stats::default(), 0);
    let (mut shapes, mut speed) = (Shapes::default(), Speed::default());
    run_all(&seeds, options, threads, |report, done| {
        show(&report, &options);
        total.add(&report.stats);
        shapes.note(report.shape.as_ref());
        speed.note(&report);
        count = done;
        if report.failure.is_some() {
            failed.push(report.seed);
        }
        if shown.elapsed() > PROGRESS_PERIOD {
            shown = Instant::now();
            eprintln!("sim: {what}: {}, {} failed", seeds.progress(done, begun), failed.len());
        }
        failed.len() >= 5
    });
    println!("{count} {what} in {:.0} s: {total}{shapes}", begun.elapsed().as_secs_f64());
    println!("{count} {what}: {}", speed.text(count));
    match failed.as_slice() {
        [] => check_judged(&total),
        failed => Err(format!("{} of {count} seeds fail: {failed:?}", failed.len())),
    }
}

/// Refuses runs of which the checkers could not judge enough.
fn check_judged(total: &::sim::Stats) -> Result<(), String> {
    for (unjudged, all, name) in
        [(total.unjudged, total.rows, "rows"), (total.unjudged_histories, total.histories, "histories")]
    {
        if unjudged * UNJUDGED_MAX_IN > all {
            return Err(format!(
                "{unjudged} of {all} {name} could not be judged; more than one in {UNJUDGED_MAX_IN} is a finding about the checkers"
            ));
        }
    }
    Ok(())
}

/// Which clusters were simulated, and how many of each kind.
#[derive(Default)]
struct Shapes {
    nodes: BTreeMap<usize, u64>,
    datacenters: BTreeMap<usize, u64>,
    shards: BTreeMap<u16, u64>,
}

impl Shapes {
    fn note(&mut self, shape: Option<&ClusterShape>) {
        let Some(shape) = shape else { return };
        *self.nodes.entry(shape.nodes).or_default() += 1;
        *self.datacenters.entry(shape.datacenters).or_default() += 1;
        shape.shards.iter().for_each(|shards| *self.shards.entry(*shards).or_default() += 1);
    }
}

impl std::fmt::Display for Shapes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nodes.is_empty() {
            return Ok(());
        }
        let (nodes, datacenters, shards) = (list(&self.nodes), list(&self.datacenters), list(&self.shards));
        write!(f, "; clusters of {nodes} nodes, in {datacenters} datacenters; nodes of {shards} shards")
    }
}

/// Sizes, with how often each was met.
fn list<T: std::fmt::Display>(counts: &BTreeMap<T, u64>) -> String {
    let each: Vec<String> = counts.iter().map(|(size, count)| format!("{size} ({count}×)")).collect();
    each.join(", ")
}

/// Runs seeds twice: equal traces.
fn twice(from: u64, count: u64, options: Options, threads: u64) -> Result<(), String> {
    let begun = Instant::now();
    let mut runs: [BTreeMap<u64, Report>; 2] = Default::default();
    for run in &mut runs {
        run_all(&Seeds::Range(from, from + count), options, threads, |report, _| {
            run.insert(report.seed, report);
            false
        });
    }
    let [first, second] = runs;
    for (seed, report) in &first {
        let other = &second[seed];
        if (report.trace_hash, report.trace_events, &report.failure)
            != (other.trace_hash, other.trace_events, &other.failure)
        {
            return Err(difference(*seed, options, report, other));
        }
    }
    println!("{count} seeds twice in {:.0} s: their traces are equal", begun.elapsed().as_secs_f64());
    Ok(())
}

/// The first difference between two runs of a seed.
fn difference(seed: u64, options: Options, first: &Report, second: &Report) -> String {
    let blocks = first.trace_blocks.iter().zip(&second.trace_blocks);
    let equal = blocks.take_while(|(a, b)| a == b).count() as u64;
    let from = equal * ::sim::TRACE_BLOCK;
    let options = Options { trace_lines_max: TRACE_AROUND as usize, trace_lines_from: from, ..options };
    let lines = [(); 2].map(|()| on_thread(|| guarded(seed, &options)).trace);
    let place = lines[0].iter().zip(&lines[1]).position(|(a, b)| a != b);
    let mut text = format!("seed {seed} run twice gives two traces; they part in or after event {from}");
    if let Some(place) = place {
        for (name, lines) in ["first", "second"].iter().zip(&lines) {
            text.push_str(&format!("\n  {name}:"));
            let around = &lines[place.saturating_sub(3)..(place + 2).min(lines.len())];
            around.iter().for_each(|line| text.push_str(&format!("\n    {line}")));
        }
    }
    text
}

/// The injected bugs that are looked for.
struct Share {
    /// Whether only those with seeds that are known to find them, by these seeds.
    quick: bool,
    /// After which time no other is begun.
    within: Duration,
    /// The number of their order; none for the order in which they are listed.
    order: Option<u64>,
}

/// Plants bugs, one after the other, and looks for each.
fn canaries(options: Options, threads: u64, share: &Share) -> Result<(), String> {
    let (mut missed, mut looked_for, quick, started) = (Vec::new(), 0, share.quick, Instant::now());
    let wanted =
        |canary: &&Canary| canary.in_cluster == options.cluster && (!quick || canary.quick_from.is_some());
    let mut all: Vec<&Canary> = Canary::ALL.iter().filter(wanted).collect();
    if let Some(order) = share.order {
        all.sort_by_cached_key(|canary| {
            BuildHasherDefault::<DefaultHasher>::new().hash_one((order, canary.name))
        });
    }
    let count = all.len();
    for canary in all {
        if started.elapsed() >= share.within {
            break;
        }
        looked_for += 1;
        let begun = Instant::now();
        let options = Options { canary: Some(*canary), ..options };
        let (mut caught, mut seen) = (None, 0);
        let from = canary.quick_from.filter(|_| quick).unwrap_or(0);
        run_all(&Seeds::Range(from, from + canary.seeds_max), options, threads, |report, done| {
            seen = done;
            if let Some(failure) = report.failure
                && caught.is_none()
                && canary.is_found_by(&failure)
            {
                caught = Some((report.seed, failure));
            }
            caught.is_some()
        });
        let seconds = begun.elapsed().as_secs_f64();
        match caught {
            Some((seed, failure)) => {
                let what = failure.lines().next().unwrap_or("");
                let what: String = what.chars().take(160).collect();
                println!(
                    "canary {}: caught by seed {seed} after {seen} seeds of the {} from {from} on that must do, {seconds:.0} s: {what}",
                    canary.name, canary.seeds_max
                );
            }
            None => {
                println!("canary {}: NOT caught by {seen} seeds ({})", canary.name, canary.about);
                missed.push(canary.name);
            }
        }
    }
    println!("canaries: {looked_for} of {count} looked for");
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("injected bugs were not found: {}", missed.join(", ")))
    }
}
