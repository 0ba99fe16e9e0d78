//! `system_distributed`: the generations of streams of changes, as readers of change logs look for them.

use schema::Schema;

use crate::rows::{Datum, RowBuilder};

/// The partition of the list of generations.
const TIMESTAMPS: &str = "timestamps";

pub(crate) async fn fill(rows: &mut RowBuilder, schema: &Schema) {
    match rows.table().name.clone().as_str() {
        "cdc_generation_timestamps" => timestamps(rows, schema).await,
        "cdc_streams_descriptions_v2" => streams(rows, schema).await,
        _ => {}
    }
}

/// Each generation with the start of the next.
async fn timestamps(rows: &mut RowBuilder, schema: &Schema) {
    let generations = schema.cdc_generations();
    let row = |rows: &mut RowBuilder, (at, generation): (usize, &std::sync::Arc<schema::CdcGeneration>)| {
        let expired = generations.get(at + 1).map(|next| Datum::from(next.start_millis));
        rows.row([
            ("key", TIMESTAMPS.into()),
            ("time", generation.start_millis.into()),
            ("expired", expired.unwrap_or(Datum::Null)),
        ]);
    };
    rows.each(generations.iter().enumerate(), row).await;
}

/// The streams of each range.
async fn streams(rows: &mut RowBuilder, schema: &Schema) {
    for generation in schema.cdc_generations() {
        let vnodes = generation.vnodes.iter().enumerate();
        rows.each(vnodes, |rows, (range, vnode)| {
            let mut streams: Vec<[u8; 16]> = cdc::streams_of(generation, range).map(|id| id.0).collect();
            streams.sort_unstable();
            streams.dedup();
            rows.row([
                ("time", generation.start_millis.into()),
                ("range_end", vnode.upto.into()),
                ("streams", Datum::List(streams.iter().map(|id| Datum::Blob(id.to_vec())).collect())),
            ]);
        })
        .await;
    }
}
