//! A byte of any component changes, or a component is gone: every read is right or an error; none gives less, more or
//! other rows, and none runs without end. With the checksums of `Torc.db`, and without them by [`sstable::certify`].

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use mutation::{
    ColumnSelection, DecoratedKey, Fragment, FragmentBuffer, PartitionRange, RingPosition, Slices,
};
use rt::Rt;
use schema::Table;
use sstable::dump::table_of_header;
use sstable::reader::read_metadata;
use sstable::verify::verify;
use sstable::{
    Component, Descriptor, EncodingStats, Integrity, NoCache, Owner, Sstable, SstableError, SstableSource,
    certify,
};

use crate::generate::{Random, partitions, slices, table};
use crate::round_trip::{options, write};
use crate::support::{VERSIONS, fixtures, load, read, run};

/// A read, and its result on the sound files.
struct Question {
    range: PartitionRange,
    slices: Rc<Slices>,
    reversed: bool,
    is_scan: bool,
    sound: Vec<Fragment>,
}

/// An SSTable with the possible reads.
struct Case {
    table: Arc<Table>,
    descriptor: Descriptor,
    files: BTreeMap<Component, Vec<u8>>,
    questions: Vec<Question>,
}

async fn drain(mut source: SstableSource, most: usize) -> Result<Vec<Fragment>, SstableError> {
    let mut buffer = FragmentBuffer::new();
    while source.fill_next(&mut buffer).await? {
        assert!(buffer.len() <= most, "more fragments than {most} come");
    }
    Ok(buffer.into())
}

impl Question {
    async fn ask(&self, sstable: &Rc<Sstable>, most: usize) -> Result<Vec<Fragment>, SstableError> {
        let source = match self.is_scan {
            true => sstable.scan(&self.range),
            false => sstable.read(&self.range, &self.slices, &Rc::new(ColumnSelection::All), self.reversed),
        };
        drain(source, most).await
    }
}

impl Case {
    /// All reads of a sound SSTable: scans, ranges from every partition on, single partitions, in both
    /// directions, whole and in slices.
    async fn new(rt: &Rt, descriptor: Descriptor, table: Arc<Table>, some: Rc<Slices>) -> Self {
        let mut files = BTreeMap::new();
        for component in Component::ALL {
            if rt.disk().exists(descriptor.path(component)).await.unwrap() {
                files.insert(component, read(rt, &descriptor.path(component)).await);
            }
        }
        let sstable = Sstable::open(rt, descriptor.clone(), table.clone(), Rc::new(NoCache)).await.unwrap();
        let (all, every) = (PartitionRange::all(), Rc::new(Slices::all()));
        let mut questions = Vec::new();
        let mut question = |range: &PartitionRange, slices: &Rc<Slices>, reversed, is_scan| {
            let (range, slices) = (range.clone(), slices.clone());
            questions.push(Question { range, slices, reversed, is_scan, sound: Vec::new() });
        };
        question(&all, &every, false, true);
        for reversed in [false, true] {
            question(&all, &every, reversed, false);
            question(&all, &some, reversed, false);
        }
        let content = drain(sstable.scan(&all), usize::MAX).await.unwrap();
        let keys: Vec<DecoratedKey> = content
            .iter()
            .filter_map(|fragment| match fragment {
                Fragment::PartitionStart { key, .. } => Some(key.clone()),
                _ => None,
            })
            .collect();
        for (at, key) in keys.iter().enumerate() {
            let single = PartitionRange::single(key);
            question(&single, &every, false, false);
            question(&single, &some, at % 2 == 0, false);
            let rest = PartitionRange { start: RingPosition::AfterKey(key.clone()), end: all.end.clone() };
            question(&rest, &every, at % 3 == 0, false);
        }
        for question in &mut questions {
            question.sound = question.ask(&sstable, usize::MAX).await.unwrap();
        }
        Self { table, descriptor, files, questions }
    }

    /// Asks everything; how many answers were right, and how many errors.
    async fn ask(&self, rt: &Rt, what: &str) -> [u64; 2] {
        let opened = Sstable::open(rt, self.descriptor.clone(), self.table.clone(), Rc::new(NoCache)).await;
        let sstable = match opened {
            Ok(sstable) => sstable,
            Err(SstableError::Disk(error)) => panic!("{what}: {error} is no disk's failure"),
            Err(_) => return [0, self.questions.len() as u64],
        };
        let mut told = [0; 2];
        for question in &self.questions {
            match question.ask(&sstable, question.sound.len() * 2 + 1000).await {
                Ok(answer) => {
                    let (range, reversed) = (&question.range, question.reversed);
                    assert!(answer == question.sound, "{what}: wrong rows of {range:?}, reversed {reversed}");
                    told[0] += 1;
                }
                Err(SstableError::Disk(error)) => panic!("{what}: {error} is no disk's failure"),
                Err(_) => told[1] += 1,
            }
        }
        told
    }

    async fn put(&self, rt: &Rt, component: Component, bytes: Option<&[u8]>) {
        let path = self.descriptor.path(component);
        let _ = rt.disk().remove(&path).await;
        if let Some(bytes) = bytes {
            crate::support::write(rt, &path, bytes).await;
        }
    }

    /// Puts every file back.
    async fn restore(&self, rt: &Rt) {
        for component in Component::ALL {
            self.put(rt, component, self.files.get(&component).map(Vec::as_slice)).await;
        }
    }
}

/// A small SSTable with rows enough for row indexes.
async fn small(rt: &Rt, seed: u64) -> Case {
    let mut random = Random(seed);
    let table = table(&mut random);
    let mut partitions = partitions(&mut random, &table);
    partitions.truncate(12);
    let options = options(&mut random, &table, partitions.len());
    let encoding = EncodingStats { min_timestamp: -100, min_local_deletion: 800, min_ttl: 0 };
    let written = write(rt, &format!("/flips/{seed}"), &table, &partitions, options, encoding).await;
    let slices = Rc::new(slices(&mut random, &table));
    Case::new(rt, written.descriptor, table, slices).await
}

/// Flips a byte, or writes an extreme number over those that follow: each length and each place is a number somewhere.
fn damage(bytes: &mut [u8], at: usize, random: &mut Random) {
    let before = bytes[at];
    if random.one_in(4) {
        let len = [1, 2, 4, 8, 9][random.below(5) as usize].min(bytes.len() - at);
        bytes[at..at + len].fill([0, 0x7f, 0x80, 0xff][random.below(4) as usize]);
    }
    if bytes[at] == before {
        bytes[at] ^= if random.one_in(3) { 1 + random.below(255) as u8 } else { 1 << random.below(8) };
    }
}

/// Changes bytes of every component, in turn; `with_checksums` says whether `Torc.db` stays. Gives right answers and errors.
async fn flip(rt: &Rt, case: &Case, random: &mut Random, flips: usize, with_checksums: bool) -> [u64; 2] {
    let mut told = [0; 2];
    for (component, bytes) in case.files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        if *component == Component::Torc && !with_checksums {
            continue;
        }
        let step = bytes.len().div_ceil(flips).max(1);
        let mut at = random.below(step as u64) as usize;
        while at < bytes.len() {
            let mut changed = bytes.clone();
            damage(&mut changed, at, random);
            case.put(rt, *component, Some(&changed)).await;
            let what = format!("{} {component:?} at {at} of {}", case.descriptor, bytes.len());
            let is_usable = match with_checksums {
                true => true,
                false => {
                    case.put(rt, Component::Torc, None).await;
                    certify(rt, &case.descriptor, None).await.is_ok()
                }
            };
            if is_usable {
                let answered = case.ask(rt, &what).await;
                told = [told[0] + answered[0], told[1] + answered[1]];
            } else {
                told[1] += 1;
            }
            let is_noticed = !verify(rt, &case.descriptor).await.unwrap().problems.is_empty();
            let is_plain = matches!(component, Component::Toc | Component::Digest);
            if with_checksums && !is_plain {
                assert!(is_noticed, "{what}: verification finds nothing");
            }
            case.restore(rt).await;
            at += step;
        }
    }
    told
}

/// A small SSTable of this seed with bytes of every component changed; `with_checksums` says whether `Torc.db` stays.
pub fn every_component(seed: u64, with_checksums: bool) {
    run(move |rt| async move {
        let mut random = Random(seed);
        let case = small(&rt, seed).await;
        let told = flip(&rt, &case, &mut random, 60, with_checksums).await;
        assert!(told[0] > 0 && told[1] > 0, "{told:?}");
    });
}

/// Every position of components of up to 500 bytes, and as many of longer ones, so that none is spared by chance.
#[test]
fn every_position_of_a_small_sstable() {
    run(|rt| async move {
        let case = small(&rt, 11).await;
        let told = flip(&rt, &case, &mut Random(11), 500, true).await;
        assert!(told[0] > 0 && told[1] > 0, "{told:?}");
    });
}

#[test]
fn components_that_are_gone() {
    run(|rt| async move {
        for seed in 20..30 {
            let case = small(&rt, seed).await;
            for component in case.files.keys() {
                case.put(&rt, *component, None).await;
                let [right, wrong] =
                    case.ask(&rt, &format!("{} without {component:?}", case.descriptor)).await;
                let is_needed = !matches!(
                    component,
                    Component::Summary
                        | Component::Filter
                        | Component::Digest
                        | Component::Torc
                        | Component::Toc
                );
                assert_eq!(
                    (right == 0, wrong > 0),
                    (is_needed, is_needed),
                    "{component:?}: {right}, {wrong}"
                );
                let opened =
                    Sstable::open(&rt, case.descriptor.clone(), case.table.clone(), Rc::new(NoCache)).await;
                if is_needed {
                    let error = opened.unwrap_err().to_string();
                    assert!(error.contains(component.name()) && error.contains(" is missing"), "{error}");
                }
                case.restore(&rt).await;
            }
        }
    });
}

/// Summary and filter are rebuilt from the index, and the error says why.
#[test]
fn lookups_are_made_anew() {
    run(|rt| async move {
        let case = small(&rt, 31).await;
        for component in [Component::Summary, Component::Filter] {
            let Some(bytes) = case.files.get(&component) else { continue };
            let mut changed = bytes.clone();
            let at = changed.len() / 2;
            changed[at] ^= 4;
            case.put(&rt, component, Some(&changed)).await;
            let opened =
                Sstable::open(&rt, case.descriptor.clone(), case.table.clone(), Rc::new(NoCache)).await;
            let sstable = opened.unwrap();
            let told: Vec<String> = sstable.rebuilt().iter().map(ToString::to_string).collect();
            assert!(told.len() == 1 && told[0].contains(component.name()), "{told:?}");
            assert_eq!(case.ask(&rt, "made anew").await[1], 0);
            case.restore(&rt).await;
        }
    });
}

/// Files of Cassandra get checksums when they are sound, and are protected from then on.
#[test]
fn files_of_cassandra_are_certified() {
    run(|rt| async move {
        for version in VERSIONS {
            for name in fixtures(version.name()) {
                let descriptor = load(&rt, version.name(), &name).await;
                if rt.disk().len(descriptor.path(Component::Data)).await.unwrap() > 4_000 {
                    continue;
                }
                let owner = Some(Owner { shard: 3, shards: 7 });
                certify(&rt, &descriptor, owner).await.unwrap();
                let known = Integrity::read(rt.disk(), &descriptor).await.unwrap().unwrap();
                assert_eq!(known.owner, owner);
                let toc = read(&rt, &descriptor.path(Component::Toc)).await;
                assert!(String::from_utf8(toc).unwrap().lines().any(|line| line == "Torc.db"));
                let metadata = read_metadata(rt.disk(), &descriptor).await.unwrap();
                let table = Arc::new(table_of_header(&metadata.header).unwrap());
                let case = Case::new(&rt, descriptor, table, Rc::new(Slices::all())).await;
                flip(&rt, &case, &mut Random(5), 4, true).await;
            }
        }
    });
}
