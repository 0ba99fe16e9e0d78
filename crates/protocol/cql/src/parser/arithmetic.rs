//! Sums and products: one parser by precedence, for terms and for selectors.

use super::{Parser, Result};
use crate::ast::ArithmeticOperator;
use crate::lexer::Kind;

/// An operand of sums and products.
pub(super) trait Operand: Sized {
    /// An operand, with its sign.
    fn signed(parser: &mut Parser<'_>) -> Result<Self>;

    /// Two operands joined by an operator.
    fn join(left: Self, operator: ArithmeticOperator, right: Self) -> Self;
}

impl Parser<'_> {
    /// Operands joined by `+`, `-`, `*`, `/` and `%`, from left to right. With `stop_at_column` it ends before `+ column`.
    pub(super) fn sum<T: Operand>(&mut self, stop_at_column: bool) -> Result<T> {
        let mut left: T = self.product()?;
        loop {
            let operator = match self.kind() {
                Kind::Plus if stop_at_column && self.column_follows_plus() => return Ok(left),
                Kind::Plus => ArithmeticOperator::Add,
                Kind::Minus => ArithmeticOperator::Subtract,
                _ if self.split_sign() => ArithmeticOperator::Subtract,
                _ => {
                    self.want("an operator");
                    return Ok(left);
                }
            };
            if matches!(self.kind(), Kind::Plus | Kind::Minus) {
                self.advance();
            }
            self.count_operator()?;
            left = T::join(left, operator, self.product()?);
        }
    }

    fn product<T: Operand>(&mut self) -> Result<T> {
        let mut left = T::signed(self)?;
        while let Some(operator) = self.eat_product_operator() {
            self.count_operator()?;
            left = T::join(left, operator, T::signed(self)?);
        }
        Ok(left)
    }

    /// `*`, `/` or `%`.
    fn eat_product_operator(&mut self) -> Option<ArithmeticOperator> {
        let operator = match self.kind() {
            Kind::Star => ArithmeticOperator::Multiply,
            Kind::Slash => ArithmeticOperator::Divide,
            Kind::Percent => ArithmeticOperator::Modulo,
            _ => return None,
        };
        self.advance();
        Some(operator)
    }

    /// Takes the minus off a negative number, which after an operand is an operator: `a -1` is `a - 1`. Says
    /// whether there was one.
    fn split_sign(&mut self) -> bool {
        let negative = matches!(self.kind(), Kind::Integer | Kind::Float | Kind::Duration)
            && self.text().starts_with('-');
        if negative {
            self.cursor.token.start += 1;
            self.cursor.token.pos.column += 1;
        }
        negative
    }

    /// Whether the `+` here is followed by a column rather than by a term.
    fn column_follows_plus(&self) -> bool {
        match self.next_kind() {
            Kind::EmptyName => true,
            kind if kind.is_name() => !matches!(self.third_kind(), Kind::LeftParen | Kind::Dot),
            _ => false,
        }
    }
}
