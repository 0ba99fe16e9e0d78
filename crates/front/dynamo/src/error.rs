//! Errors of the API: type, status and text.

use coordinator::RequestError;
use exec::ExecError;
use serde_json::{Value as Json, json};

use crate::reply::push_member;

/// The type of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the API's names")]
pub enum ErrorKind {
    Validation,
    /// A `Validation` of a key attribute of the table that is empty.
    EmptyKey,
    AccessDenied,
    IncompleteSignature,
    InvalidSignature,
    MissingAuthenticationToken,
    UnrecognizedClient,
    Serialization,
    PayloadTooLarge,
    UnknownOperation,
    ResourceNotFound,
    ResourceInUse,
    ConditionalCheckFailed,
    DuplicateItem,
    IdempotentParameterMismatch,
    TransactionCanceled,
    TransactionConflict,
    TransactionInProgress,
    RequestLimitExceeded,
    LimitExceeded,
    ExpiredIterator,
    TrimmedDataAccess,
    TableNotFound,
    ExportNotFound,
    ImportNotFound,
    ExportConflict,
    ImportConflict,
    InvalidExportTime,
    InvalidRestoreTime,
    BackupNotFound,
    BackupInUse,
    TableInUse,
    TableAlreadyExists,
    ContinuousBackupsUnavailable,
    PointInTimeRecoveryUnavailable,
    InternalServer,
    ServiceUnavailable,
}

impl ErrorKind {
    /// `__type` of the body.
    pub fn name(self) -> &'static str {
        match self {
            Self::Validation | Self::EmptyKey => "com.amazonaws.dynamodb.v20120810#ValidationException",
            Self::AccessDenied => "com.amazon.coral.service#AccessDeniedException",
            Self::IncompleteSignature => "com.amazon.coral.service#IncompleteSignatureException",
            Self::InvalidSignature => "com.amazon.coral.service#InvalidSignatureException",
            Self::MissingAuthenticationToken => {
                "com.amazon.coral.service#MissingAuthenticationTokenException"
            }
            Self::UnrecognizedClient => "com.amazon.coral.service#UnrecognizedClientException",
            Self::Serialization => "com.amazon.coral.service#SerializationException",
            Self::PayloadTooLarge => "com.amazonaws.dynamodb.v20120810#PayloadTooLarge",
            Self::UnknownOperation => "com.amazon.coral.service#UnknownOperationException",
            Self::ResourceNotFound => "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException",
            Self::ResourceInUse => "com.amazonaws.dynamodb.v20120810#ResourceInUseException",
            Self::ConditionalCheckFailed => {
                "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"
            }
            Self::DuplicateItem => "com.amazonaws.dynamodb.v20120810#DuplicateItemException",
            Self::IdempotentParameterMismatch => {
                "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException"
            }
            Self::TransactionCanceled => "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            Self::TransactionConflict => "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
            Self::TransactionInProgress => "com.amazonaws.dynamodb.v20120810#TransactionInProgressException",
            Self::RequestLimitExceeded => "com.amazonaws.dynamodb.v20120810#RequestLimitExceeded",
            Self::LimitExceeded => "com.amazonaws.dynamodb.v20120810#LimitExceededException",
            Self::ExpiredIterator => "com.amazonaws.dynamodb.v20120810#ExpiredIteratorException",
            Self::TrimmedDataAccess => "com.amazonaws.dynamodb.v20120810#TrimmedDataAccessException",
            Self::TableNotFound => "com.amazonaws.dynamodb.v20120810#TableNotFoundException",
            Self::ExportNotFound => "com.amazonaws.dynamodb.v20120810#ExportNotFoundException",
            Self::ImportNotFound => "com.amazonaws.dynamodb.v20120810#ImportNotFoundException",
            Self::ExportConflict => "com.amazonaws.dynamodb.v20120810#ExportConflictException",
            Self::ImportConflict => "com.amazonaws.dynamodb.v20120810#ImportConflictException",
            Self::InvalidExportTime => "com.amazonaws.dynamodb.v20120810#InvalidExportTimeException",
            Self::InvalidRestoreTime => "com.amazonaws.dynamodb.v20120810#InvalidRestoreTimeException",
            Self::BackupNotFound => "com.amazonaws.dynamodb.v20120810#BackupNotFoundException",
            Self::BackupInUse => "com.amazonaws.dynamodb.v20120810#BackupInUseException",
            Self::TableInUse => "com.amazonaws.dynamodb.v20120810#TableInUseException",
            Self::TableAlreadyExists => "com.amazonaws.dynamodb.v20120810#TableAlreadyExistsException",
            Self::ContinuousBackupsUnavailable => {
                "com.amazonaws.dynamodb.v20120810#ContinuousBackupsUnavailableException"
            }
            Self::PointInTimeRecoveryUnavailable => {
                "com.amazonaws.dynamodb.v20120810#PointInTimeRecoveryUnavailableException"
            }
            Self::InternalServer => "com.amazonaws.dynamodb.v20120810#InternalServerError",
            Self::ServiceUnavailable => "com.amazonaws.dynamodb.v20120810#ServiceUnavailable",
        }
    }

    /// Whether it is a `ValidationException`.
    pub fn is_validation(self) -> bool {
        matches!(self, Self::Validation | Self::EmptyKey)
    }

    /// The type without its namespace.
    pub fn short_name(self) -> &'static str {
        let name = self.name();
        name.rsplit_once('#').map_or(name, |(_, short)| short)
    }

    /// Status of HTTP.
    pub fn status(self) -> u16 {
        match self {
            Self::PayloadTooLarge => 413,
            Self::InternalServer => 500,
            Self::ServiceUnavailable => 503,
            _ => 400,
        }
    }
}

/// A request that did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// Its type.
    pub kind: ErrorKind,
    /// Its text.
    pub message: String,
    /// The text of the JSON of the item that a condition failed for, where it was asked for. A tree may have hundreds of times its bytes.
    pub item: Option<String>,
    /// Why a transaction was cancelled, for each of its items: texts of JSON.
    pub reasons: Vec<String>,
}

impl ApiError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), item: None, reasons: Vec::new() }
    }

    /// A `ValidationException`.
    pub fn validation(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Validation, message)
    }

    /// A condition that did not hold.
    pub fn condition_failed(item: Option<String>) -> Self {
        Self { item, ..Self::new(ErrorKind::ConditionalCheckFailed, "The conditional request failed") }
    }

    /// An insertion of an item that there is.
    pub fn duplicate() -> Self {
        Self::new(ErrorKind::DuplicateItem, "Duplicate primary key exists in table")
    }

    /// A transaction that is cancelled: why, for each of its items; none for those that were not the reason.
    pub fn cancelled(reasons: Vec<Option<Self>>) -> Self {
        let code = |reason: &Option<Self>| reason.as_ref().map_or("None", Self::reason_code);
        let codes: Vec<&str> = reasons.iter().map(code).collect();
        let message = format!(
            "Transaction cancelled, please refer cancellation reasons for specific reasons [{}]",
            codes.join(", ")
        );
        let shown = |reason: Option<Self>| match reason {
            None => json!({ "Code": "None" }).to_string(),
            Some(error) => {
                let shown = json!({ "Code": error.reason_code(), "Message": error.message });
                with_item(&shown, error.item.as_deref())
            }
        };
        let reasons = reasons.into_iter().map(shown).collect();
        Self { reasons, ..Self::new(ErrorKind::TransactionCanceled, message) }
    }

    /// The code of the error of a statement of a batch.
    pub fn batch_code(&self) -> &'static str {
        match self.kind {
            ErrorKind::ConditionalCheckFailed => "ConditionalCheckFailed",
            ErrorKind::DuplicateItem => "DuplicateItem",
            ErrorKind::TransactionConflict => "TransactionConflict",
            ErrorKind::ResourceNotFound => "ResourceNotFound",
            ErrorKind::AccessDenied => "AccessDenied",
            ErrorKind::RequestLimitExceeded => "RequestLimitExceeded",
            ErrorKind::Validation | ErrorKind::EmptyKey | ErrorKind::Serialization => "ValidationError",
            _ => "InternalServerError",
        }
    }

    fn reason_code(&self) -> &'static str {
        match self.kind {
            ErrorKind::ConditionalCheckFailed => "ConditionalCheckFailed",
            ErrorKind::DuplicateItem => "DuplicateItem",
            ErrorKind::TransactionConflict => "TransactionConflict",
            _ => "ValidationError",
        }
    }

    /// Whether the same request may succeed a little later.
    pub fn is_passing(&self) -> bool {
        let passing = [
            ErrorKind::InternalServer,
            ErrorKind::RequestLimitExceeded,
            ErrorKind::ServiceUnavailable,
            ErrorKind::TransactionConflict,
        ];
        passing.contains(&self.kind)
    }

    /// Whether the condition of a write did not hold.
    pub fn is_failed_condition(&self) -> bool {
        matches!(self.kind, ErrorKind::ConditionalCheckFailed | ErrorKind::DuplicateItem)
    }

    /// Whether it is a reason to cancel a transaction, and not a failure to carry it out.
    pub fn is_reason(&self) -> bool {
        let reasons = [
            ErrorKind::ConditionalCheckFailed,
            ErrorKind::DuplicateItem,
            ErrorKind::TransactionConflict,
            ErrorKind::Validation,
            ErrorKind::EmptyKey,
        ];
        reasons.contains(&self.kind)
    }

    /// The error of a statement of a batch: the text of its JSON.
    pub fn batch_text(&self) -> String {
        let shown = json!({ "Code": self.batch_code(), "Message": self.message });
        with_item(&shown, self.item.as_deref())
    }

    /// The body: the text of its JSON.
    pub fn body(&self) -> String {
        let body = json!({ "__type": self.kind.name(), "message": self.message });
        if self.reasons.is_empty() {
            return with_item(&body, self.item.as_deref());
        }
        let mut body = body.to_string();
        // Clients of this error look for a capital letter.
        push_member(&mut body, "Message", |out| *out += &Json::from(self.message.as_str()).to_string());
        push_member(&mut body, "CancellationReasons", |out| {
            out.push('[');
            for (at, reason) in self.reasons.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                out.push_str(reason);
            }
            out.push(']');
        });
        body
    }
}

/// The text of an object that is not empty, with the text of an item behind its members.
fn with_item(object: &Json, item: Option<&str>) -> String {
    let mut text = object.to_string();
    if let Some(item) = item {
        text.reserve_exact(item.len() + 10);
        push_member(&mut text, "Item", |out| out.push_str(item));
    }
    text
}

impl From<items::Error> for ApiError {
    fn from(error: items::Error) -> Self {
        match error {
            items::Error::Validation(text) => Self::validation(text),
            items::Error::Serialization(text) => Self::new(ErrorKind::Serialization, text),
        }
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Overloaded(text) => Self::new(ErrorKind::RequestLimitExceeded, text),
            error @ RequestError::RateLimit { .. } => {
                Self::new(ErrorKind::RequestLimitExceeded, error.to_string())
            }
            RequestError::Invalid(text) => Self::validation(text),
            RequestError::Unavailable { consistency, required, alive } => Self::new(
                ErrorKind::ServiceUnavailable,
                format!(
                    "{} needs {required} replicas, and {alive} are alive; nothing was tried",
                    consistency.name()
                ),
            ),
            other => Self::new(
                ErrorKind::InternalServer,
                format!("The request was not carried out in time: {other}"),
            ),
        }
    }
}

impl From<ExecError> for ApiError {
    fn from(error: ExecError) -> Self {
        match error {
            ExecError::Request(error) => error.into(),
            ExecError::Invalid(text) => Self::validation(text),
            ExecError::Unauthorized(text) => Self::new(ErrorKind::AccessDenied, text),
            other => Self::new(ErrorKind::InternalServer, format!("{other:?}")),
        }
    }
}

/// A result of this crate.
pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

/// A `ValidationException` with this text.
macro_rules! invalid {
    ($($text:tt)*) => { Err($crate::error::ApiError::validation(format!($($text)*))) };
}
pub(crate) use invalid;
