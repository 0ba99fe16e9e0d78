//! How figures and tables look in text: as Cassandra's nodetool prints them, because scripts read them.

/// Rows whose columns are padded to the same width, the last one too.
#[derive(Default)]
pub struct Grid {
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// Adds a row.
    pub fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// The text: `between` stands between columns, each line ends with a line end.
    pub fn text(&self, between: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            out.push_str(&cells.collect::<Vec<_>>().join(between));
            out.push('\n');
        }
        out
    }
}

/// Bytes with a binary unit and at most two decimals: `116.24 KiB`, `12 bytes`.
pub fn size(bytes: f64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        let of = (1_u64 << shift) as f64;
        if bytes >= of {
            return format!("{} {unit}", decimals(bytes / of));
        }
    }
    format!("{} bytes", decimals(bytes))
}

/// At most two decimals, none when they are zero. Halves go to the even digit, as in Java's format.
pub fn decimals(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A share with `digits` decimals, in percent.
pub fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_cassandras() {
        for (bytes, text) in [
            (0.0, "0 bytes"),
            (110.0, "110 bytes"),
            (1023.0, "1023 bytes"),
            (1024.0, "1 KiB"),
            (119_030.0, "116.24 KiB"),
            (8.0 * 1024.0 * 1024.0, "8 MiB"),
            (1.5 * 1024.0 * 1024.0 * 1024.0, "1.5 GiB"),
            (3.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0, "3072 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(percent(0.3333, 1), "33.3%");
        assert_eq!(percent(1.0, 2), "100.00%");
    }

    #[test]
    fn columns_are_padded_to_the_widest() {
        let mut grid = Grid::default();
        grid.row(["a", "long one", "b"]);
        grid.row(["longer", "x"]);
        assert_eq!(grid.text("  "), "a       long one  b\nlonger  x       \n");
        assert_eq!(Grid::default().text(" "), "");
    }
}
