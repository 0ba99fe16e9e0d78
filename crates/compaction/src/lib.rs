//! Compaction: which SSTables to merge (`choose`, pure) apart from merging them (`worker`).
