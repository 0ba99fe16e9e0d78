//! How fast the disk of a node's data is: given, remembered or measured, in the form of ScyllaDB's `io_properties.yaml`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rt::IoCapacity;
use serde_yaml_ng::Value;
use server::Config;

/// Where a measured speed is remembered, in the directory of tables.
const REMEMBERED: &str = ".torc/io_properties.yaml";

/// The speed of the disk, by which its reads and writes are scheduled; none where it is not known: nothing is scheduled then. It is in a file that
/// the configuration names, or the first start measures and remembers it.
///
/// # Errors
/// A sentence for the user when the file that the configuration names has none.
pub fn of(config: &Config, is_dev: bool) -> Result<Option<IoCapacity>, String> {
    let data = &config.data_file_directories;
    if let Some(file) = &config.io_properties_file {
        let of_file = |error: String| format!("option io_properties_file: {}: {error}", file.display());
        let text = fs::read_to_string(file).map_err(|error| of_file(error.to_string()))?;
        return parse(&text, data).map(Some).map_err(of_file);
    }
    if is_dev || config.memory || config.io_latency_goal.is_zero() {
        return Ok(None);
    }
    let file = data.join(REMEMBERED);
    match fs::read_to_string(&file) {
        Ok(text) => match parse(&text, data) {
            Ok(speed) => return Ok(Some(speed)),
            Err(error) => tracing::warn!("{}: {error}; the disk is measured again", file.display()),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => tracing::warn!("cannot read {}: {error}; the disk is measured again", file.display()),
    }
    Ok(measure(data, &file))
}

/// Measures the disk and remembers its speed. A node serves without it.
fn measure(data: &Path, file: &Path) -> Option<IoCapacity> {
    let speed = match rt_uring::measure_disk(data) {
        Ok(speed) => speed,
        Err(error) => {
            tracing::warn!(
                "the speed of the disk of {} is not known ({error}): its reads and writes are not scheduled",
                data.display()
            );
            return None;
        }
    };
    tracing::info!(
        "the disk of {} does {} reads and {} writes a second, {} and {} MiB/s; this is remembered in {}, remove that file to have the disk measured again",
        data.display(),
        speed.read_iops,
        speed.write_iops,
        speed.read_bandwidth >> 20,
        speed.write_bandwidth >> 20,
        file.display()
    );
    if let Err(error) = remember(data, file, &speed) {
        tracing::warn!("cannot write {}: {error}; the next start measures the disk again", file.display());
    }
    Some(speed)
}

fn remember(data: &Path, file: &Path, speed: &IoCapacity) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    // A file that a crash cuts off is measured again.
    fs::write(file, show(data, speed))
}

/// The form that [`parse`] reads.
fn show(data: &Path, speed: &IoCapacity) -> String {
    let name = serde_yaml_ng::to_string(&data.to_string_lossy()).unwrap_or_default();
    format!(
        "disks:\n  - mountpoint: {}\n    read_iops: {}\n    read_bandwidth: {}\n    write_iops: {}\n    write_bandwidth: {}\n",
        name.trim_end(),
        speed.read_iops,
        speed.read_bandwidth,
        speed.write_iops,
        speed.write_bandwidth
    )
}

/// The speed of the disk that a directory is on: of its nearest mount point in the list `disks`.
fn parse(text: &str, directory: &Path) -> Result<IoCapacity, String> {
    let yaml: Value = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    let disks = yaml.get("disks").and_then(Value::as_sequence).ok_or("expected a list `disks`")?;
    let mount_point = |disk: &Value| {
        let path = Path::new(disk.get("mountpoint")?.as_str()?);
        directory.starts_with(path).then(|| path.components().count())
    };
    let nearest =
        disks.iter().filter_map(|disk| Some((mount_point(disk)?, disk))).max_by_key(|(len, _)| *len);
    let (_, disk) =
        nearest.ok_or_else(|| format!("no disk in it has a mountpoint above {}", directory.display()))?;
    let figure = |name: &str| {
        let value = disk.get(name).and_then(Value::as_u64).filter(|value| *value > 0);
        value.ok_or_else(|| format!("expected {name}, a number from 1"))
    };
    Ok(IoCapacity {
        read_iops: figure("read_iops")?,
        read_bandwidth: figure("read_bandwidth")?,
        write_iops: figure("write_iops")?,
        write_bandwidth: figure("write_bandwidth")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEED: IoCapacity =
        IoCapacity { read_iops: 1_000, read_bandwidth: 2_000_000, write_iops: 300, write_bandwidth: 40 };

    #[test]
    fn a_remembered_speed_is_read_again() {
        for data in ["/var/lib/torc/data", "/a: b/'c'", "/#"] {
            let data = Path::new(data);
            assert_eq!(parse(&show(data, &SPEED), data), Ok(SPEED));
        }
    }

    #[test]
    fn the_nearest_mount_point_counts() {
        let root = show(Path::new("/"), &IoCapacity { read_iops: 7, ..SPEED });
        let both = root + show(Path::new("/var/lib"), &SPEED).strip_prefix("disks:\n").expect("its begin");
        assert_eq!(parse(&both, Path::new("/var/lib/torc")).map(|speed| speed.read_iops), Ok(1_000));
        assert_eq!(parse(&both, Path::new("/var/library")).map(|speed| speed.read_iops), Ok(7));
    }

    #[test]
    fn what_is_no_speed_is_refused() {
        let whole = show(Path::new("/data"), &SPEED);
        for (text, directory, said) in [
            ("", "/", "expected a list `disks`"),
            ("disks: 3", "/", "expected a list `disks`"),
            ("disks: [{}]", "/", "no disk in it has a mountpoint above /"),
            (whole.as_str(), "/other", "no disk in it has a mountpoint above /other"),
            (&whole.replace("300", "0"), "/data", "expected write_iops, a number from 1"),
            (&whole.replace("300", "-3"), "/data", "expected write_iops, a number from 1"),
            (&whole.replace("read_bandwidth", "read"), "/data", "expected read_bandwidth, a number from 1"),
        ] {
            assert_eq!(parse(text, Path::new(directory)), Err(said.to_owned()), "{text}");
        }
        assert!(parse("disks: [", Path::new("/")).is_err());
    }
}
