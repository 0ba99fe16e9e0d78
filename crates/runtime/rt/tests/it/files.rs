//! Files: content, names, errors, and buffers that outlive their futures.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use rt::{DiskOp, Group, IO_ALIGNMENT, IoBuf, LockError, OpenOptions, Rt};

use crate::backends::{Place, on_all_backends};

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ salt).collect()
}

#[test]
fn content_is_read_back() {
    on_all_backends(1, |rt, place| async move {
        let path = place.dir.join("content");
        let bytes = pattern(100_000, 3);
        let file = rt.disk().open(&path, OpenOptions::CREATE_NEW).await.unwrap();
        file.write_at(0, IoBuf::copy_of(&bytes)).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 100_000);
        file.sync_data().await.unwrap();
        assert_eq!(&file.read_exact_at(777, 5000).await.unwrap()[..], &bytes[777..5777]);
        assert_eq!(&file.read_at(99_990, 50).await.unwrap()[..], &bytes[99_990..]);
        assert!(file.read_at(100_000, 50).await.unwrap().is_empty());
        let (read, buf) = file.read_into(10, IoBuf::with_capacity(8192)).await;
        assert_eq!((read.unwrap(), &buf[..]), (8192, &bytes[10..8202]));
        let error = file.read_exact_at(99_990, 50).await.unwrap_err();
        assert!(error.is_unexpected_eof() && error.to_string().contains("content"), "{error}");

        file.set_len(10).await.unwrap();
        file.allocate(0, 8192).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 8192);
        let grown = file.read_exact_at(0, 8192).await.unwrap();
        assert!(grown[..10] == bytes[..10] && grown[10..].iter().all(|byte| *byte == 0));
        file.write_at(20_000, IoBuf::copy_of(b"far")).await.unwrap();
        let hole = file.read_exact_at(8192, 20_003 - 8192).await.unwrap();
        assert!(hole.ends_with(b"far") && hole[..hole.len() - 3].iter().all(|byte| *byte == 0));
        file.sync_all().await.unwrap();
        drop(file);
        let all = rt.disk().read_to_end(&path, 20_003).await.unwrap();
        assert_eq!((all.len(), &all[..10]), (20_003, &bytes[..10]));
        let error = rt.disk().read_to_end(&path, 20_002).await.unwrap_err();
        assert!(error.to_string().contains("limit"), "{error}");
    });
}

#[test]
fn direct_files_read_at_any_position() {
    on_all_backends(1, |rt, place| async move {
        let path = place.dir.join("direct");
        let file = rt.disk().open(&path, OpenOptions::CREATE_NEW.direct()).await.unwrap();
        let bytes = pattern(5 * IO_ALIGNMENT, 9);
        file.write_at(0, IoBuf::copy_of(&bytes)).await.unwrap();
        file.sync_data().await.unwrap();
        for (at, len) in [(0, 20_480), (1, 1), (4095, 2), (4096, 4096), (5000, 9999), (20_000, 480)] {
            let read = file.read_exact_at(at as u64, len).await.unwrap();
            assert_eq!(&read[..], &bytes[at..at + len], "{len} at {at}");
        }
        assert_eq!(file.read_at(20_000, 1000).await.unwrap().len(), 480);
        assert_eq!(file.read_at(20_480, 1000).await.unwrap().len(), 0);
        assert_eq!(file.read_at(30_001, 1000).await.unwrap().len(), 0);
        if file.is_direct() {
            let error = file.write_at(1, IoBuf::copy_of(&bytes[..4096])).await.unwrap_err();
            assert!(error.op == DiskOp::Write && error.to_string().contains("aligned"), "{error}");
        }
        file.set_len(5000).await.unwrap();
        assert_eq!(&file.read_at(4000, 4096).await.unwrap()[..], &bytes[4000..5000]);
    });
}

#[test]
fn appending_ignores_the_position() {
    on_all_backends(1, |rt, place| async move {
        let path = place.dir.join("log");
        let options = OpenOptions { append: true, ..OpenOptions::READ_WRITE };
        for part in ["one ", "two ", "three"] {
            let file = rt.disk().open(&path, options).await.unwrap();
            file.write_at(0, IoBuf::copy_of(part.as_bytes())).await.unwrap();
        }
        assert_eq!(rt.disk().read_to_end(&path, 100).await.unwrap(), b"one two three");
    });
}

#[test]
fn names_and_their_errors() {
    on_all_backends(1, |rt, place| async move {
        let disk = rt.disk();
        let dir = place.dir.join("a/b");
        disk.create_dir_all(&dir).await.unwrap();
        disk.create_dir_all(&dir).await.unwrap();
        for name in ["zeta", "alpha", "mid"] {
            disk.write_atomically(dir.join(name), name.as_bytes()).await.unwrap();
        }
        disk.create_dir_all(dir.join("sub")).await.unwrap();
        let entries = disk.list(&dir).await.unwrap();
        let names: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.is_dir, e.len)).collect();
        assert_eq!(names, [("alpha", false, 5), ("mid", false, 3), ("sub", true, 0), ("zeta", false, 4)]);

        disk.hard_link(dir.join("alpha"), dir.join("link")).await.unwrap();
        disk.rename(dir.join("mid"), dir.join("zeta")).await.unwrap();
        disk.remove(dir.join("alpha")).await.unwrap();
        disk.sync_dir(&dir).await.unwrap();
        assert_eq!(disk.read_to_end(dir.join("link"), 9).await.unwrap(), b"alpha");
        assert_eq!(disk.read_to_end(dir.join("zeta"), 9).await.unwrap(), b"mid");
        assert!(!disk.exists(dir.join("mid")).await.unwrap());
        let resolved = disk.resolve(dir.join("zeta")).await.unwrap();
        assert_eq!(resolved, disk.resolve(&dir).await.unwrap().join("zeta"));
        assert!(disk.resolve(dir.join("none")).await.unwrap_err().is_not_found());
        assert!(disk.is_dir(&dir).await.unwrap() && !disk.is_dir(dir.join("zeta")).await.unwrap());
        assert_eq!(disk.len(dir.join("zeta")).await.unwrap(), 3);
        disk.write_atomically(dir.join("zeta"), b"new").await.unwrap();
        assert_eq!(disk.read_to_end(dir.join("zeta"), 9).await.unwrap(), b"new");

        let missing = disk.open(dir.join("none"), OpenOptions::READ).await.unwrap_err();
        assert!(missing.is_not_found() && missing.op == DiskOp::Open, "{missing}");
        assert!(missing.to_string().contains("a/b/none"), "{missing}");
        let taken = disk.open(dir.join("zeta"), OpenOptions::CREATE_NEW).await.unwrap_err();
        assert!(taken.is_already_exists(), "{taken}");
        let nowhere = disk.open(dir.join("no/file"), OpenOptions::CREATE_NEW).await.unwrap_err();
        assert!(nowhere.to_string().contains("create the directory"), "{nowhere}");
        assert!(disk.list(dir.join("none")).await.unwrap_err().is_not_found());
        assert!(disk.rename(dir.join("none"), dir.join("x")).await.unwrap_err().is_not_found());
        assert!(disk.remove(dir.join("none")).await.unwrap_err().is_not_found());
        assert!(disk.hard_link(dir.join("zeta"), dir.join("link")).await.unwrap_err().is_already_exists());

        let free = disk.free_space(&dir).await.unwrap();
        assert!(free > 0 && free <= disk.total_space(&dir).await.unwrap());
        assert!(disk.remove_dir(&dir).await.unwrap_err().is_not_empty());
        assert!(disk.remove_dir(dir.join("none")).await.unwrap_err().is_not_found());
        disk.create_dir_all(dir.join("empty")).await.unwrap();
        disk.remove_dir(dir.join("empty")).await.unwrap();
        assert!(!disk.exists(dir.join("empty")).await.unwrap());
        disk.remove_dir_all(place.dir.join("a")).await.unwrap();
        assert!(!disk.exists(&dir).await.unwrap());
    });
}

#[test]
fn an_open_file_survives_its_name() {
    on_all_backends(1, |rt, place| async move {
        let path = place.dir.join("gone");
        let file = rt.disk().open(&path, OpenOptions::CREATE_NEW).await.unwrap();
        file.write_at(0, IoBuf::copy_of(b"still here")).await.unwrap();
        rt.disk().remove(&path).await.unwrap();
        assert_eq!(&file.read_exact_at(0, 10).await.unwrap()[..], b"still here");
        assert!(!rt.disk().exists(&path).await.unwrap());
    });
}

#[test]
fn a_lock_has_one_holder() {
    on_all_backends(1, |rt, place| async move {
        let path = place.dir.join("lock");
        let guard = rt.disk().lock_exclusive(&path).await.unwrap();
        match rt.disk().lock_exclusive(&path).await.unwrap_err() {
            LockError::Held { pid: Some(_), .. } => {}
            other => panic!("{other}"),
        }
        drop(guard);
        drop(rt.disk().lock_exclusive(&path).await.unwrap());
    });
}

/// Polls a future once and drops it, as a cancelled task does. (The thread pool may be quick and complete it.)
fn poll_once_and_drop(future: impl Future) {
    let mut future = pin!(future);
    let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

async fn check_dropped_futures(rt: Rt, place: Place) {
    let path = place.dir.join("dropped");
    let file = rt.disk().open(&path, OpenOptions::CREATE_NEW).await.unwrap();
    let bytes = pattern(64 * 8192, 5);
    for (part, at) in bytes.chunks(8192).zip((0u64..).step_by(8192)) {
        poll_once_and_drop(file.write_at(at, IoBuf::copy_of(part)));
        poll_once_and_drop(file.read_at(at, 8192));
        // Were the memory freed already, these would take it.
        let mut other = IoBuf::with_capacity(8192);
        other.resize(8192, 0xee);
    }
    // A started operation continues without its future.
    for _ in 0..1000 {
        if rt.disk().read_to_end(&path, 1 << 20).await.unwrap() == bytes {
            return;
        }
        rt.sleep(std::time::Duration::from_millis(2)).await;
    }
    panic!("writes whose futures were dropped did not arrive whole");
}

#[test]
fn buffers_outlive_dropped_futures() {
    on_all_backends(1, check_dropped_futures);
}

#[test]
fn many_operations_at_once() {
    on_all_backends(2, |rt, place| async move {
        let path = place.dir.join(format!("many-{}", rt.shard()));
        let file = rt.disk().open(&path, OpenOptions::CREATE_NEW).await.unwrap();
        file.allocate(0, 3000 * 512).await.unwrap();
        let tasks: Vec<_> = (0..3000u64)
            .map(|n| {
                let file = file.clone();
                rt.spawn(Group::Statement, async move {
                    file.write_at(n * 512, IoBuf::copy_of(&pattern(512, n as u8))).await.unwrap();
                    let back = file.read_exact_at(n * 512, 512).await.unwrap();
                    assert_eq!(&back[..], &pattern(512, n as u8)[..]);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
}
