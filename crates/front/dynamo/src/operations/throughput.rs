//! `OnDemandThroughput` and `WarmThroughput` of tables and global indexes, which are kept and shown.

use items::json;
use serde_json::{Map, Value as Json, json as to_json};

use crate::error::{Result, invalid};
use crate::request::Request;
use crate::table::Details;
use crate::throughput::{Throughput, warm_at_least};

const WRONG: &str = "One or more parameter values were invalid:";
/// The parameters, and their members for reads and writes.
const MOST: &str = "OnDemandThroughput";
const MOST_UNITS: [&str; 2] = ["MaxReadRequestUnits", "MaxWriteRequestUnits"];
const WARM: &str = "WarmThroughput";
const WARM_UNITS: [&str; 2] = ["ReadUnitsPerSecond", "WriteUnitsPerSecond"];
const UNITS_MAX: i64 = 1_000_000_000_000;

/// The owner of the throughput, and its billing.
struct Subject<'a> {
    /// The name of an index; none for the table.
    index: Option<&'a str>,
    on_demand: bool,
    /// The provisioned units.
    units: [i64; 2],
    is_created: bool,
}

/// The units of a parameter, for reads and writes; none where they are not given.
fn units_of(parameter: Option<&Json>, members: [&str; 2]) -> Result<[Option<i64>; 2]> {
    let Some(fields) = parameter.map(json::read_map).transpose()? else { return Ok([None; 2]) };
    let mut units = [None; 2];
    for (units, name) in units.iter_mut().zip(members) {
        *units = fields.get(name).filter(|value| !value.is_null()).map(json::read_integer).transpose()?;
        if let Some(units) = units.filter(|units| *units > UNITS_MAX) {
            return invalid!("Given value {units} for {name} is out of bounds");
        }
    }
    Ok(units)
}

/// `OnDemandThroughput` and `WarmThroughput` of an index.
fn parameters(index: &Json) -> [Option<&Json>; 2] {
    [MOST, WARM].map(|name| index.get(name).filter(|value| !value.is_null()))
}

/// Whether one of both parameters gives units.
fn gives_units([most, warm]: [Option<&Json>; 2]) -> Result<bool> {
    let (most, warm) = (units_of(most, MOST_UNITS)?, units_of(warm, WARM_UNITS)?);
    Ok(most.iter().chain(&warm).any(Option::is_some))
}

/// Whether a request changes the throughput of the table.
pub(super) fn is_given(request: &Request) -> Result<bool> {
    gives_units([MOST, WARM].map(|name| request.get(name)))
}

/// Whether an update of an index changes its throughput.
pub(super) fn is_given_to(index: &Json) -> Result<bool> {
    gives_units(parameters(index))
}

impl Subject<'_> {
    /// The throughput with the units of both parameters.
    fn changed(&self, mut throughput: Throughput, [most, warm]: [Option<&Json>; 2]) -> Result<Throughput> {
        let of = self.index.map_or_else(|| "table".to_owned(), |name| format!("index : {name}"));
        for ((most, units), name) in
            throughput.most.iter_mut().zip(units_of(most, MOST_UNITS)?).zip(MOST_UNITS)
        {
            let Some(units) = units else { continue };
            if !self.on_demand {
                let of = self.index.map(|name| format!(" for index: {name}")).unwrap_or_default();
                let when = match self.index {
                    None if self.is_created => "when table BillingMode is PROVISIONED.",
                    _ => "when the table BillingMode is PROVISIONED",
                };
                return invalid!("{WRONG} {name} for {MOST}{of} cannot be specified {when}");
            }
            *most = match units {
                // It takes the maximum away.
                -1 if !self.is_created => None,
                1.. => Some(units),
                _ => {
                    return invalid!(
                        "{WRONG} Requested {name} for {MOST} for {of} is outside of valid range"
                    );
                }
            };
        }
        throughput = throughput.raised_to(warm_at_least(self.on_demand, self.units));
        for (at, units) in units_of(warm, WARM_UNITS)?.into_iter().enumerate() {
            if let (Some(units), Some(warm)) = (units, throughput.warm.get_mut(at)) {
                if units < *warm {
                    return self.too_low(at);
                }
                *warm = units;
            }
        }
        Ok(throughput)
    }

    /// The error for a warm throughput that is lower than it may be, of reads (0) or writes (1).
    fn too_low<T>(&self, at: usize) -> Result<T> {
        let of = self.index.map_or_else(|| "table".to_owned(), |name| format!("index {name}"));
        let name = WARM_UNITS.get(at).unwrap_or(&WARM);
        let units = if at == 0 { "ReadCapacityUnits" } else { "WriteCapacityUnits" };
        let why = match (self.is_created, self.on_demand) {
            (false, _) => "current WarmThroughput, decreasing WarmThroughput is not supported".to_owned(),
            (true, true) => {
                "initial throughput for OnDemand. See: https://docs.aws.amazon.com/amazondynamodb/latest/\
                             developerguide/on-demand-capacity-mode.html#on-demand-capacity-mode-initial"
                    .to_owned()
            }
            (true, false) => format!("{units} of ProvisionedThroughput"),
        };
        invalid!("{WRONG} Requested {name} for {WARM} for {of} is lower than {why}")
    }
}

/// Refuses provisioned units for reads and writes, of an index or the table, that are the present ones.
pub(super) fn check_units_change(index: Option<&str>, was: [i64; 2], units: [i64; 2]) -> Result<()> {
    if was != units {
        return Ok(());
    }
    let of = index.map_or_else(|| "the table".to_owned(), |name| format!("index {name}"));
    let subject = if index.is_some() { format!("the {of}") } else { of.clone() };
    let [reads, writes] = was;
    invalid!(
        "The provisioned throughput for {subject} will not change. The requested value equals the current value. Current \
         ReadCapacityUnits provisioned for {of}: {reads}. Requested ReadCapacityUnits: {reads}. Current WriteCapacityUnits \
         provisioned for {of}: {writes}. Requested WriteCapacityUnits: {writes}. Refer to the Amazon DynamoDB Developer Guide \
         for current limits and how to request higher limits."
    )
}

/// Refuses a provisioned table with a global index that is not.
pub(super) fn check_provisioned(details: &Details) -> Result<()> {
    let mut indexes = details.indexes.iter().filter(|index| index.is_global && !details.on_demand);
    match indexes.find(|index| index.read_units == 0 || index.write_units == 0) {
        Some(index) => invalid!("{WRONG} ProvisionedThroughput must be specified for index: {}", index.name),
        None => Ok(()),
    }
}

/// The throughput of a table that is to be created, and of its global indexes.
pub(super) fn created(request: &Request, details: &mut Details) -> Result<()> {
    let table = Subject {
        index: None,
        on_demand: details.on_demand,
        units: [details.read_units, details.write_units],
        is_created: true,
    };
    details.throughput = table.changed(Throughput::default(), [MOST, WARM].map(|name| request.get(name)))?;
    let indexes = request.get("GlobalSecondaryIndexes").map(json::read_list).transpose()?.unwrap_or_default();
    for json in indexes {
        change_index(details, json, true)?;
    }
    Ok(())
}

/// Gives an index of the table the units of the part of a request that names it.
fn change_index(details: &mut Details, json: &Json, is_created: bool) -> Result<()> {
    let name = json.get("IndexName").and_then(Json::as_str).unwrap_or_default();
    let Some(index) = details.indexes.iter().find(|index| index.is_global && index.name == name) else {
        return Ok(());
    };
    let units = [index.read_units, index.write_units];
    let subject = Subject { index: Some(name), on_demand: details.on_demand, units, is_created };
    let known = details.index_throughput.get(name).copied().unwrap_or_default();
    let changed = subject.changed(known, parameters(json))?;
    details.index_throughput.insert(name.to_owned(), changed);
    Ok(())
}

/// Refuses an UpdateTable that gives throughput together with changes that AWS does not take with it.
pub(super) fn check_alone(request: &Request) -> Result<()> {
    const OTHERS: [&str; 5] = [
        "ProvisionedThroughput",
        "TableClass",
        "DeletionProtectionEnabled",
        "StreamSpecification",
        "VectorIndexUpdates",
    ];
    let has_others = OTHERS.into_iter().any(|name| request.has(name));
    if request.has(WARM) {
        if has_others || request.has("BillingMode") || request.has(MOST) {
            return invalid!("{WRONG} WarmThroughput must be the only operation in the request");
        }
        let actions = request.get("GlobalSecondaryIndexUpdates").and_then(Json::as_array);
        if actions.into_iter().flatten().any(|one| one.get("Create").is_some_and(|value| !value.is_null())) {
            return invalid!(
                "{WRONG} Create global secondary index cannot be specified when updating WarmThroughput"
            );
        }
    }
    if request.has(MOST) && has_others {
        return invalid!(
            "{WRONG} OnDemandThroughput can only be combined with BillingMode in an UpdateTable request"
        );
    }
    Ok(())
}

/// The throughput of a table that is changed, whose billing and indexes are those of after the change.
pub(super) fn updated(request: &Request, details: &mut Details) -> Result<()> {
    let table = Subject {
        index: None,
        on_demand: details.on_demand,
        units: [details.read_units, details.write_units],
        is_created: false,
    };
    details.throughput = table.changed(details.throughput, [MOST, WARM].map(|name| request.get(name)))?;
    let updates = request.get("GlobalSecondaryIndexUpdates").map(json::read_list).transpose()?;
    for update in updates.unwrap_or_default() {
        for (kind, is_created) in [("Create", true), ("Update", false)] {
            if let Some(action) = update.get(kind).filter(|action| !action.is_null()) {
                change_index(details, action, is_created)?;
            }
        }
    }
    let Details { indexes, index_throughput, on_demand, throughput, .. } = details;
    index_throughput.retain(|name, _| indexes.iter().any(|index| index.is_global && index.name == *name));
    // Provisioned throughput has no maximum on demand.
    if !*on_demand {
        throughput.most = [None; 2];
        index_throughput.values_mut().for_each(|of| of.most = [None; 2]);
    }
    // The billing has changed for indexes that the request does not name, too.
    for index in indexes.iter().filter(|index| index.is_global) {
        let least = warm_at_least(*on_demand, [index.read_units, index.write_units]);
        let of = index_throughput.entry(index.name.clone()).or_default();
        *of = of.raised_to(least);
    }
    Ok(())
}

/// Adds the throughput of a table or an index to its description.
pub(super) fn describe(throughput: Throughput, least: [i64; 2], members: &mut Map<String, Json>) {
    let most = MOST_UNITS.into_iter().zip(throughput.most);
    let most: Map<String, Json> =
        most.filter_map(|(name, units)| Some((name.to_owned(), units?.into()))).collect();
    if !most.is_empty() {
        members.insert(MOST.to_owned(), Json::Object(most));
    }
    let [read, write] = throughput.raised_to(least).warm;
    let [read_name, write_name] = WARM_UNITS;
    members.insert(WARM.to_owned(), to_json!({ read_name: read, write_name: write, "Status": "ACTIVE" }));
}
