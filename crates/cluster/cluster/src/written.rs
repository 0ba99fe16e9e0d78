//! The JSON of a schema, written a table at a time, so that it can be made, and hashed, in steps between which other tasks run: a
//! schema of 20,000 tables is some 40 MiB. Other nodes hash the same bytes, so they are those that `serde_json` makes of
//! [`crate::codec::StoredSchema`], which it is read as.

use std::io;

use schema::{Keyspace, Schema};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use stdx::murmur3::Hasher128;

use crate::cdc::StoredCdcGeneration;
use crate::codec::{store_replication, store_table, store_type};
use crate::error::FORMAT_VERSION;
use crate::objects::{
    store_aggregate, store_cidr_group, store_description, store_function, store_role, store_service_level,
    store_type_description,
};
use crate::steps::Steps;

/// The user-made part of a schema as JSON for people: the file of a node's schema.
pub(crate) async fn encode(schema: &Schema, steps: &mut Steps) -> Vec<u8> {
    let mut json = Json::new(Vec::new(), true, None);
    json.schema(schema, steps).await;
    json.out
}

/// The hash of the bytes of [`encode`], which are not kept.
pub(crate) async fn hash(schema: &Schema, steps: &mut Steps) -> [u64; 2] {
    let mut json = Json::new(Vec::new(), true, Some(Hasher128::new(0)));
    json.schema(schema, steps).await;
    json.flush();
    json.hasher.map(|hasher| hasher.finish()).expect("it was given")
}

/// Appends the user-made part of a schema as JSON without spaces.
pub(crate) async fn append(schema: &Schema, out: Vec<u8>, steps: &mut Steps) -> Vec<u8> {
    let mut json = Json::new(out, false, None);
    json.schema(schema, steps).await;
    json.out
}

/// JSON that grows at its end.
struct Json {
    out: Vec<u8>,
    /// Takes the written bytes, where no other output does.
    hasher: Option<Hasher128>,
    is_pretty: bool,
    /// Arrays and objects around the end.
    depth: usize,
    /// Nothing stands before in the innermost of them.
    is_first: bool,
}

impl Json {
    fn new(out: Vec<u8>, is_pretty: bool, hasher: Option<Hasher128>) -> Self {
        Self { out, hasher, is_pretty, depth: 0, is_first: true }
    }

    fn new_line(&mut self) {
        if self.is_pretty {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + 2 * self.depth, b' ');
        }
    }

    fn begin(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.depth += 1;
        self.is_first = true;
    }

    fn end(&mut self, bracket: u8) {
        self.depth -= 1;
        if !self.is_first {
            self.new_line();
        }
        self.out.push(bracket);
        self.is_first = false;
    }

    /// Before an element.
    fn separate(&mut self) {
        if !self.is_first {
            self.out.push(b',');
        }
        self.is_first = false;
        self.new_line();
    }

    fn key(&mut self, name: &str) {
        self.separate();
        self.value(name);
        self.out.extend_from_slice(if self.is_pretty { b": " } else { b":" });
    }

    fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.key(name);
        self.value(value);
    }

    fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        let written = if self.is_pretty {
            let mut formatter = PrettyFormatter::new();
            // Only arrays and objects that it begins tell it how deep a line is.
            let begun = (0..self.depth).try_for_each(|_| formatter.begin_array(&mut io::sink()));
            begun.expect("nothing is written");
            value.serialize(&mut Serializer::with_formatter(&mut self.out, formatter))
        } else {
            value.serialize(&mut Serializer::new(&mut self.out))
        };
        written.expect("only string keys, and memory takes them");
    }

    /// Hashes the buffered bytes, where a hash is computed.
    fn flush(&mut self) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&self.out);
            self.out.clear();
        }
    }

    async fn list<T: Serialize>(&mut self, name: &str, items: impl Iterator<Item = T>, steps: &mut Steps) {
        self.key(name);
        self.begin(b'[');
        for item in items {
            let before = self.out.len();
            self.separate();
            self.value(&item);
            let bytes = self.out.len() - before;
            self.flush();
            steps.made(bytes).await;
        }
        self.end(b']');
    }

    /// A field that earlier versions do not know is left out where it is empty.
    async fn later_list<T: Serialize>(
        &mut self,
        name: &str,
        items: impl Iterator<Item = T>,
        steps: &mut Steps,
    ) {
        let mut items = items.peekable();
        if items.peek().is_some() {
            self.list(name, items, steps).await;
        }
    }

    async fn schema(&mut self, schema: &Schema, steps: &mut Steps) {
        self.begin(b'{');
        self.field("format", &FORMAT_VERSION);
        self.key("keyspaces");
        self.begin(b'[');
        for keyspace in schema.keyspaces().filter(|keyspace| !keyspace.system) {
            self.separate();
            self.keyspace(keyspace, steps).await;
        }
        self.end(b']');
        self.later_list("roles", schema.roles().map(|role| store_role(role)), steps).await;
        let levels = schema.service_levels().map(|level| store_service_level(level));
        self.later_list("service_levels", levels, steps).await;
        let generations = schema.cdc_generations().iter().map(|one| StoredCdcGeneration::from(&**one));
        self.later_list("cdc_generations", generations, steps).await;
        let groups = schema.cidr_groups().map(|group| store_cidr_group(group));
        self.later_list("cidr_groups", groups, steps).await;
        self.end(b'}');
        assert_eq!(self.depth, 0, "what was begun has ended");
    }

    /// As [`crate::codec::StoredKeyspace`] is written.
    async fn keyspace(&mut self, keyspace: &Keyspace, steps: &mut Steps) {
        self.begin(b'{');
        self.field("name", &keyspace.name);
        self.field("replication", &store_replication(&keyspace.replication));
        self.field("durable_writes", &keyspace.durable_writes);
        self.list("types", keyspace.types.values().map(|ty| store_type(ty)), steps).await;
        self.list("tables", keyspace.tables.values().map(|table| store_table(table)), steps).await;
        let functions = keyspace.functions.values().map(|one| store_function(one));
        self.later_list("functions", functions, steps).await;
        let aggregates = keyspace.aggregates.values().map(|one| store_aggregate(one));
        self.later_list("aggregates", aggregates, steps).await;
        if let Some(description) = store_description(&keyspace.description) {
            self.field("description", &description);
        }
        let described = keyspace.type_descriptions.iter().map(store_type_description);
        self.later_list("type_descriptions", described, steps).await;
        self.end(b'}');
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use schema::{
        CdcGeneration, CdcVnode, Index, Replication, Role, ServiceLevel, TableBuilder, TableId, Trigger,
        UserAggregate, UserFunction, WorkloadType,
    };
    use types::{CqlType, UserType};

    use super::*;
    use crate::codec;
    use crate::steps::at_once;

    /// The version's bytes and those of a snapshot as they were made before they were made in steps.
    fn check(schema: &Schema) {
        let stored = codec::store(schema);
        let pretty = serde_json::to_vec_pretty(&stored).unwrap();
        let written = at_once(encode(schema, &mut Steps::none()));
        assert_eq!(String::from_utf8(written), String::from_utf8(pretty.clone()));
        assert_eq!(at_once(hash(schema, &mut Steps::none())), stdx::murmur3::hash128(&pretty, 0));
        let mut plain = b"before".to_vec();
        serde_json::to_writer(&mut plain, &stored).unwrap();
        assert_eq!(at_once(append(schema, b"before".to_vec(), &mut Steps::none())), plain);
    }

    fn keyspace(number: usize, texts: &[String], counts: [usize; 4]) -> Keyspace {
        let replication = match number % 3 {
            0 => Replication::Local,
            1 => Replication::Simple { factor: 3 },
            _ => {
                Replication::NetworkTopology { factors: texts.iter().map(|text| (text.clone(), 3)).collect() }
            }
        };
        let name = format!("ks{number}");
        let mut keyspace = Keyspace::new(&name, replication);
        keyspace.durable_writes = number != 1;
        let said = |comment: Option<&String>| schema::Description {
            comment: comment.cloned(),
            security_label: texts.get(1).cloned(),
        };
        keyspace.description = said(texts.first());
        for name in texts.iter().take(number) {
            let fields = [(name.clone(), said(None))].into_iter().filter(|(_, said)| !said.is_empty());
            let description = schema::TypeDescription { whole: said(None), fields: fields.collect() };
            keyspace.type_descriptions.insert(name.clone(), description);
        }
        let text = |n: usize| texts.get(n % texts.len().max(1)).cloned().unwrap_or_default();
        for n in 0..counts[0] {
            let fields = (0..n).map(|field| (format!("{}{field}", text(n)), CqlType::Int)).collect();
            let ty = UserType { keyspace: name.clone(), name: format!("{}{n}", text(n)), fields };
            keyspace.types.insert(ty.name.clone(), Arc::new(ty));
        }
        for n in 0..counts[1] {
            let id = TableId([number as u8, n as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let mut table =
                TableBuilder::new(&name, format!("t{n}"), id).partition_key(text(n), CqlType::Text);
            table.options.comment = text(n + 1);
            table.set_constraints(&text(n), vec![schema::Constraint::NotNull; n % 2]);
            table.security_label = texts.first().cloned();
            table.ttl_column = texts.get(1).cloned();
            table.options.extensions.insert(text(n), text(n + 2).into_bytes());
            let (name, options) = (text(n), Default::default());
            let index = Index { name, targets: vec![], class: None, options, local: n % 2 == 1 };
            table.indexes.extend((0..n % 3).map(|at| (format!("i{at}"), index.clone())));
            let trigger = Trigger { name: text(n), class: text(n + 1) };
            table.triggers.extend((0..n % 2).map(|at| (format!("g{at}"), trigger.clone())));
            keyspace.tables.insert(format!("t{n}"), Arc::new(table.build().unwrap()));
        }
        for n in 0..counts[2] {
            let function = UserFunction {
                keyspace: name.clone(),
                name: format!("f{n}"),
                arguments: vec![(text(n), CqlType::Int)],
                returns: CqlType::Text,
                called_on_null_input: n % 2 == 0,
                language: "lua".to_owned(),
                body: text(n + 1),
            };
            keyspace.functions.insert(function.signature(), Arc::new(function));
        }
        for n in 0..counts[3] {
            let aggregate = UserAggregate {
                keyspace: name.clone(),
                name: format!("a{n}"),
                arguments: vec![CqlType::Int; n],
                state_function: text(n),
                state_type: CqlType::Int,
                reduce_function: (n % 2 == 1).then(|| text(n)),
                final_function: None,
                initial_condition: Some(text(n + 1)),
                returns: CqlType::Int,
            };
            keyspace.aggregates.insert(aggregate.signature(), Arc::new(aggregate));
        }
        keyspace
    }

    #[test]
    fn a_schema_of_nothing_is_written_as_serde_writes_it() {
        check(&Schema::default());
        check(&crate::own_schema());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_schema_is_written_as_serde_writes_it(
            counts in prop::collection::vec(prop::array::uniform4(0..4usize), 0..4),
            texts in prop::collection::vec(any::<String>(), 1..4),
            rest in prop::array::uniform3(0..3usize),
        ) {
            let mut schema = crate::own_schema();
            for (number, counts) in counts.iter().enumerate() {
                schema = schema.with_keyspace(keyspace(number, &texts, *counts));
            }
            for n in 0..rest[0] {
                schema = schema.with_role(Role {
                    name: format!("{}{n}", texts[0]),
                    can_login: n > 0,
                    is_superuser: false,
                    salted_hash: Some(texts[0].clone()),
                    datacenters: None,
                    member_of: texts.iter().cloned().collect(),
                    permissions: Default::default(),
                    service_level: None,
                    identities: texts.iter().skip(1).cloned().collect(),
                    cidr_groups: texts.iter().take(n).cloned().collect(),
                });
            }
            for n in 0..rest[1] {
                let (name, workload) = (format!("{}{n}", texts[0]), WorkloadType::Unspecified);
                schema = schema.with_service_level(ServiceLevel { name, timeout: None, shares: 7, workload });
            }
            for n in 0..rest[2] {
                let vnodes = vec![CdcVnode { upto: n as i64, shards: 2 }];
                schema = schema.with_cdc_generation(CdcGeneration { start_millis: n as i64, vnodes });
                let cidrs = [format!("10.{n}.0.0/16"), "fd00::/8".to_owned()].map(|text| text.parse().expect("a range"));
                schema = schema.with_cidr_group(schema::CidrGroup { name: format!("{}{n}", texts[0]), cidrs: cidrs.into() });
            }
            check(&schema);
        }
    }
}
