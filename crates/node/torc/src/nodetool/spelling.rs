//! The command line with forms that the tools of Cassandra and ScyllaDB understand and clap does not: options of several letters behind one dash,
//! which clap would take for options of one letter with a value.

use std::ffi::OsString;

/// Options by their names there, and as long ones here.
const OPTIONS: &[(&str, &str)] = &[
    ("--column-family", "--table"),
    ("--kc.list", "--kt-list"),
    ("--keyspace-table-list", "--kt-list"),
    ("-cf", "--table"),
    ("-dc", "--in-dc"),
    ("-dcpar", "--dc-parallel"),
    ("-et", "--end-token"),
    ("-full", "--full"),
    ("-hf", "--hex-format"),
    ("-hosts", "--in-hosts"),
    ("-id", "--compaction-id"),
    ("-iuk", "--ignore-unreplicated-keyspaces"),
    ("-kc", "--kt-list"),
    ("-ks", "--keyspace"),
    ("-kt", "--kt-list"),
    ("-las", "--load-and-stream"),
    ("-local", "--in-local-dc"),
    ("-ns", "--no-snapshot"),
    ("-nt", "--no-ttl"),
    ("-os", "--optimise-streams"),
    ("-pl", "--pull"),
    ("-pp", "--print-port"),
    ("-pr", "--partitioner-range"),
    ("-pro", "--primary-replica-only"),
    ("-prv", "--preview"),
    ("-pw", "--password"),
    ("-pwf", "--password-file"),
    ("-seq", "--sequential"),
    ("-sf", "--skip-flush"),
    ("-st", "--start-token"),
    ("-tr", "--trace"),
    ("-vd", "--validate"),
];

/// The command line with long options, also of `-option=value`.
pub fn spelled_out(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = arguments.collect();
    if out.get(1).is_some_and(|verb| verb == "nodetool") {
        for argument in out[2..].iter_mut().take_while(|argument| *argument != "--") {
            if let Some(long) = argument.to_str().and_then(long) {
                *argument = long.into();
            }
        }
    }
    out
}

fn long(argument: &str) -> Option<String> {
    let (name, value) =
        argument.split_once('=').map_or((argument, None), |(name, value)| (name, Some(value)));
    let (_, long) = OPTIONS.iter().find(|(known, _)| *known == name)?;
    Some(value.map_or((*long).to_owned(), |value| format!("{long}={value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn options_of_several_letters_are_long_ones() {
        assert!(OPTIONS.is_sorted());
        let line = "torc nodetool -pw=x repair -hosts 127.0.0.1 -st=-5 -p 1 ks -- -pr";
        let long = "torc nodetool --password=x repair --in-hosts 127.0.0.1 --start-token=-5 -p 1 ks -- -pr";
        assert_eq!(spelled_out(words(line).into_iter()), words(long));
        assert_eq!(spelled_out(words("torc dev -pr").into_iter()), words("torc dev -pr"));
    }
}
