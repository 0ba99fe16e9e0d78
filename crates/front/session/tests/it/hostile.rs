//! Bytes that are not the protocol: a clear error or a closed connection, and the node keeps serving.

use bytes::{BufMut, BytesMut};
use wire::{ErrorKind, Version};

use crate::world::{World, config, run, run_config};

fn envelope(version: u8, flags: u8, opcode: u8, length: u32, body: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_slice(&[version, flags, 0, 9, opcode]);
    out.put_u32(length);
    out.put_slice(body);
    out
}

async fn still_works(world: &World) {
    let mut client = world.ready(Version::V5).await;
    client.push_query(1, "void");
    client.flush().await;
    client.void(1).await;
}

#[test]
fn versions_that_are_not_supported() {
    run(|world| async move {
        for version in [0, 6, 7, 65, 127] {
            let mut client = world.connect(Version::V5).await;
            client.write(&envelope(version, 0, 5, 0, b"")).await;
            let error = client.error(9).await;
            assert_eq!(error.kind, ErrorKind::ProtocolError);
            assert_eq!(
                error.message,
                format!(
                    "Invalid or unsupported protocol version ({version}); supported versions are (3/v3, 4/v4, 5/v5)"
                )
            );
            client.is_closed().await;
        }
        // v1 and v2 get an answer with their own, shorter header.
        let mut client = world.connect(Version::V4).await;
        client.write(&[2, 0, 7, 1, 0, 0, 0, 0]).await;
        let mut answer = BytesMut::new();
        loop {
            answer.reserve(512);
            if client.stream.read_buf(&mut answer).await.expect("open") == 0 {
                break;
            }
        }
        assert_eq!(&answer[..4], &[0x82, 0, 7, 0]);
        still_works(&world).await;
    });
}

#[test]
fn single_messages_that_cannot_be_read() {
    run(|world| async move {
        let mut client = world.ready(Version::V4).await;
        // An unknown opcode, a response's opcode, a body that ends in the middle, an unknown consistency level.
        client.write(&envelope(4, 0, 0x44, 3, b"abc")).await;
        assert_eq!(client.error(9).await.message, "Unknown opcode 68");
        client.write(&envelope(4, 0, 0x08, 0, b"")).await;
        assert_eq!(client.error(9).await.message, "Unknown opcode 8");
        client.write(&envelope(4, 0, 0x07, 6, &[0, 0, 0, 9, b'S', b'E'])).await;
        assert!(client.error(9).await.message.starts_with("Not enough bytes to read the query"));
        client.write(&envelope(4, 0, 0x07, 8, &[0, 0, 0, 1, b'S', 0, 99, 0])).await;
        assert_eq!(client.error(9).await.message, "Unknown code 99 for a consistency level");
        client.write(&envelope(4, 1, 0x07, 3, b"abc")).await;
        assert_eq!(client.error(9).await.kind, ErrorKind::ProtocolError);
        client.write(&envelope(4, 0, 0x0B, 9, b"\0\x01\0\x05MAYBE")).await;
        assert_eq!(client.error(9).await.message, "Invalid value 'MAYBE' for Type");
        client.push_query(1, "void");
        client.flush().await;
        client.void(1).await;
        assert_eq!(world.metrics().protocol_errors.get(), 6);
    });
}

#[test]
fn messages_that_are_too_long_are_skipped() {
    let config = session::SessionConfig { native_transport_max_frame_size: 100_000, ..config() };
    run_config(config, |world| async move {
        for version in [Version::V4, Version::V5] {
            let mut client = world.ready(version).await;
            client.push_value(4, "length", &vec![0; 1_000_000]);
            client.push_query(5, "void");
            client.flush().await;
            let error = client.error(4).await;
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.message.ends_with("exceeds maximum allowed length 100000."), "{}", error.message);
            client.void(5).await;
        }
    });
}

#[test]
fn a_direction_or_version_that_changes_ends_the_connection() {
    run(|world| async move {
        for bytes in [envelope(0x84, 0, 8, 0, b""), envelope(3, 0, 5, 0, b"")] {
            let mut client = world.ready(Version::V4).await;
            client.write(&bytes).await;
            // Bytes that were sent meanwhile do not take the answer away.
            client.write(&[0; 10_000]).await;
            assert_eq!(client.error(9).await.kind, ErrorKind::ProtocolError);
            client.is_closed().await;
        }
        still_works(&world).await;
    });
}

#[test]
fn a_bad_checksum_ends_the_connection() {
    run(|world| async move {
        for bit in [3, 30, 100, 200] {
            let mut client = world.ready(Version::V5).await;
            client.push_query(1, "void");
            let mut bytes = client.take_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            client.write(&bytes).await;
            let error = client.error(0).await;
            assert!(error.message.contains("CRC mismatch"), "{}", error.message);
            client.is_closed().await;
        }
        still_works(&world).await;
    });
}

#[test]
fn nothing_is_taken_for_a_promise() {
    run(|world| async move {
        // A thousand clients that promise 16 MiB each and send a few bytes.
        let mut clients = Vec::new();
        for _ in 0..1000 {
            let mut client = world.ready(Version::V4).await;
            client.write(&envelope(4, 0, 7, (16 << 20) - 9, b"abc")).await;
            clients.push(client);
        }
        world.sleep(1000).await;
        // A promise alone books nothing.
        assert_eq!(world.metrics().request_bytes_in_flight.get(), 0);
        // A long message reserves its length as far as that fits; the others are not read any further.
        for client in &mut clients {
            client.write(&[0; 31_000]).await;
        }
        world.sleep(1000).await;
        let booked = world.metrics().request_bytes_in_flight.get();
        assert!((32 << 20..=64 << 20).contains(&booked), "{booked}");
        assert!(world.metrics().reads_paused.get() > 900);
        // Another address is not affected as long as there is room in total.
        let local = Some(std::net::SocketAddr::from(([127, 0, 0, 77], 50_000)));
        let address = crate::world::ADDRESS;
        let mut other = crate::client::Client::connect(&world.rt, address, local, Version::V4).await;
        other.start_up(&[]).await;
        other.push_value(1, "length", &[0; 10_000]);
        other.flush().await;
        assert_eq!(other.cell(1).await, b"10000");
        drop(clients);
        world.sleep(1000).await;
        assert_eq!(world.metrics().request_bytes_in_flight.get(), 0);
        assert_eq!(world.metrics().connections.get(), 1);
    });
}

/// SplitMix64.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[test]
fn noise() {
    for seed in 0..300 {
        run(move |world| async move {
            let noise = &mut Noise(seed);
            let version = Version::ALL[(noise.next() % 3) as usize];
            let mut client = match noise.next() % 3 {
                0 => world.connect(version).await,
                _ => world.ready(version).await,
            };
            for stream in 0..20 {
                client.push_value(
                    stream,
                    ["void", "length", "sleep 1", "yield 2"][(noise.next() % 4) as usize],
                    &[1; 40],
                );
            }
            let mut bytes = client.take_bytes();
            for _ in 0..1 + noise.next() % 5 {
                let at = (noise.next() % bytes.len() as u64) as usize;
                bytes[at] = noise.next() as u8;
            }
            let _ = client.stream.write_all(&bytes).await;
            let _ = client.stream.shutdown().await;
            let mut sink = BytesMut::new();
            loop {
                sink.clear();
                sink.reserve(4096);
                match client.stream.read_buf(&mut sink).await {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
            drop(client);
            world.sleep(2000).await;
            assert_eq!(world.metrics().connections.get(), 0, "seed {seed}");
            assert_eq!(world.metrics().request_bytes_in_flight.get(), 0);
            still_works(&world).await;
        });
    }
}
