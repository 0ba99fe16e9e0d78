//! CQL's data types: serialisation, validation, comparison, text and JSON forms, byte-comparable encoding.
