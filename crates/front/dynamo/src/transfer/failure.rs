//! Why an export or import has failed.

use rt::DiskError;

use super::place::PlaceError;
use crate::error::ApiError;

/// Why an export or import has failed: AWS's code, and a text.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let code = if error.kind.is_validation() { "ValidationException" } else { "InternalServerError" };
        Self::new(code, error.message)
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Self {
        Self::new("S3AccessDenied", error.to_string())
    }
}

impl From<DiskError> for Failure {
    fn from(error: DiskError) -> Self {
        Self::new("InternalServerError", error.to_string())
    }
}
