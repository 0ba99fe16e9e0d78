//! Small building blocks that the standard library lacks and that more than one crate needs: fixed-seed maps, variable-length integers, Murmur3, a bounded byte reader.
