//! Reading rows and markers.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, ColumnSelection, Complex, ComplexCell, DeletionTime, LivenessInfo, NO_DELETION,
    NO_TIMESTAMP, Row, Seconds, Timestamp,
};
use schema::{Column, ColumnId, ColumnKind, Table};
use smallvec::SmallVec;
use stdx::{Reader, vint};
use types::{CqlType, encode_clustering_into};

use super::{
    CELL_DELETED, CELL_EMPTY, CELL_EXPIRING, CELL_ROW_TIMESTAMP, CELL_ROW_TTL, END_OF_PARTITION,
    EXTENSION_SHADOWABLE, EXTENSION_STATIC, HAS_ALL_COLUMNS, HAS_COMPLEX_DELETION, HAS_DELETION,
    HAS_EXTENSION, HAS_TIMESTAMP, HAS_TTL, IS_MARKER, LARGE_SUBSET,
};
use crate::EncodingStats;
use crate::header::{HeaderColumn, SerializationHeader};
use crate::prefix::{self, Kind, ParseError, ValueType, Values};
use crate::version::Limits;

/// The reader's interpretation of a column of the file.
#[derive(Clone, Debug)]
struct ReadColumn {
    /// The table's column; none for columns that it does not have.
    id: Option<ColumnId>,
    fixed: Option<u32>,
    is_complex: bool,
    /// Cells up to this timestamp were dropped with the column.
    dropped: Timestamp,
}

/// Decodes the items of one data file into rows of the table as it is now.
#[derive(Debug)]
pub(crate) struct ItemDecoder {
    encoding: EncodingStats,
    types: Vec<ValueType>,
    /// Types and direction of the clustering columns.
    order: Vec<(CqlType, bool)>,
    statics: Vec<ReadColumn>,
    regulars: Vec<ReadColumn>,
}

/// Whether the cells of each column keep their values; `None` when all do.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    statics: Option<Box<[bool]>>,
    regulars: Option<Box<[bool]>>,
}

/// An item whose body was not looked into yet.
pub(crate) enum Item<'a> {
    Row { flags: u8, values: Values<'a>, body: &'a [u8] },
    Marker { kind: Kind, values: Values<'a>, ends: DeletionTime, starts: DeletionTime },
    End,
}

impl ItemDecoder {
    /// A decoder for a file with this header, or how the file does not fit the table.
    pub(crate) fn new(header: &SerializationHeader, table: &Table) -> Result<Self, String> {
        let mine = table.clustering_types();
        if mine.len() != header.clustering_types.len() {
            return Err(format!(
                "it has {} clustering columns, the table {}",
                header.clustering_types.len(),
                mine.len()
            ));
        }
        for (column, ((ty, descending), (theirs, theirs_descending))) in
            table.clustering().iter().zip(mine.iter().zip(&header.clustering_types))
        {
            if ty.fixed_len() != theirs.fixed_len() || descending != theirs_descending {
                let order = |down: &bool| if *down { "descending" } else { "ascending" };
                return Err(format!(
                    "its clustering column {} is {theirs} {}, the table's {ty} {}",
                    column.name,
                    order(theirs_descending),
                    order(descending)
                ));
            }
        }
        let columns = |columns: &[HeaderColumn], kind: ColumnKind| {
            columns.iter().map(|column| ReadColumn::new(column, kind, table)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            encoding: header.encoding,
            types: mine.iter().map(|(ty, _)| ValueType::new(ty)).collect(),
            order: mine.to_vec(),
            statics: columns(&header.statics, ColumnKind::Static)?,
            regulars: columns(&header.regulars, ColumnKind::Regular)?,
        })
    }

    pub(crate) fn types(&self) -> &[ValueType] {
        &self.types
    }

    pub(crate) fn order(&self) -> &[(CqlType, bool)] {
        &self.order
    }

    /// Whether partitions of the file have a static row, which may be empty.
    pub(crate) fn has_static(&self) -> bool {
        !self.statics.is_empty()
    }

    pub(crate) fn selection(&self, columns: &ColumnSelection) -> Selection {
        let ColumnSelection::Some(_) = columns else {
            return Selection::default();
        };
        let pick = |all: &[ReadColumn]| {
            let picked: Box<[bool]> =
                all.iter().map(|c| c.id.is_some_and(|id| columns.contains(id))).collect();
            Some(picked).filter(|picked| picked.contains(&false))
        };
        Selection { statics: pick(&self.statics), regulars: pick(&self.regulars) }
    }

    /// Reads the item at the front of `bytes`; gives it with its length.
    #[inline]
    pub(crate) fn item<'a>(&self, bytes: &'a [u8]) -> Result<(Item<'a>, usize), ParseError> {
        let mut reader = Reader::new(bytes);
        let flags = reader.u8()?;
        if flags & END_OF_PARTITION != 0 {
            return Ok((Item::End, 1));
        }
        let mut values = Values::new();
        let item = if flags & IS_MARKER != 0 {
            let byte = reader.u8()?;
            let kind = Kind::of(byte).ok_or_else(|| ParseError::invalid("the kind of a bound", byte))?;
            let Some((ends, starts)) = kind.ends_and_starts() else {
                return Err(ParseError::invalid("the kind of a bound", byte));
            };
            prefix::read_bound(&self.types, &mut reader, &mut values)?;
            let mut body = Reader::new(read_body(&mut reader)?);
            let mut deletion = |there: bool| match there {
                true => self.encoding.read_deletion(&mut body).map_err(|_| too_short()),
                false => Ok(DeletionTime::LIVE),
            };
            let (ends, starts) = (deletion(ends)?, deletion(starts)?);
            Item::Marker { kind, values, ends, starts }
        } else {
            if flags & HAS_EXTENSION != 0 {
                // A shadowable deletion, which only views of old versions have, is read as a plain one.
                let extension = reader.u8()?;
                if extension & !EXTENSION_SHADOWABLE != 0 {
                    return Err(ParseError::invalid("a row that is not static", extension));
                }
            }
            prefix::read_values(&self.types, self.types.len(), &mut reader, &mut values)?;
            Item::Row { flags, values, body: read_body(&mut reader)? }
        };
        Ok((item, bytes.len() - reader.len()))
    }

    /// Reads the static row at the front of `bytes`; gives it, unless it is empty, with its length.
    pub(crate) fn static_row(
        &self,
        bytes: &[u8],
        selection: &Selection,
    ) -> Result<(Option<Row>, usize), ParseError> {
        let mut reader = Reader::new(bytes);
        let flags = reader.u8()?;
        let extension = if flags & HAS_EXTENSION != 0 { reader.u8()? } else { 0 };
        if flags & (END_OF_PARTITION | IS_MARKER) != 0 || extension & EXTENSION_STATIC == 0 {
            return Err(ParseError::invalid("a static row", format!("flags {flags:02x} {extension:02x}")));
        }
        let body = read_body(&mut reader)?;
        let row = self.body(flags, body, &self.statics, selection.statics.as_deref(), Clustering::empty())?;
        Ok(((!row.is_empty()).then_some(row), bytes.len() - reader.len()))
    }

    /// Builds a row from its parts.
    #[inline]
    pub(crate) fn row(
        &self,
        flags: u8,
        body: &[u8],
        clustering: Clustering,
        selection: &Selection,
    ) -> Result<Row, ParseError> {
        self.body(flags, body, &self.regulars, selection.regulars.as_deref(), clustering)
    }

    fn body(
        &self,
        flags: u8,
        bytes: &[u8],
        columns: &[ReadColumn],
        selected: Option<&[bool]>,
        clustering: Clustering,
    ) -> Result<Row, ParseError> {
        let mut body = BodyReader {
            reader: Reader::new(bytes),
            bytes,
            shared: None,
            encoding: &self.encoding,
            liveness: LivenessInfo::NONE,
            share: columns.len() > 1,
        };
        let out = body.read(flags, columns, selected, clustering);
        // The body is all there: its missing part cannot come with more bytes.
        out.map_err(|error| if matches!(error, ParseError::Short(_)) { too_short() } else { error })
    }

    /// Makes `buffer` the buffer of a [`Clustering`] or the position of a bound with these values; gives the length of the
    /// values' part.
    #[inline]
    pub(crate) fn encode_position(&self, values: &Values<'_>, kind: Kind, buffer: &mut Vec<u8>) -> usize {
        buffer.clear();
        for value in values {
            match value {
                Some(value) => {
                    buffer.extend_from_slice(&(value.len() as u32).to_be_bytes());
                    buffer.extend_from_slice(value);
                }
                None => buffer.extend_from_slice(&(-1i32).to_be_bytes()),
            }
        }
        let values_len = buffer.len();
        let types = self.order.get(..values.len()).unwrap_or_default();
        encode_clustering_into(types, values.iter().copied(), kind.terminator(), buffer);
        values_len
    }
}

impl ReadColumn {
    fn new(column: &HeaderColumn, kind: ColumnKind, table: &Table) -> Result<Self, String> {
        let is_complex = column.ty.is_multi_cell();
        let mine = table.column(&column.name).filter(|mine| mine.kind == kind);
        let is_alike = |mine: &&Column| {
            mine.is_complex() == is_complex && mine.ty.is_counter() == column.ty.is_counter()
        };
        let dropped = table.dropped_columns.get(&column.name);
        if let (Some(mine), None) = (mine.filter(|mine| !is_alike(mine)), dropped) {
            return Err(format!("its column {} is {}, the table's {}", column.name, column.ty, mine.ty));
        }
        // Of a column that was dropped and added in another form: the cells of before are dropped ones.
        let mine = mine.filter(is_alike);
        let dropped = dropped.map_or(NO_TIMESTAMP, |dropped| dropped.dropped_micros);
        Ok(Self {
            id: mine.map(|mine| mine.id),
            fixed: if is_complex {
                None
            } else {
                column.ty.fixed_len().and_then(|len| u32::try_from(len).ok())
            },
            is_complex,
            dropped,
        })
    }
}

fn too_short() -> ParseError {
    ParseError::invalid("a body as long as its content", "a shorter one")
}

/// Reads the sizes before a body, and the body without them.
#[inline]
fn read_body<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], ParseError> {
    let len = vint::read_unsigned(reader)?;
    let len = usize::try_from(len).ok().filter(|len| *len < BODY_LEN_MAX);
    let len = len.ok_or_else(|| ParseError::invalid("a row of less than 4 GiB", "a longer one"))?;
    let mut body = Reader::new(reader.bytes(len)?);
    vint::read_unsigned(&mut body).map_err(|_| too_short())?;
    Ok(body.rest())
}

const BODY_LEN_MAX: usize = 1 << 32;

struct BodyReader<'a> {
    reader: Reader<'a>,
    bytes: &'a [u8],
    /// A copy of the whole body of which values are slices, so that a row takes one allocation for all of them.
    shared: Option<Bytes>,
    /// Whether that is worth it.
    share: bool,
    encoding: &'a EncodingStats,
    liveness: LivenessInfo,
}

impl<'a> BodyReader<'a> {
    fn read(
        &mut self,
        flags: u8,
        columns: &[ReadColumn],
        selected: Option<&[bool]>,
        clustering: Clustering,
    ) -> Result<Row, ParseError> {
        if flags & HAS_TIMESTAMP != 0 {
            self.liveness.timestamp = self.encoding.read_timestamp(&mut self.reader)?;
            if flags & HAS_TTL != 0 {
                self.liveness.ttl = self.encoding.read_ttl(&mut self.reader)?;
                self.liveness.expires = self.encoding.read_local(&mut self.reader)?;
                check_expiry(self.liveness.ttl, self.liveness.expires)?;
            }
        }
        let mut deletion = DeletionTime::LIVE;
        if flags & HAS_DELETION != 0 {
            deletion = self.encoding.read_deletion(&mut self.reader)?;
        }
        let has_complex_deletion = flags & HAS_COMPLEX_DELETION != 0;
        let mut out: Vec<(ColumnId, ColumnData)>;
        if flags & HAS_ALL_COLUMNS != 0 {
            out = Vec::with_capacity(columns.len());
            for (place, column) in columns.iter().enumerate() {
                self.column(column, is_selected(selected, place), has_complex_deletion, &mut out)?;
            }
        } else {
            let places = self.subset(columns.len())?;
            out = Vec::with_capacity(places.len());
            for place in places {
                let place = usize::from(place);
                let column =
                    columns.get(place).ok_or_else(|| ParseError::invalid("a column of the header", place))?;
                self.column(column, is_selected(selected, place), has_complex_deletion, &mut out)?;
            }
        }
        if !self.reader.is_empty() {
            return Err(ParseError::invalid(
                "the end of the row",
                format!("{} bytes more", self.reader.len()),
            ));
        }
        let mut row = Row::from_columns(clustering, out);
        row.liveness = self.liveness;
        row.deletion = deletion;
        // Other writers may leave cells beside the deletion that hides them.
        row.normalise();
        Ok(row)
    }

    /// The places of the columns that the row has, in order.
    fn subset(&mut self, all: usize) -> Result<SmallVec<[u16; 16]>, ParseError> {
        let coded = vint::read_unsigned(&mut self.reader)?;
        if all < LARGE_SUBSET {
            if coded >> all != 0 {
                return Err(ParseError::invalid("bits of columns that exist", format!("{coded:b}")));
            }
            return Ok((0..all as u16).filter(|place| coded & (1 << place) == 0).collect());
        }
        let Some(there) = usize::try_from(coded).ok().and_then(|missing| all.checked_sub(missing)) else {
            return Err(ParseError::invalid("at most as many missing columns as there are columns", coded));
        };
        let listed = if there < all / 2 { there } else { all - there };
        let mut list: SmallVec<[u16; 16]> = SmallVec::new();
        for _ in 0..listed {
            let place = vint::read_unsigned(&mut self.reader)?;
            let rising = list.last().is_none_or(|last| u64::from(*last) < place);
            if place >= all as u64 || !rising {
                return Err(ParseError::invalid("rising numbers of columns", place));
            }
            list.push(place as u16);
        }
        if there < all / 2 {
            return Ok(list);
        }
        Ok((0..all as u16).filter(|place| list.binary_search(place).is_err()).collect())
    }

    #[inline]
    fn column(
        &mut self,
        column: &ReadColumn,
        selected: bool,
        has_complex_deletion: bool,
        out: &mut Vec<(ColumnId, ColumnData)>,
    ) -> Result<(), ParseError> {
        let keep_value = selected && column.id.is_some();
        if !column.is_complex {
            let (_, cell) = self.cell(false, column.fixed, keep_value)?;
            if let Some(id) = column.id
                && (column.dropped == NO_TIMESTAMP || cell.timestamp > column.dropped)
            {
                out.push((id, ColumnData::Simple(cell)));
            }
            return Ok(());
        }
        let mut complex = Complex::empty();
        if has_complex_deletion {
            complex.deletion = self.encoding.read_deletion(&mut self.reader)?;
            if complex.deletion.timestamp <= column.dropped {
                complex.deletion = DeletionTime::LIVE;
            }
        }
        let count = vint::read_unsigned(&mut self.reader)?;
        // An element has flags and the length of its path at least.
        let count = usize::try_from(count).ok().filter(|count| *count <= self.reader.len() / 2);
        let count = count.ok_or_else(|| ParseError::invalid("as many elements as fit the row", "more"))?;
        complex.cells.reserve_exact(if column.id.is_some() { count } else { 0 });
        for _ in 0..count {
            let (path, cell) = self.cell(true, None, keep_value)?;
            if column.id.is_some()
                && (column.dropped == NO_TIMESTAMP || cell.timestamp > column.dropped)
                && !complex.deletion.deletes(cell.timestamp)
            {
                complex.cells.push(ComplexCell { path, cell });
            }
        }
        if let Some(id) = column.id
            && !complex.is_empty()
        {
            out.push((id, ColumnData::Complex(complex)));
        }
        Ok(())
    }

    #[inline]
    fn cell(
        &mut self,
        has_path: bool,
        fixed: Option<u32>,
        keep_value: bool,
    ) -> Result<(Bytes, Cell), ParseError> {
        let flags = self.reader.u8()?;
        let (deleted, expiring) = (flags & CELL_DELETED != 0, flags & CELL_EXPIRING != 0);
        let timestamp = if flags & CELL_ROW_TIMESTAMP != 0 {
            self.liveness.timestamp
        } else {
            self.encoding.read_timestamp(&mut self.reader)?
        };
        let (mut ttl, mut local_deletion) = (0, NO_DELETION);
        if flags & CELL_ROW_TTL != 0 {
            (ttl, local_deletion) = (self.liveness.ttl, self.liveness.expires);
        } else if deleted || expiring {
            local_deletion = self.encoding.read_local(&mut self.reader)?;
            if expiring {
                ttl = self.encoding.read_ttl(&mut self.reader)?;
            }
        }
        if expiring {
            check_expiry(ttl, local_deletion)?;
        }
        if (deleted && (expiring || ttl != 0)) || (deleted && local_deletion == NO_DELETION) {
            return Err(ParseError::invalid(
                "a cell that is deleted or expires",
                format!("flags {flags:02x}"),
            ));
        }
        let mut path = Bytes::new();
        if has_path {
            let bytes = self.reader.bytes_vint()?;
            path = self.copy(bytes);
        }
        let mut value = Bytes::new();
        if flags & CELL_EMPTY == 0 {
            let bytes = prefix::read_value(fixed, &mut self.reader)?;
            if keep_value && !deleted {
                value = self.copy(bytes);
            }
        }
        Ok((path, Cell { timestamp, ttl, local_deletion, value }))
    }

    /// Bytes of the body that outlive it.
    #[inline]
    fn copy(&mut self, bytes: &'a [u8]) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        if !self.share {
            return Bytes::copy_from_slice(bytes);
        }
        let shared = self.shared.get_or_insert_with(|| Bytes::copy_from_slice(self.bytes));
        let end = self.bytes.len() - self.reader.len();
        shared.slice(end - bytes.len()..end)
    }
}

#[inline]
fn is_selected(selected: Option<&[bool]>, place: usize) -> bool {
    selected.is_none_or(|selected| selected.get(place).copied().unwrap_or(false))
}

#[inline]
fn check_expiry(ttl: Seconds, local: Seconds) -> Result<(), ParseError> {
    if ttl == 0 || ttl > Limits::SIGNED.ttl_max || local == NO_DELETION {
        return Err(ParseError::invalid("a time to live with its end", format!("{ttl} until {local}")));
    }
    Ok(())
}
