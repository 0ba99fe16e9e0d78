//! DescribeEndpoints and DescribeLimits.

use serde_json::{Value as Json, json};

use crate::error::{ApiError, ErrorKind, Result};

/// The answer to DescribeEndpoints, by ScyllaDB's option `alternator_describe_endpoints`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DescribedEndpoint {
    /// The `Host` of the request: clients come back to where they found the node.
    #[default]
    Host,
    /// This one.
    Fixed(String),
    /// None: the operation is refused.
    Disabled,
}

impl DescribedEndpoint {
    /// By the option's value: nothing, `disabled` or an endpoint.
    pub fn from_option(value: &str) -> Self {
        match value {
            "" => Self::Host,
            "disabled" => Self::Disabled,
            endpoint => Self::Fixed(endpoint.to_owned()),
        }
    }

    pub(super) fn answer(&self, host: &str) -> Result<Json> {
        let address = match self {
            Self::Host => host,
            Self::Fixed(endpoint) => endpoint,
            Self::Disabled => {
                let text = "DescribeEndpoints is disabled by the option alternator_describe_endpoints";
                return Err(ApiError::new(ErrorKind::UnknownOperation, text));
            }
        };
        Ok(json!({ "Endpoints": [{ "Address": address, "CachePeriodInMinutes": 1440 }] }))
    }
}

/// AWS's limits of an account, none of which is enforced.
pub(super) fn limits() -> Json {
    json!({
        "AccountMaxReadCapacityUnits": 80_000,
        "AccountMaxWriteCapacityUnits": 80_000,
        "TableMaxReadCapacityUnits": 40_000,
        "TableMaxWriteCapacityUnits": 40_000,
    })
}
