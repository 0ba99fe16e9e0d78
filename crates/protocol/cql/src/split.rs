//! Cuts a script into its statements, for shells and tests. A server gets one statement at a time.

use crate::keyword::Keyword;
use crate::lexer::{Kind, Lexer, Token};

/// The statements of a script, without the `;` between them and without blanks and comments around them. The `;`
/// inside a batch or a transaction do not count. A piece may still be no valid statement.
///
/// A script of 4 GiB or more comes back whole.
pub fn split(script: &str) -> Vec<&str> {
    if script.len() > crate::lexer::TEXT_BYTES_MAX {
        return vec![script];
    }
    let mut lexer = Lexer::new(script);
    let mut statements = Vec::new();
    let mut piece: Option<(u32, u32)> = None;
    let mut block: Option<Keyword> = None;
    let mut last = Kind::Eof;
    loop {
        let token = lexer.next_token();
        let ends = token.kind == Kind::Eof || (token.kind == Kind::Semicolon && block.is_none());
        if ends {
            if let Some((start, end)) = piece.take() {
                statements.extend(script.get(start as usize..end as usize));
            }
            block = None;
        } else {
            block = block_after(block, piece.is_none(), last, token);
            piece = Some((piece.map_or(token.start, |(start, _)| start), token.end));
        }
        if token.kind == Kind::Eof {
            return statements;
        }
        last = token.kind;
    }
}

/// The word that ends the block in which the token stands: `APPLY` of a batch, `COMMIT` of a transaction.
fn block_after(block: Option<Keyword>, first: bool, last: Kind, token: Token) -> Option<Keyword> {
    match (block, token.kind) {
        (None, Kind::Keyword(Keyword::Begin)) if first => Some(Keyword::Apply),
        (Some(Keyword::Apply), Kind::Keyword(Keyword::Transaction))
            if last == Kind::Keyword(Keyword::Begin) =>
        {
            Some(Keyword::Commit)
        }
        (Some(end), Kind::Keyword(Keyword::Batch | Keyword::Transaction)) if last == Kind::Keyword(end) => {
            None
        }
        (block, _) => block,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(script: &str, statements: &[&str]) {
        assert_eq!(split(script), statements);
    }

    #[test]
    fn semicolons_separate_statements() {
        check("", &[]);
        check(" ; -- nothing\n;", &[]);
        check("USE a", &["USE a"]);
        check("USE a; USE b;; USE c;", &["USE a", "USE b", "USE c"]);
        check("-- first\nUSE a /* ; */ ; USE b -- last", &["USE a", "USE b"]);
        check("SELECT ';', $$;$$, \";\" FROM t; USE b", &["SELECT ';', $$;$$, \";\" FROM t", "USE b"]);
    }

    #[test]
    fn batches_and_transactions_stay_whole() {
        let batch = "BEGIN UNLOGGED BATCH DELETE FROM t WHERE k = 1; DELETE FROM t WHERE k = 2; APPLY BATCH";
        check(&format!("{batch}; USE a"), &[batch, "USE a"]);
        let transaction = "BEGIN TRANSACTION LET a = (SELECT * FROM t); SELECT a.b; COMMIT TRANSACTION";
        check(&format!("USE a; {transaction};{batch}"), &["USE a", transaction, batch]);
    }

    #[test]
    fn an_unterminated_statement_is_the_last_piece() {
        check("USE a; SELECT 'x; USE b", &["USE a", "SELECT 'x; USE b"]);
        check("BEGIN BATCH USE a; USE b", &["BEGIN BATCH USE a; USE b"]);
        check("USE a /* b", &["USE a /* b"]);
    }
}
