//! A simulated disk for the tests, and files of the repository on it.

use std::future::Future;
use std::path::{Path, PathBuf};

use rt::{Group, IoBuf, LocalBoxFuture, OpenOptions, Rt, ShardId, ShardMain};
use rt_sim::{Config, NodeConfig, Simulation};
use sstable::Version;
use sstable::compress::decompress;
use sstable::compression_info::CompressionInfo;

/// Runs a test on one shard of a simulated node.
pub fn run<F: Future<Output = ()> + 'static>(body: impl FnOnce(Rt) -> F + 'static) {
    let sim = Simulation::new(1, Config::default());
    let node = sim.add_node(NodeConfig::default(), |_| {
        let main: ShardMain = Box::new(|_| Box::pin(std::future::pending()) as LocalBoxFuture<()>);
        vec![main]
    });
    sim.start(node);
    let rt = sim.rt(node, ShardId(0)).unwrap();
    let task = rt.spawn(Group::Statement, body(rt.clone()));
    sim.run_until(|| task.is_finished()).unwrap();
}

/// The directory of a fixture.
pub fn fixture(version: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(version).join(name)
}

/// The versions that there are fixtures of, and all that can be read.
pub const VERSIONS: [Version; 5] = [Version::Mc, Version::Md, Version::Me, Version::Na, Version::Nb];

/// Names of the fixtures of a version.
pub fn fixtures(version: &str) -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(version);
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Writes a file on the simulated disk.
pub async fn write(rt: &Rt, path: &Path, bytes: &[u8]) {
    let options = OpenOptions { truncate: true, ..OpenOptions::READ_WRITE };
    let file = rt.disk().open(path, options).await.unwrap();
    file.write_at(0, IoBuf::copy_of(bytes)).await.unwrap();
}

/// Reads a file of the simulated disk.
pub async fn read(rt: &Rt, path: &Path) -> Vec<u8> {
    rt.disk().read_to_end(path, 1 << 30).await.unwrap()
}

/// Copies a fixture onto the simulated disk; gives its directory there and the SSTable in it.
pub async fn load(rt: &Rt, version: &str, name: &str) -> sstable::Descriptor {
    let target = Path::new("/fixtures").join(version).join(name);
    rt.disk().create_dir_all(&target).await.unwrap();
    for entry in std::fs::read_dir(fixture(version, name)).unwrap() {
        let entry = entry.unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        write(rt, &target.join(entry.file_name()), &bytes).await;
    }
    let found = sstable::list_complete(rt.disk(), &target).await.unwrap();
    assert_eq!(found.len(), 1, "{name}");
    found.into_iter().next().unwrap()
}

/// The data of a compressed SSTable before compression, from its Data.db and CompressionInfo.db.
pub fn plain(data: &[u8], info: &[u8], version: Version) -> Vec<u8> {
    let info = CompressionInfo::decode(info, version, data.len() as u64).unwrap();
    let mut out = Vec::new();
    for chunk in 0..info.offsets.len() {
        let start = info.offsets.get(chunk).unwrap() as usize;
        let end = info.offsets.get(chunk + 1).map_or(data.len(), |end| end as usize) - 4;
        let len = info.chunk_data_len(chunk as u64);
        let bytes = &data[start..end];
        let is_plain = bytes.len() >= info.compressed_len_max as usize;
        out.extend(if is_plain {
            bytes[..len].to_vec()
        } else {
            decompress(info.algorithm, bytes, len).unwrap()
        });
    }
    out
}
