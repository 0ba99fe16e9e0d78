//! Scan.

use exec::backend::Coordinator;
use items::Item;
use mutation::{PartitionRange, RingPosition};
use replica::{Partitions, ReadCommand, Resume};

use super::Dynamo;
use super::page::{Page, PageRequest, start_key, start_of_scan};
use crate::error::{Result, invalid};
use crate::reply::Reply;
use crate::request::Request;
use crate::table::ApiTable;

/// The most segments of a parallel scan.
const SEGMENTS_MAX: i64 = 1_000_000;

/// The tokens of a segment.
pub(super) fn segment_range(segment: i64, segments: i64) -> PartitionRange {
    let token = |at: i64| {
        // From 0 to 2^64, and from there to the least token.
        let place = (at as i128) * (1i128 << 64) / i128::from(segments);
        i64::try_from(place + i128::from(i64::MIN)).unwrap_or(i64::MAX)
    };
    let end = match segment + 1 == segments {
        true => RingPosition::AfterToken(i64::MAX),
        false => RingPosition::BeforeToken(token(segment + 1)),
    };
    PartitionRange { start: RingPosition::BeforeToken(token(segment)), end }
}

/// The refusal of a starting key that is of another segment.
pub(super) fn wrong_segment<T>((segment, total): (i64, i64)) -> Result<T> {
    invalid!(
        "The provided starting key is invalid: Invalid ExclusiveStartKey. Please use ExclusiveStartKey with correct \
         Segment. TotalSegments: {total} Segment: {segment}"
    )
}

/// `Segment` of `TotalSegments`.
fn segment(request: &Request) -> Result<(i64, i64)> {
    let segment = request.integer("Segment", 0, SEGMENTS_MAX - 1)?;
    let total = request.integer("TotalSegments", 1, SEGMENTS_MAX)?;
    match (segment, total) {
        (None, None) => Ok((0, 1)),
        (Some(segment), Some(total)) if segment < total => Ok((segment, total)),
        (Some(segment), Some(total)) => invalid!(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments: Segment: {segment} is \
             not less than TotalSegments: {total}"
        ),
        (Some(_), None) => invalid!(
            "The TotalSegments parameter is required but was not present in the request when Segment parameter is present"
        ),
        (None, Some(_)) => invalid!(
            "The Segment parameter is required but was not present in the request when parameter TotalSegments is present"
        ),
    }
}

/// The parameters of a Scan that can be checked without its table: the segment of so many, the key behind which it begins, and the page.
pub(super) fn scan_request(request: &Request) -> Result<((i64, i64), Option<Item>, PageRequest)> {
    request.table_name()?;
    let segments = segment(request)?;
    request.check_mixed(
        &["AttributesToGet", "ScanFilter", "ConditionalOperator"],
        &["ProjectionExpression", "FilterExpression"],
    )?;
    let substitutions = request.substitutions(&["FilterExpression"], &["ProjectionExpression"])?;
    let page = PageRequest::read(request, &substitutions, ("Scanning", "ScanFilter", "scanFilter"))?;
    substitutions.check_used()?;
    Ok((segments, start_key(request)?, page))
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn scan(&self, request: &Request) -> Result<Reply> {
        let index = request.index_name()?;
        let (segments, start, page) = scan_request(request)?;
        let table = self.table(request)?;
        let page = page.of_index(&table, index, "Scan")?;
        let found = self.scan_page(&table, segments, start, &page).await?;
        self.count_page(Some(&table), &found, &page);
        Ok(found.answer(request.named_table(), &page))
    }

    /// The items of a segment of so many behind `start`.
    pub(super) async fn scan_page(
        &self,
        table: &ApiTable,
        (segment, total): (i64, i64),
        start: Option<Item>,
        page: &PageRequest,
    ) -> Result<Page> {
        let range = segment_range(segment, total);
        let start = start.map(|key| start_of_scan(&key, table, page.index())).transpose()?;
        let resume = match start {
            None => None,
            Some(start) if range.contains(&start.partition) => Some(Resume {
                key: start.partition,
                clustering: table.range().map(|_| start.clustering),
                rows_in_partition: 0,
            }),
            Some(_) => return wrong_segment((segment, total)),
        };
        let partitions = Partitions::Range(range);
        let command = ReadCommand {
            resume,
            ..ReadCommand::all_of(table.table.clone(), partitions, self.store().now())
        };
        self.page(table, command, page).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_the_ring_without_gaps() {
        for total in [1, 2, 3, 7, 1_000_000] {
            let mut last = RingPosition::BeforeToken(i64::MIN);
            for at in 0..total {
                let range = segment_range(at, total);
                assert_eq!(range.start, last);
                last = range.end;
            }
            assert_eq!(last, RingPosition::AfterToken(i64::MAX));
        }
    }
}
