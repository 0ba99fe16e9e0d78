//! The queued writes of a connection: frames one after another, small bodies copied together, long ones by
//! reference.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use crate::frame::{HEADER_LEN, Header};
use crate::packing::{Packer, Packing};

/// Bodies up to this length are copied behind their header, so that a write of many small frames has one slice.
const COPIED_LEN_MAX: usize = 2 << 10;
/// So many slices go into one write at most.
pub const SLICES_MAX: usize = 32;
/// A buffer that has grown beyond this is freed.
const KEPT_CAPACITY_MAX: usize = 256 << 10;

enum Part {
    /// The next so many bytes of the buffer.
    Copied(usize),
    /// A body that belongs to somebody else.
    Shared(Bytes),
}

/// Frames on their way out.
#[derive(Default)]
pub struct WriteBuffer {
    copied: BytesMut,
    parts: VecDeque<Part>,
    len: usize,
}

impl WriteBuffer {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn add_copied(&mut self, len: usize) {
        self.len += len;
        match self.parts.back_mut() {
            Some(Part::Copied(last)) => *last += len,
            _ => self.parts.push_back(Part::Copied(len)),
        }
    }

    /// Appends a frame; length, checksum and packing of the body are filled into the header. Gives its length on the
    /// wire.
    pub fn push(&mut self, header: Header, body: Bytes, packer: &mut Packer) -> usize {
        self.push_parts(header, &[], body, packer)
    }

    /// Appends a frame whose body has two parts, of which the first is short. The second is not copied when it is long,
    /// unless the body is packed.
    pub fn push_parts(&mut self, mut header: Header, head: &[u8], tail: Bytes, packer: &mut Packer) -> usize {
        if !head.is_empty() && packer.packs(head.len() + tail.len()) {
            let mut whole = BytesMut::with_capacity(head.len() + tail.len());
            whole.extend_from_slice(head);
            whole.extend_from_slice(&tail);
            return self.push(header, whole.freeze(), packer);
        }
        let start = self.copied.len();
        self.copied.extend_from_slice(&[0; HEADER_LEN]);
        let body_start = self.copied.len();
        header.packing = if head.is_empty() { packer.pack(&tail, &mut self.copied) } else { Packing::None };
        let packed = self.copied.len() > body_start;
        let shared = !packed && tail.len() > COPIED_LEN_MAX;
        self.copied.extend_from_slice(head);
        if !packed && !shared {
            self.copied.extend_from_slice(&tail);
        }
        let copied = self.copied.get(body_start..).unwrap_or_default();
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(copied);
        let mut body_len = copied.len();
        if shared {
            checksum.update(&tail);
            body_len += tail.len();
        }
        header.body_checksum = checksum.finalize();
        header.body_len = u32::try_from(body_len).expect("bodies are shorter than the limit of frames");
        if let Some(place) = self.copied.get_mut(start..body_start) {
            place.copy_from_slice(&header.encode());
        }
        self.add_copied(self.copied.len() - start);
        if shared {
            self.len += tail.len();
            self.parts.push_back(Part::Shared(tail));
        }
        HEADER_LEN + body_len
    }

    /// Fills `slices` with the next bytes to write; how many there are.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut copied = &self.copied[..];
        let mut used = 0;
        for (slot, part) in slices.iter_mut().zip(&self.parts) {
            *slot = match part {
                Part::Copied(len) => {
                    let (these, rest) = copied.split_at(*len);
                    copied = rest;
                    IoSlice::new(these)
                }
                Part::Shared(body) => IoSlice::new(body),
            };
            used += 1;
        }
        used
    }

    /// So many bytes are written.
    pub fn advance(&mut self, mut written: usize) {
        assert!(written <= self.len, "more was written than there is");
        self.len -= written;
        while written > 0 {
            let Some(part) = self.parts.front_mut() else { break };
            let rest = match part {
                Part::Copied(len) => {
                    let taken = written.min(*len);
                    self.copied.advance(taken);
                    *len -= taken;
                    written -= taken;
                    *len
                }
                Part::Shared(body) => {
                    let taken = written.min(body.len());
                    body.advance(taken);
                    written -= taken;
                    body.len()
                }
            };
            if rest == 0 {
                self.parts.pop_front();
            }
        }
        if self.len == 0 {
            self.parts.clear();
            match self.copied.capacity() > KEPT_CAPACITY_MAX {
                true => self.copied = BytesMut::new(),
                false => self.copied.clear(),
            }
        }
    }

    /// Gives memory back while the connection is idle.
    pub fn rest(&mut self) {
        if self.len == 0 && self.copied.capacity() > 0 {
            self.copied = BytesMut::new();
        }
    }
}
