//! CQL 3.4.7: lexer, parser and syntax tree (pure).
