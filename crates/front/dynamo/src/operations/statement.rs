//! The PartiQL statement of a request.

use std::rc::Rc;

use items::json;
use items::partiql::{STATEMENT_MAX, Statement};

use crate::error::Result;
use crate::request::{Request, constraint};

/// The statement of a request, or of a part of one.
pub(crate) fn parse(request: &Request) -> Result<Statement> {
    let text = json::read_string(request.required("Statement")?)?;
    let bound = match text.chars().count() {
        0 => "greater than or equal to 1",
        count if count > STATEMENT_MAX => "less than or equal to 8192",
        _ => {
            let parameters = match request.get("Parameters").map(json::read_list).transpose()? {
                Some([]) => {
                    return constraint(
                        "[]",
                        "parameters",
                        "Member must have length greater than or equal to 1",
                    );
                }
                Some(list) => {
                    list.iter().map(|one| Ok(Rc::new(json::read_value(one)?))).collect::<Result<_>>()?
                }
                None => Vec::new(),
            };
            return Ok(Statement::parse(text, &parameters)?);
        }
    };
    constraint(text, "statement", &format!("Member must have length {bound}"))
}
