//! The names of the operations.

/// The operations that there are.
pub(crate) const OPERATIONS: [&str; 44] = [
    "BatchExecuteStatement",
    "BatchGetItem",
    "BatchWriteItem",
    "CreateBackup",
    "CreateTable",
    "DeleteBackup",
    "DeleteItem",
    "DeleteTable",
    "DescribeBackup",
    "DescribeContinuousBackups",
    "DescribeEndpoints",
    "DescribeExport",
    "DescribeImport",
    "DescribeLimits",
    "DescribeStream",
    "DescribeTable",
    "DescribeTimeToLive",
    "ExecuteStatement",
    "ExecuteTransaction",
    "ExportTableToPointInTime",
    "GetItem",
    "GetRecords",
    "GetShardIterator",
    "ImportTable",
    "ListBackups",
    "ListExports",
    "ListImports",
    "ListStreams",
    "ListTables",
    "ListTagsOfResource",
    "PutItem",
    "Query",
    "RestoreTableFromBackup",
    "RestoreTableToPointInTime",
    "Scan",
    "SearchVectors",
    "TagResource",
    "TransactGetItems",
    "TransactWriteItems",
    "UntagResource",
    "UpdateContinuousBackups",
    "UpdateItem",
    "UpdateTable",
    "UpdateTimeToLive",
];

/// The operations of the API of streams, which has a target of its own.
const STREAM_OPERATIONS: [&str; 4] = ["DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"];

/// The operation that an `X-Amz-Target` names.
pub(crate) fn of_target(target: &str) -> Option<&str> {
    let (version, operation) = target.split_once('.')?;
    let is_of_streams = STREAM_OPERATIONS.contains(&operation);
    match version {
        "DynamoDB_20120810" if !is_of_streams => Some(operation),
        "DynamoDBStreams_20120810" if is_of_streams => Some(operation),
        _ => None,
    }
}

/// Operations of AWS that are refused by name.
pub(super) const UNSUPPORTED: [&str; 22] = [
    "CancelBulkOperation",
    "CreateGlobalTable",
    "DeleteResourcePolicy",
    "DescribeBulkOperation",
    "DescribeContributorInsights",
    "DescribeGlobalTable",
    "DescribeGlobalTableSettings",
    "DescribeKinesisStreamingDestination",
    "DescribeTableReplicaAutoScaling",
    "DisableKinesisStreamingDestination",
    "EnableKinesisStreamingDestination",
    "GetResourcePolicy",
    "ListBulkOperations",
    "ListContributorInsights",
    "ListGlobalTables",
    "PutResourcePolicy",
    "StartBulkPutItems",
    "UpdateContributorInsights",
    "UpdateGlobalTable",
    "UpdateGlobalTableSettings",
    "UpdateKinesisStreamingDestination",
    "UpdateTableReplicaAutoScaling",
];
